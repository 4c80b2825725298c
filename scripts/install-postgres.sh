#!/bin/sh
# Makes sure that PostgreSQL server programs (14 or newer) are on this machine.
# Silent and quick when they are; otherwise says what it does and installs them
# with the system's package manager. Looks where store/embedded looks.
set -eu

minimum=14

# usable DIR: DIR has initdb and a postgres that is new enough.
usable() {
	[ -x "$1/initdb" ] && [ -x "$1/postgres" ] || return 1
	version=$("$1/postgres" --version 2>/dev/null) || return 1
	version=${version#*PostgreSQL) }
	version=${version%%[!0-9]*}
	[ "${version:-0}" -ge "$minimum" ]
}

found() {
	if [ -n "${THREADSVC_PG_BIN:-}" ]; then
		usable "$THREADSVC_PG_BIN"
		return
	fi
	if program=$(command -v postgres); then
		real=$(readlink -f "$program" 2>/dev/null) || real=$program
		usable "$(dirname "$real")" && return 0
	fi
	if bindir=$(pg_config --bindir 2>/dev/null); then
		usable "$bindir" && return 0
	fi
	for dir in /usr/lib/postgresql/*/bin /usr/libexec/postgresql* /usr/pgsql-*/bin \
		/opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin /usr/local/pgsql*/bin \
		/Applications/Postgres.app/Contents/Versions/*/bin; do
		usable "$dir" && return 0
	done
	return 1
}

say() { echo "install-postgres: $*" >&2; }

fail() {
	say "$*"
	exit 1
}

# as_root COMMAND...: runs it as root, or says how to.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "PostgreSQL $minimum or newer is missing and this is neither root nor sudo; as root run: $*"
	fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"; }

# Debian's package makes and starts a cluster for the system unless told not
# to. The note is withdrawn afterwards, so that later versions behave as usual.
note=/etc/postgresql-common/createcluster.d/threadsvc-install.conf

withdraw() { [ ! -e "$note" ] || as_root rm -f "$note"; }

install_apt() {
	apt update
	apt install --no-install-recommends postgresql-common
	trap withdraw EXIT
	trap 'exit 1' HUP INT TERM
	as_root mkdir -p "${note%/*}"
	echo "create_main_cluster = false" | as_root tee "$note" >/dev/null
	apt install --no-install-recommends postgresql
}

found && exit 0
[ -z "${THREADSVC_PG_BIN:-}" ] || fail "THREADSVC_PG_BIN=$THREADSVC_PG_BIN has no PostgreSQL $minimum or newer"

missing="PostgreSQL $minimum or newer is missing: installing it with"
if command -v apt-get >/dev/null; then
	say "$missing apt-get (postgresql)"
	install_apt
elif command -v apk >/dev/null; then
	say "$missing apk (postgresql)"
	as_root apk add --no-cache postgresql
elif command -v dnf >/dev/null; then
	say "$missing dnf (postgresql-server)"
	as_root dnf install -y postgresql-server
elif command -v brew >/dev/null; then
	say "$missing brew (postgresql)"
	brew install postgresql
else
	fail "PostgreSQL $minimum or newer is missing; install it from https://www.postgresql.org/download/"
fi
found || fail "the package was installed, but is older than PostgreSQL $minimum or in an unknown place; set THREADSVC_PG_BIN"
