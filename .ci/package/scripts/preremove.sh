#!/bin/sh
# dpkg calls this with `remove` or `upgrade`, rpm with the number of versions that stay. Hosts are
# stopped before their program is removed: each finishes its work or returns it to the queue.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl stop 'qtop-worker@*.service'
