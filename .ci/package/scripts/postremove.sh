#!/bin/sh
# dpkg calls this with `remove` and `purge`, rpm with the number of versions that stay. A purge leaves
# nothing; rpm knows no purge, so that there changed settings and the user stay.
set -e

case "${1:-}" in
remove | purge | 0) ;;
*) exit 0 ;;
esac
if [ "$1" = purge ]; then
	rm -rf /etc/qtop
	rm -f /var/cache/man/cat*/qtop*.gz # formatted pages that man-db keeps
	rm -rf /etc/systemd/system/*.wants/qtop-worker@*.service /etc/systemd/system/qtop-worker@*.service.d \
		/var/lib/systemd/deb-systemd-helper-enabled/*/qtop-worker@*.service
	# Only the user that the package made, which this comment distinguishes: a person, a user of LDAP or one whom the
	# site made before the package may have the name.
	if [ "$(getent passwd qtop | cut -d : -f 5)" = "qtop worker hosts" ]; then
		if ! userdel qtop; then
			echo "qtop: the user qtop stays; remove it when no process of it runs: userdel qtop" >&2
		elif getent group qtop | grep -q ':$'; then # nobody else is in it
			groupdel qtop || :
		fi
	fi
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || :
systemctl reset-failed 'qtop-worker@*.service' || :
