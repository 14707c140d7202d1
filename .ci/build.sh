#!/bin/sh
# Builds cmd/qtop: .ci/build.sh OUTPUT [FLAG of go build]…, for GOOS/GOARCH of the environment.
set -eu
cd "$(dirname "$0")/.."

# The version comes from the build info. Go fails outright where git distrusts
# the checkout (another owner, as in many containers), so there it is left out.
vcs=false
if git rev-parse --verify -q HEAD >/dev/null 2>&1; then vcs=true; fi

out=$1
shift
CGO_ENABLED=0 exec go build -trimpath -buildvcs="$vcs" "$@" -o "$out" ./cmd/qtop
