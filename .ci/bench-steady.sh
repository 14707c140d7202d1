#!/bin/sh
# Measures qtop and its peers under a steady load: .ci/bench-steady.sh [FLAG of peerbench steady]…
# Tables and charts go into docs/performance.md. With BEFORE, the name of a commit from 64251590 on, qtop of
# that commit is measured in turns in the same run, as "before COMMIT". With -qtop only the builds that it names are.
set -eu
cd "$(dirname "$0")/.."

here="-qtop ../../qtop"
for arg in "$@"; do
	case $arg in -qtop | --qtop | -qtop=* | --qtop=*) here= ;; esac
done
if [ -n "${BEFORE:-}" ]; then
	commit=$(git rev-parse --short=8 --verify "$BEFORE^{commit}")
	before=$PWD/steady-out/before/$commit
	if [ ! -x "$before" ]; then
		tree=$(mktemp -d)
		trap 'git worktree remove --force "$tree/src" 2>/dev/null || true; rm -rf "$tree"' EXIT
		trap 'exit 1' HUP INT TERM
		git worktree add -q --detach "$tree/src" "$commit"
		mkdir -p "$(dirname "$before")"
		"$tree/src/.ci/build.sh" "$before"
		git worktree remove --force "$tree/src"
	fi
	set -- -qtop "before $commit=$before" "$@"
fi
cd workerhost/peerbench
# shellcheck disable=SC2086 # two words or none
go run . steady $here -dir ../../steady-out -doc ../../docs/performance.md "$@"
