# Writes the table of CONTRIBUTING.md from go.mod: each module that is required directly, with the reason in the
# comment behind it. A module without a reason ends it with an error.
BEGIN { print "| module | what it saves |"; print "|---|---|" }
/^require \(/ { in_require = 1; next }
/^\)/ { in_require = 0 }
!in_require || / \/\/ indirect/ { next }
!/ \/\/ ./ { print "go.mod: " $1 " has no reason: write it in a comment behind the version" >"/dev/stderr"; failed = 1; next }
{ module = $1; sub(/^.* \/\/ /, ""); print "| `" module "` | " $0 " |" }
END { exit failed }
