# The machine of the trial: a bare Debian, in a container or, where none boots, in a chroot. Sourced by try.sh; uses
# its work, root, children, until_true and skip; sets enter, path and offline.
# shellcheck shell=bash disable=SC2034,SC2154

# container: boots the root in a container; enter is then how a command gets into it.
container() {
	local pid leader=
	if [[ ${QTOP_TRIAL:-} == chroot ]] || ! command -v systemd-nspawn >/dev/null; then
		echo "not tried" >"$work/console"
		return 1
	fi
	systemd-nspawn -q -D "$root" -b --register=no --keep-unit --console=read-only --machine=qtop-trial-$$ \
		--bind-ro="$work:/packages" >"$work/console" 2>&1 &
	pid=$!
	for ((i = 0; i < 300; i++)); do
		leader=$(ps -o pid= --ppid "$pid" | head -n 1 | tr -d ' ')
		if [[ -n $leader ]] && nsenter -t "$leader" -a systemctl is-system-running >"$work/last" 2>&1; then
			children+=("$pid")
			enter=(nsenter -t "$leader" -a)
			return 0
		fi
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	return 1
}
# standin: the same in a chroot, in which .ci/package/units replaces systemd.
standin() {
	mount -t proc proc "$root/proc" || skip "neither systemd-nspawn nor mount works here ($(tail -n 1 "$work/console"))"
	mkdir "$root/packages"
	cp "$work"/*.deb "$root/packages"
	"$work/units" serve "$root" &
	children+=($!)
	until_true 5 "the stand-in for systemd" test -S "$root/run/qtop-trial/control"
	for name in systemctl journalctl; do install -m 0755 "$work/units" "$root/run/qtop-trial/bin/$name"; done
	path=/run/qtop-trial/bin:$path
	enter=(chroot "$root")
	offline=--offline=true
}
