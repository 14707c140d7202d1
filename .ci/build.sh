#!/bin/sh
# Builds cmd/qtop: .ci/build.sh OUTPUT [FLAG of go build]…, for GOOS/GOARCH of the environment.
set -eu
cd "$(dirname "$0")/.."

# Go records the commit in the binary, and qtop prints it as its version. If git refuses to read the
# checkout (because another user owns it, as in many containers), go build would fail; then the commit is left out.
vcs=false
if git rev-parse --verify -q HEAD >/dev/null 2>&1; then vcs=true; fi

out=$1
shift
CGO_ENABLED=0 exec go build -trimpath -buildvcs="$vcs" "$@" -o "$out" ./cmd/qtop
