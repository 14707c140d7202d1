#!/bin/sh
# Builds the release twice and compares every byte: from two folders, the second time in another time
# zone, language and umask, and for newer processors. The binaries are also built with an empty build cache. QTOP_DIST names fewer
# targets. 2 to 10 minutes.
set -eu
cd "$(dirname "$0")/../.."

[ -z "$(git status --porcelain 2>/dev/null)" ] || echo "reproducible: files that are not committed are not compared" >&2
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

git clone -q . "$work/one"
git clone -q . "$work/another folder"
(cd "$work/one" && .ci/package.sh) >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
(cd "$work/another folder" && umask 077 && TZ=Pacific/Auckland LANG=tr_TR.UTF-8 USER=another GOAMD64=v3 GOARM64=v9.0 .ci/package.sh) \
	>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
git clone -q . "$work/cold"
(cd "$work/cold" && GOCACHE=$work/cache .ci/dist.sh) >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

differ=0
# shellcheck disable=SC2012 # names of ours
for file in $(ls "$work/one/dist"); do
	[ "$file" != SHA256SUMS.sig ] || continue # of a key, not of the source
	cmp "$work/one/dist/$file" "$work/another folder/dist/$file" || differ=$((differ + 1))
done
for file in "$work/cold/dist"/*; do
	cmp "$file" "$work/one/dist/${file##*/}" || differ=$((differ + 1))
done
[ "$differ" -eq 0 ] || {
	echo "FAILED: $differ files differ between two builds of one commit" >&2
	exit 1
}
echo "reproducible: two builds of $(git rev-parse --short HEAD) with $(go env GOVERSION) are the same, $(find "$work/one/dist" -type f | wc -l) files:"
cat "$work/one/dist/SHA256SUMS"
