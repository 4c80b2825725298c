package embedded

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// defaults suit a small server next to its only client. User content stays out
// of the log: no statements, no DETAIL lines.
var defaults = map[string]string{
	"max_connections":              "100",
	"shared_buffers":               "128MB",
	"wal_level":                    "replica",
	"max_wal_size":                 "1GB",
	"checkpoint_timeout":           "15min",
	"checkpoint_completion_target": "0.9",
	"random_page_cost":             "1.1",
	"jit":                          "off",
	"timezone":                     "UTC",
	"log_timezone":                 "UTC",
	"log_line_prefix":              "%m [%p] ",
	"log_checkpoints":              "off",
	"log_error_verbosity":          "terse",
	"log_min_error_statement":      "panic",
}

// unsynced trades durability against a crash of the system for speed.
var unsynced = map[string]string{
	"fsync":              "off",
	"synchronous_commit": "off",
	"full_page_writes":   "off",
}

// reserved settings decide who can reach the server and where it keeps what:
// it trusts every connection because only its owner can make one.
var reserved = []string{
	"config_file", "data_directory", "external_pid_file", "hba_file", "ident_file", "listen_addresses",
	"log_destination", "logging_collector", "port", "unix_socket_directories", "unix_socket_group",
	"unix_socket_permissions",
}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$`)

func checkSettings(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		switch {
		case !settingName.MatchString(name):
			return fmt.Errorf("%w: %q is not a name (lower case)", ErrBadSetting, name)
		case slices.Contains(reserved, name):
			return fmt.Errorf("%w: %s is not for callers to set", ErrBadSetting, name)
		case strings.ContainsRune(settings[name], 0):
			return fmt.Errorf("%w: NUL in the value of %s", ErrBadSetting, name)
		}
	}
	return nil
}

// arguments turns settings into postgres arguments. On the command line they
// hold for this run, whatever an earlier one wrote into the directory.
func arguments(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// settings are all of them, in rising precedence.
func (s *Server) settings() map[string]string {
	all := maps.Clone(defaults)
	maps.Copy(all, s.compression)
	if s.opts.NoSync {
		maps.Copy(all, unsynced)
	}
	maps.Copy(all, s.opts.Settings)
	maps.Copy(all, map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": `"` + s.socket + `"`,
		"log_destination":         "stderr",
		"logging_collector":       "off",
	})
	return all
}
