#!/bin/sh
# dpkg calls this with `remove` or `upgrade`, rpm with the number of versions that stay. Hosts are
# stopped before their program is removed: each finishes its work or returns it to the queue.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
# A systemd that does not answer, as in some containers, keeps no package.
[ ! -d /run/systemd/system ] || systemctl stop 'qtop-worker@*.service' || :
# rpm knows no purge, after which enabled instances would be left without a unit.
if [ "$1" = 0 ] && command -v systemctl >/dev/null 2>&1; then systemctl --quiet disable qtop-worker@.service || :; fi
