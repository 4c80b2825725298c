package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is who runs the PostgreSQL programs: for root an unprivileged
// account, since Postgres refuses root; for everybody else themselves.
type account struct {
	name string
	cred *syscall.Credential // nil: the caller's own identity
}

func pickAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		entry, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(entry.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(entry.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, fmt.Errorf("%w: Postgres refuses to run as root and there is neither postgres nor nobody", ErrNoAccount)
}

// own hands path, not followed if it is a link, to the account.
func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Lchown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// command prepares program to run as the account, in dir, in a process group
// of its own: a terminal's Ctrl-C must reach the service first.
func (a account) command(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.cred}
	dieWithParent(cmd.SysProcAttr)
	return cmd
}

// environment keeps PG* variables, locales and the service's secrets away from
// the server.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// reach checks that the account can enter dir and run program. A dropped
// identity is the only thing that knows every permission and access list.
func (a account) reach(ctx context.Context, dir, program string) error {
	if a.cred == nil {
		return nil
	}
	run, err := spawn(a.command(dir, program, "--version"))
	if err == nil {
		err = run.wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: the account %s must be able to enter %s (search permission on every parent) and to run %s: %w",
			ErrUnreachableDir, a.name, dir, program, err)
	}
	return nil
}
