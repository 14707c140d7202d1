#!/bin/sh
# Writes dist/SHA256SUMS over every file of dist/, and signs it with the SSH key QTOP_SIGN_KEY (a private
# key, or a public one whose private half is in the agent or on a token): SHA256SUMS.sig.
set -eu
key=${QTOP_SIGN_KEY:-}
case $key in
'' | /*) ;;
*) key=$PWD/$key ;;
esac
cd "$(dirname "$0")/../dist"

rm -f SHA256SUMS SHA256SUMS.sig
# shellcheck disable=SC2035 # no name here begins with a dash
if command -v sha256sum >/dev/null 2>&1; then
	sums=$(sha256sum *)
else
	sums=$(shasum -a 256 *) # macOS
fi
echo "$sums" | tee SHA256SUMS
if [ -n "$key" ]; then
	ssh-keygen -q -Y sign -n file -f "$key" SHA256SUMS
	echo "dist/SHA256SUMS.sig"
else
	echo "SKIP signature: QTOP_SIGN_KEY names no SSH key" >&2
fi
