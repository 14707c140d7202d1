#!/bin/sh
# dpkg calls this with `configure OLD-VERSION` (empty at the first installation), rpm with the
# number of versions that are installed now.
#
# It starts and restarts nothing. An upgraded host refuses to work until `qtop migrate up` has run, and
# running the old program until then loses nothing.
set -e

case "${1:-}" in
configure) [ -z "${2:-}" ] && first=yes || first= ;;
1) first=yes ;;
[2-9]*) first= ;;
*) exit 0 ;; # dpkg takes back a failed step: there is nothing to do
esac

if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers qtop.conf # by its name, so that /etc/sysusers.d/qtop.conf of the site counts
else
	getent group qtop >/dev/null || groupadd --system qtop
	getent passwd qtop >/dev/null || useradd --system --gid qtop --home-dir /nonexistent --no-create-home \
		--shell /usr/sbin/nologin --comment "qtop worker hosts" qtop
fi
if [ "$1" = configure ] && [ ! -e /etc/qtop/config.yaml ] && { [ -n "$first" ] || [ -z "$(ls -A /etc/qtop 2>&1)" ]; }; then
	install -m 0640 /usr/share/qtop/config.yaml /etc/qtop/config.yaml
fi
for name in /etc/qtop /etc/qtop/config.yaml; do
	# Later, what an administrator changed stays. root:root is what dpkg gives a folder that was deleted meanwhile, and
	# what rpm gives the folder, and the file if nobody has changed it, at each upgrade: no host could read them.
	if [ -n "$first" ] || [ "$(stat -L -c %U:%G "$name" 2>/dev/null)" = root:root ]; then chgrp qtop "$name"; fi
done

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || : # a systemd that does not answer, as in some containers, keeps no package
[ -z "$first" ] || exit 0
running=$(systemctl list-units --plain --no-legend --state=active 'qtop-worker@*.service' | cut -d ' ' -f 1 | tr '\n' ' ')
[ -n "$running" ] || exit 0
echo "qtop: these worker hosts go on with the program of before: $running"
if [ "$1" = configure ] && dpkg --compare-versions "$2" gt "$(dpkg-query --show --showformat='${Version}' qtop)"; then # a downgrade
	echo "qtop: the database stays as it is; then: systemctl restart 'qtop-worker@*'"
else
	echo "qtop: run 'qtop migrate up' with the new one, then: systemctl restart 'qtop-worker@*'"
fi
