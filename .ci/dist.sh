#!/bin/sh
# Cross-compiles the release binaries into dist/.
# QTOP_DIST names other targets than the four of a release ("linux/amd64").
set -eu
cd "$(dirname "$0")/.."

# What the builder has in the environment or in "go env -w" for own programs would change the bytes, or make
# programs that older processors cannot run.
export GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOFLAGS=-trimpath

rm -rf dist
mkdir dist
for target in ${QTOP_DIST:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}; do
	os=${target%/*}
	arch=${target#*/}
	GOOS=$os GOARCH=$arch .ci/build.sh "dist/qtop-$os-$arch" -ldflags='-s -w' # a third smaller, without a debugger's tables
	echo "dist/qtop-$os-$arch"
done
