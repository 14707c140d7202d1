#!/bin/sh
# Cross-compiles the release binaries into dist/ with a SHA256SUMS beside them.
set -eu
cd "$(dirname "$0")/.."

rm -rf dist
mkdir dist
for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
	os=${target%/*}
	arch=${target#*/}
	GOOS=$os GOARCH=$arch .ci/build.sh "dist/qtop-$os-$arch"
	echo "dist/qtop-$os-$arch"
done

cd dist
if command -v sha256sum >/dev/null 2>&1; then
	sha256sum qtop-* >SHA256SUMS
else
	shasum -a 256 qtop-* >SHA256SUMS # macOS
fi
cat SHA256SUMS
