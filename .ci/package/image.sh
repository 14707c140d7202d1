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
	tool=docker
elif command -v podman >/dev/null 2>&1; then
	tool=podman
elif command -v buildah >/dev/null 2>&1; then
	tool=buildah
else
	echo "SKIP container image: no docker with a running daemon, podman or buildah here" >&2
	exit 0
fi
base=$(sed -n 's/^FROM //p' .ci/package/Containerfile)
if ! "$tool" pull -q "$base" >/dev/null && [ -z "$("$tool" images -q "$base" 2>/dev/null)" ]; then
	echo "SKIP container image: $tool cannot fetch its base $base" >&2
	exit 0
fi
"$tool" build --build-arg TARGETARCH="$arch" -t "qtop:$version" -f .ci/package/Containerfile dist
echo "image qtop:$version"
