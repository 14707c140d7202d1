#!/bin/sh
# Runs every static check and prints one line with its result. If one fails, the others run nevertheless,
# so that one run shows everything that must be fixed.
set -eu
cd "$(dirname "$0")/.."
. .ci/alone.sh

# The version is fixed: a newer linter could fail a build in which nothing changed.
# go builds it from source at the first use (two to three minutes); later it is in Go's cache.
golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

failed=
check() {
	name=$1
	shift
	if "$@"; then
		echo "ok    $name"
	else
		echo "FAIL  $name"
		failed="$failed, $name"
	fi
}

# The files to check: those in git and new ones, except what .gitignore names; without git, all files.
files() {
	git ls-files -co --exclude-standard -- "$1" 2>/dev/null | while read -r f; do
		[ ! -f "$f" ] || echo "$f" # deleted but not yet committed
	done | grep . || find . -name "$1" -type f | sed 's|^\./||'
}

gofmt_clean() {
	bad=$(files '*.go' | xargs gofmt -l -s)
	[ -z "$bad" ] || {
		echo "not formatted; run gofmt -s -w on:"
		echo "$bad"
		return 1
	}
}

# A file has one subject. A file of more than 500 lines must begin with the reason why it is not divided:
# '// Over 500 lines: <reason>'. Tests, generated code and SQL need no reason.
lengths() {
	bad=$(files '*.go' | grep -v '_test\.go$' | while read -r f; do
		lines=$(wc -l <"$f")
		[ "$lines" -gt 500 ] || continue
		head -n 1 "$f" | grep -q -e '^// Over 500 lines: .' -e '^// Code generated ' || echo "$f: $((lines)) lines"
	done)
	[ -z "$bad" ] || {
		echo "over 500 lines and the first line does not say why ('// Over 500 lines: …'):"
		echo "$bad"
		return 1
	}
}

# dash, the sh of Debian, runs no EXIT trap when a signal ends it: what the trap would remove would stay after ctrl+c.
traps() {
	bad=$(files '*.sh' | while read -r f; do
		head -n 1 "$f" | grep -q '^#!/bin/sh' && grep -q 'trap .* EXIT' "$f" || continue
		grep -q "trap 'exit 1' HUP INT TERM" "$f" || echo "$f"
	done)
	[ -z "$bad" ] || {
		echo "an EXIT trap without the line: trap 'exit 1' HUP INT TERM"
		echo "$bad"
		return 1
	}
}

generated() {
	keys --check docs/keys.md
}

settings() {
	keys --settings docs/schema.md --check docs/configuration.md
}

rights() {
	keys --rights docs/schema.md --check docs/rights.md
}

dependencies() {
	.ci/dependencies.sh | diff -u CONTRIBUTING.md - || {
		echo "CONTRIBUTING.md is stale: run make docs"
		return 1
	}
}

check "gofmt" gofmt_clean
check "file lengths" lengths
check "traps of scripts" traps
check "go mod tidy" go mod tidy -diff
check "the dependencies of CONTRIBUTING.md are current" dependencies
check "go vet" go vet ./...
check "go vet of the peer benchmarks" go -C workerhost/peerbench vet ./...
check "tests of the peer benchmarks without a server" go -C workerhost/peerbench test -short ./...
check "SQL of the schema" go run ./pgclient/schema/lint
check "golangci-lint" go run "$golangci" run --timeout 10m ./...
if [ -d cmd/qtop ]; then
	check "docs/keys.md is current" generated
	check "docs/configuration.md is current" settings
	check "docs/rights.md is current" rights
else
	echo "SKIP  docs/keys.md: there is no cmd/qtop to generate it"
fi
check "phrases and names (cmd/words)" go run ./cmd/words
check "govulncheck" .ci/vuln.sh

[ -z "$failed" ] || {
	echo "lint: FAILED: ${failed#, }"
	exit 1
}
echo "lint: ok"
