#!/bin/sh
# Builds the container image qtop:VERSION of the Linux binary for this machine in dist/, with the first
# of docker, podman and buildah that works here.
set -eu
cd "$(dirname "$0")/../.."

version=$1
arch=$(go env GOHOSTARCH)
[ -f "dist/qtop-linux-$arch" ] || {
	echo "SKIP container image: dist/qtop-linux-$arch is not built" >&2
	exit 0
}
if docker info >/dev/null 2>&1; then
	set -- docker build
elif command -v podman >/dev/null 2>&1; then
	set -- podman build
elif command -v buildah >/dev/null 2>&1; then
	set -- buildah build
else
	echo "SKIP container image: no docker with a running daemon, podman or buildah here" >&2
	exit 0
fi
"$@" --build-arg TARGETARCH="$arch" -t "qtop:$version" -f .ci/package/Containerfile dist
echo "image qtop:$version"
