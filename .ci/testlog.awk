# Reads `go test -json` and prints what a person wants to see: one line per
# package, the whole output of what failed, skips with their reason, the tests
# that took longest, a count.
# Lines that are not JSON (build errors of an old toolchain) pass through.

# Returns the value of a string field of a JSON line. It does not handle escapes, so it is for names only.
function field(name,    at, rest) {
	at = index($0, "\"" name "\":\"")
	if (!at) return ""
	rest = substr($0, at + length(name) + 4)
	return substr(rest, 1, index(rest, "\"") - 1)
}

# Returns the field Output, the last of its event and the only one with escapes.
function output(    at, s) {
	at = index($0, "\"Output\":\"")
	if (!at) return ""
	s = substr($0, at + 10)
	sub(/"[^"]*$/, "", s)
	gsub(/\\\\/, "\001", s)
	gsub(/\\n/, "\n", s)
	gsub(/\\t/, "\t", s)
	gsub(/\\r/, "", s)
	gsub(/\\"/, "\"", s)
	gsub(/\\u003c/, "<", s)
	gsub(/\\u003e/, ">", s)
	gsub(/\\u0026/, "\\&", s)
	gsub(/\\u001b/, "", s) # a test's colours are not this terminal's business
	gsub("\001", "\\", s)
	return s
}

!/^\{"/ { print; next }

{
	action = field("Action")
	package = field("Package")
	test = field("Test")
	key = package SUBSEP test
}

action == "build-output" { printf "%s", output(); next }
action == "output" {
	line = output()
	text[key] = text[key] line
	# The reason is on the line after the position of t.Skip.
	if (test != "" && line !~ /^ *(===|---) /) reason[key] = line
	if (test == "" && line ~ /^(ok|FAIL|\?)[ \t]/) verdict[package] = line
	next
}

test != "" && action == "pass" { passed++ }
test != "" && action == "skip" {
	skipped++
	why = reason[key]
	gsub(/^[ \t]+|[ \t\n]+$/, "", why)
	skips[skipped] = "  SKIP " package " " test ": " why
}
test != "" && action == "fail" {
	failed++
	failed_in[package]++
	printf "%s", text[key]
}
test != "" && (action == "pass" || action == "skip" || action == "fail") {
	delete text[key]
	delete reason[key]
}

# A package can fail without a test: it does not build, or TestMain fails.
test == "" && action == "fail" {
	# After a panic or a timeout some tests have no result; their output has the reason.
	for (k in text) {
		split(k, part, SUBSEP)
		if (part[1] == package && part[2] != "") {
			printf "%s", text[k]
			failed++
			failed_in[package]++
			delete text[k]
		}
	}
	printf "%s", text[key]
	if (text[key] !~ /FAIL/) print "FAIL\t" package
	# It counts as one failure although no test failed: otherwise the last line would report 0 failures.
	if (!failed_in[package]) failed++
	delete text[key]
}
test == "" && (action == "pass" || action == "skip") {
	if (verdict[package] != "") printf "%s", verdict[package]
	delete text[key]
}

# The 15 tests that took longest, the longest first.
test != "" && test !~ /\// && action == "pass" && match($0, /"Elapsed":[0-9.]+/) {
	took = substr($0, RSTART + 10, RLENGTH - 10) + 0
	for (i = 15; i > 0 && took > slow[i]; i--) {
		slow[i + 1] = slow[i]
		slowest[i + 1] = slowest[i]
	}
	slow[i + 1] = took
	slowest[i + 1] = package " " test
}

END {
	for (i = 1; i <= 15 && slow[i] > 1; i++) printf "  %6.1f s  %s\n", slow[i], slowest[i]
	for (i = 1; i <= skipped; i++) print skips[i]
	printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
}
