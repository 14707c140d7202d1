#!/bin/sh
# Writes the generated documents. `make lint` fails while docs/keys.md, docs/configuration.md, docs/rights.md or the table
# of CONTRIBUTING.md is stale, `make test` while docs/schema.md is.
set -eu
cd "$(dirname "$0")/.."
. .ci/alone.sh

mkdir -p docs
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
# Written to a temporary file first: a failed run must not leave an empty document.
keys >"$tmp"
cat "$tmp" >docs/keys.md
echo "docs/keys.md"
go test ./pgclient/schema -run TestSchemaDocument -count=1 -update >/dev/null
echo "docs/schema.md"
go test ./pgclient/schema -run 'TestObjectsOfTheRelease|TestTablesOfTheRelease|TestRowsOfTheRelease|TestRightsMatrix' -count=1 -update >/dev/null
echo "pgclient/schema/objects.txt, tables.txt, rows.txt, testdata/rights.txt"
# This must follow the step that writes docs/schema.md, which has the table of flags.
keys --settings docs/schema.md >"$tmp"
cat "$tmp" >docs/configuration.md
echo "docs/configuration.md"
keys --rights docs/schema.md >"$tmp"
cat "$tmp" >docs/rights.md
echo "docs/rights.md"
.ci/dependencies.sh >"$tmp"
cat "$tmp" >CONTRIBUTING.md
echo "CONTRIBUTING.md"
