#!/bin/sh
# Prints CONTRIBUTING.md with its table of dependencies as go.mod has them.
set -eu
cd "$(dirname "$0")/.."

table=$(awk -f .ci/dependencies.awk go.mod)
sed '/^<!-- dependencies:/q' CONTRIBUTING.md
printf '\n%s\n\n' "$table"
sed -n '/^<!-- end of dependencies/,$p' CONTRIBUTING.md
