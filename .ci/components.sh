#!/bin/sh
# Installs pgbouncer, PostgreSQL extensions and other programs that the full tests use, as root on Debian.
# It names each one that it cannot install; the tests that need that one are skipped with this reason.
set -eu

# Debian has a package of each extension per major version of PostgreSQL: install it for each that is installed here.
list="pgbouncer pg-auto-failover-cli faketime"
for dir in /usr/lib/postgresql/*; do
	[ -x "$dir/bin/postgres" ] || continue
	major=${dir##*/}
	for name in cron pgtap plpgsql-check auto-failover; do
		list="$list postgresql-$major-$name"
	done
done

missing() {
	for package in $list; do
		status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || status=
		[ "$status" = "install ok installed" ] || echo "$package"
	done | tr '\n' ' '
}

if ! command -v dpkg-query >/dev/null 2>&1; then
	echo "SKIP components: not a Debian system; a test that needs one of these skips unless it is installed: $list" >&2
	exit 0
fi
want=$(missing)
[ -n "$want" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "SKIP components: not root, so not installed: $want" >&2
	exit 0
fi

# policy-rc.d keeps a package from starting a service: the tests start their own servers. If the file
# exists already, it is the administrator's and is not changed.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 0755 "$policy"
fi
apt-get update -q >/dev/null 2>&1 || true
# One at a time: if this release of Debian lacks one package, apt would install none of them.
for package in $want; do
	echo "components: installing $package" >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1 || true
done
want=$(missing)
[ -z "$want" ] || echo "SKIP components: could not be installed: $want" >&2
