package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const envPrefix = "THREADSVC_"

// noEnv annotates flags that have to be given on the command line.
const noEnv = "threadsvc_no_env"

// envName is the environment variable that stands in for a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const envHelp = "\n\nEvery flag can also be set by the environment: --some-flag by THREADSVC_SOME_FLAG. The command line wins."

// fromEnv sets the flags that the command line left alone from the environment.
func fromEnv(c *cobra.Command) error {
	var errs []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(envName(f.Name))
		if !ok || f.Changed || f.Name == "help" || f.Annotations[noEnv] != nil {
			return
		}
		if err := c.Flags().Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s: %w", envName(f.Name), err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return &usageError{c.CommandPath(), err}
	}
	return nil
}

// byteSize is a flag's number of bytes: 1048576, 1024KiB, 1MiB or 1GiB.
type byteSize int64

var byteUnits = []struct {
	suffix string
	size   int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

var errByteSize = errors.New("want a number of bytes above 0, such as 65536, 512KiB, 4MiB or 1GiB")

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	digits, unit := text, int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = rest, u.size
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || int64(n) > math.MaxInt64/unit {
		return errByteSize
	}
	*b = byteSize(int64(n) * unit)
	return nil
}

// String implements pflag.Value.
func (b *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n%u.size == 0 && n > 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return "0"
}

// Type implements pflag.Value.
func (*byteSize) Type() string { return "bytes" }

// sizeVar adds a byteSize flag.
func sizeVar(f *pflag.FlagSet, p *byteSize, name string, value int64, usage string) {
	*p = byteSize(value)
	f.Var(p, name, usage)
}

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	for _, word := range c.allowed {
		if text == word {
			c.value = text
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(c.allowed, ", "))
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// logFlags are how a command logs.
type logFlags struct {
	format, level choice
}

func (l *logFlags) add(f *pflag.FlagSet) {
	l.format = choice{"text", []string{"text", "json"}}
	l.level = choice{"info", []string{"debug", "info", "warn", "error"}}
	f.Var(&l.format, "log-format", "`format` of the log on standard error: text or json")
	f.Var(&l.level, "log-level", "least `level` that is logged: debug, info, warn or error")
}

// logger returns a logger that writes to w as the flags say.
func (l *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level.value)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if l.format.value == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
