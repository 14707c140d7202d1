#!/bin/sh
# dpkg calls this with `remove` or `upgrade`, rpm with the number of versions that stay. Hosts stop
# before their program goes: each finishes or hands back what it holds.
set -e

case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl stop 'qtop-worker@*.service'
