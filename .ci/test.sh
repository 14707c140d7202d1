#!/bin/sh
# Runs every test of the module, prints one line per package, every failure whole
# and every skip with its reason, and ends with 'N passed, N failed, N skipped'.
#
# QTOP_TEST_PG (comma separated majors) runs the suite once on each of them,
# QTOP_TEST_FULL=1 adds the tests over 20 s, and after them the hostile pass: the
# tests under 20 s that use a database run again with QTOP_TEST_HOSTILE=1. Then each
# database has doubles of whatever name our SQL uses, in schema public and in one that
# every login's path names first (pgclient/pgtest/hostile.go), and a package fails that
# calls one of them. Arguments replace the packages (default ./...).
set -eu
cd "$(dirname "$0")/.."
. .ci/alone.sh

# The packages whose tests take longest run first, so that at the end no long one runs alone.
[ $# -gt 0 ] || set -- ./pgclient/schema ./workerhost ./cmd/qtop ./tui ./pgclient ./views ./...

# The race detector needs cgo and a C library that fits its runtime; the only reliable check is to build
# with it. The tests below use the standard library that is built here.
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
trap 'exit 1' HUP INT TERM
printf 'package main\n\nfunc main() {}\n' >"$probe/main.go"
race=
if CGO_ENABLED=1 go run -race "$probe/main.go" >"$probe/out" 2>&1; then
	race=-race
	# Each test program sleeps for a second before it exits, so that the last races are
	# reported; a tenth is enough for that.
	export GORACE="atexit_sleep_ms=100 ${GORACE:-}"
else
	echo "SKIP RACE DETECTOR: no C compiler that it can use here ($(tail -n 1 "$probe/out"))" >&2
fi

# Two packages at a time: each starts a PostgreSQL server, and with more of them, tests that wait for a
# condition would get too little processor time.
timeout=25m
[ -z "${QTOP_TEST_FULL:-}" ] || timeout=2h

# Packages that only draw: nothing in them has a goroutine, so the race detector finds nothing and
# takes ten times as long. Test files elsewhere of which the same holds, or of which a shorter test
# shows the detector the same goroutines, have the line "//go:build !race"; they run here too, those
# of each package by the names of their tests.
draws='/views(/|$)'

# go test runs no vet of its own below: make lint runs go vet, with more checks.

# drawn PACKAGE…: the tests that need no race detector.
drawn() {
	go list -f '{{.ImportPath}} {{.Dir}}' "$@" >"$probe/packages" || return
	pure=$(awk '{ print $1 }' "$probe/packages" | grep -E "$draws" || true)
	code=0
	# shellcheck disable=SC2086 # one word each
	[ -z "$pure" ] || CGO_ENABLED=0 go test -json -vet=off -p 2 -timeout "$timeout" -trimpath $pure || code=$?
	while read -r package dir; do
		files=$(cd "$dir" && grep -lx '//go:build !race' ./*_test.go 2>/dev/null) || continue
		# shellcheck disable=SC2086 # one word each: the names of our files have no space, the folder may have one
		names=$(cd "$dir" && sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $files | paste -s -d '|' -)
		CGO_ENABLED=0 go test -json -vet=off -timeout "$timeout" -trimpath -run "^($names)\$" "$package" </dev/null || code=$?
	done <"$probe/packages"
	return "$code"
}

# raced PACKAGE…: the packages that have something for the race detector to watch.
raced() {
	# shellcheck disable=SC2046 # one word each
	set -- $(go list "$@" | grep -Ev "$draws")
	[ $# -eq 0 ] || CGO_ENABLED=1 go test -json -vet=off -p 2 -timeout "$timeout" -race "$@"
}

# run LABEL: one pass over the packages. The exit code is go's own, kept in a
# file because sh has no pipefail; awk only prints and counts.
run() {
	echo "== go test${race:+ $race}${QTOP_TEST_FULL:+ (full)}: $1"
	shift
	{
		status=0
		if [ -n "$race" ]; then
			drawn "$@" 2>&1 || status=$?
			raced "$@" 2>&1 || status=$?
		else
			CGO_ENABLED=0 go test -json -vet=off -p 2 -timeout "$timeout" "$@" 2>&1 || status=$?
		fi
		echo "$status" >"$probe/status"
	} | awk -f .ci/testlog.awk
	return "$(cat "$probe/status")"
}

# hostile LABEL: the hostile pass, in full runs. It runs without the race detector,
# with which the same tests have run before.
hostile() (
	[ -n "${QTOP_TEST_FULL:-}" ] || exit 0
	if [ -n "${QTOP_TEST_DSN:-}" ]; then
		echo "SKIP HOSTILE WORLD: the log of a server that is given cannot be read" >&2
		exit 0
	fi
	label=$1
	shift
	unset QTOP_TEST_FULL
	QTOP_TEST_HOSTILE=1
	export QTOP_TEST_HOSTILE
	race=
	packages=$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}} ' "$@" |
		awk '/pgclient\/pgtest[] ]/ { print $1 }')
	[ -n "$packages" ] || exit 0
	# shellcheck disable=SC2086 # one word each
	if run "$label, the hostile world" $packages; then
		echo "hostile world: 0 foreign objects called by $(echo "$packages" | wc -l | tr -d ' ') packages"
	else
		echo "hostile world: FAILED: what was called stands above" >&2
		exit 1
	fi
)

# both LABEL: every pass that was requested, even if an earlier one failed.
both() {
	code=0
	run "$@" || code=1
	hostile "$@" || code=1
	return "$code"
}

if [ -z "${QTOP_TEST_PG:-}" ]; then
	both "${QTOP_PG_BIN:-the newest PostgreSQL here}" "$@"
	exit
fi

# The tests find the programs of that major version as the demo does: installed, cached, or fetched by npm.
# If they cannot be found, the run fails, because that version was requested.
failed=
for major in $(echo "$QTOP_TEST_PG" | tr ',' ' '); do
	QTOP_TEST_PG=$major
	export QTOP_TEST_PG
	both "PostgreSQL $major" "$@" || failed="$failed $major"
done
[ -z "$failed" ] || {
	echo "FAILED on PostgreSQL:$failed" >&2
	exit 1
}
