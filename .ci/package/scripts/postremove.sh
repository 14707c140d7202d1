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
	if getent passwd qtop >/dev/null; then userdel qtop; fi
	if getent group qtop >/dev/null; then groupdel qtop; fi
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl reset-failed 'qtop-worker@*.service' || :
