#!/bin/sh
# Writes the generated documents. `make lint` fails while docs/keys.md, docs/configuration.md or the table of
# CONTRIBUTING.md is stale, `make test` while docs/schema.md is.
set -eu
cd "$(dirname "$0")/.."

mkdir -p docs
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
# Through a temporary file: a failed run must not leave an empty document.
go run ./cmd/qtop keys >"$tmp"
cat "$tmp" >docs/keys.md
echo "docs/keys.md"
go test ./pgclient/schema -run TestSchemaDocument -count=1 -update >/dev/null
echo "docs/schema.md"
go test ./pgclient/schema -run 'TestObjectsOfTheRelease|TestTablesOfTheRelease|TestRightsMatrix' -count=1 -update >/dev/null
echo "pgclient/schema/objects.txt, pgclient/schema/tables.txt, pgclient/schema/testdata/rights.txt"
# After docs/schema.md, from which it takes the flags.
go run ./cmd/qtop keys --settings docs/schema.md >"$tmp"
cat "$tmp" >docs/configuration.md
echo "docs/configuration.md"
.ci/dependencies.sh >"$tmp"
cat "$tmp" >CONTRIBUTING.md
echo "CONTRIBUTING.md"
