# Command blocks of the documents, as try.sh follows them. Sourced by it; uses its work, port, admin, tried,
# inside, server, until_true, fail and say.
# shellcheck shell=bash disable=SC2154

trial_mark="not run: make package-try runs it on a bare Debian"

# blocks DOCUMENT FOLDER: writes each fenced block as FOLDER/NN.LANGUAGE, and the comment in the line before it as
# FOLDER/NN.mark.
blocks() {
	mkdir "$2"
	awk -v folder="$2" '
		{ line = $0; sub(/^ +/, "", line) }
		!inside && line ~ /^```[a-z]/ {
			inside = 1
			indent = length($0) - length(line)
			file = sprintf("%s/%02d.%s", folder, ++n, substr(line, 4))
			printf "" >file
			print mark >sprintf("%s/%02d.mark", folder, n)
			next
		}
		inside && line == "```" { inside = 0; close(file); mark = ""; next }
		inside { print substr($0, indent + 1) >file; next }
		{ mark = line ~ /^<!-- .* -->$/ ? substr(line, 6, length(line) - 9) : "" }' "$1"
}
# marked DOCUMENT MARK N: the text of the Nth block with this mark.
marked() {
	local folder
	folder=$work/blocks-$(basename "$1" .md)
	[[ -d $folder ]] || blocks "$1" "$folder"
	local mark
	mark=$(grep -lx "$2" "$folder"/*.mark | sed -n "$3p")
	[[ -n $mark ]] || fail "$1 has no block $3 that is marked '$2'"
	cat "$(find "$folder" -name "$(basename "$mark" .mark).*" ! -name '*.mark')"
}
# fill: puts what the trial has in place of what the documents name: the server, the password, the file of the package;
# without sudo, because the trial is root.
fill() {
	sed "s|db\.example|127.0.0.1:$port|g; s|localhost|127.0.0.1:$port|g; s|127\.0\.0\.1:9187|${metrics:-127.0.0.1:9187}|g
		s|PASSWORD '…'|PASSWORD 'owner-secret'|; s|\./qtop_[0-9.]*_amd64\.deb|/packages/next.deb|; s|^sudo ||
		s|^\\$ sudo -u qtop |$ setpriv --reuid=qtop --regid=qtop --init-groups |; s|^\\$ sudo |$ |"
}
# commands N: the Nth block of install.md that the trial runs, a command per line.
commands() { marked "$work/next/docs/install.md" "$trial_mark" "$1" | fill | sed -n 's/^\$ //p'; }
# typed COMMAND: runs a command of install.md inside, as root, with the owner's password.
typed() { inside env PGPASSWORD=owner-secret sh -c "$1" </dev/null; }

# backup DSN: runs the pg_dump of upgrading.md beside the server, since a bare Debian has none, and reads the dump.
backup() {
	local command have major=${tried[-1]}
	command=$(marked "$work/next/docs/upgrading.md" "needs pg_dump" 1)
	[[ $command == "pg_dump --format=custom --file=before-upgrade.dump "* ]] || fail "upgrading.md makes another backup: $command"
	have=$(pg_dump --version 2>/dev/null | grep -o '[0-9]*' | head -n 1)
	if ((${have:-0} < major)); then
		echo "SKIP the backup of upgrading.md: pg_dump ${have:-} here is older than the server, PostgreSQL $major" >&2
		return
	fi
	(cd "$work" && PGPASSWORD=owner-secret QTOP_DSN=$1 sh -c "$command" && pg_restore --list before-upgrade.dump >before-upgrade.list) || fail "upgrading.md: $command"
	grep -q 'TABLE DATA public queue_host' "$work/before-upgrade.list" || fail "the backup of upgrading.md lacks rows"
	say "backup: $(grep -c 'TABLE DATA' "$work/before-upgrade.list") tables"
}

# check_signature FOLDER: verifies dist/ in FOLDER by the lines of install.md, as somebody who downloads it; then with
# one byte changed in the package, and in the list.
check_signature() {
	local block verify check
	block=$(marked "$work/next/docs/install.md" "not run: make package-try runs it with the files that it builds" 1 | sed -n 's/^\$ //p' |
		sed "s|https://github.com/[^ ]*|file://$1|; s|qtop_[0-9.]*_amd64\.deb|$(basename "$1"/*.deb)|")
	verify=$(grep '^ssh-keygen ' <<<"$block")
	check=$(grep '^sha256sum ' <<<"$block")
	mkdir "$work/download"
	cp "$work/release.pub" "$work/download/"
	(
		cd "$work/download"
		bash -e -c "$block" >"$work/last" 2>&1 || { cat "$work/last" >&2; fail "the lines of install.md that check a download"; }
		grep -q '^Good "file" signature for qtop' "$work/last" || fail "no good signature"
		grep -q '\.deb: OK$' "$work/last" || fail "no checksum of the package"
		cp ./*.deb kept
		printf 'X' | dd of="$(echo ./*.deb)" bs=1 seek=1000 conv=notrunc status=none
		! bash -c "$check" >"$work/last" 2>&1 || fail "a package with another byte passes"
		mv kept ./*.deb
		sed -i '1s/^./z/' SHA256SUMS
		! bash -c "$verify" >"$work/last" 2>&1 || fail "a list with another byte passes"
	) || exit 1
	say "download: signature and checksum are good by the lines of install.md; a changed package and a changed list are refused"
}

# check_links FOLDER: each link of a packaged document is an address, or leads to a file of the package.
check_links() {
	local document link
	for document in "$1"/*.md "$1"/docs/*.md; do
		while IFS= read -r link; do
			[[ $link =~ ^https?:// || -e ${document%/*}/$link ]] || fail "${document#"$1"/} of the package has a link to $link, which is not in it"
		done < <(grep -o '](\([^)#]*\)[)#]' "$document" | sed 's/^](//; s/[)#]$//' | grep . | sort -u)
	done
}

# other_cluster MAJOR: takes the database of the quick start, of which the server is still there, to another cluster
# by the lines of upgrading.md.
other_cluster() {
	local from=$port first='' flag roles lines have line start=$SECONDS
	have=$(pg_dump --version 2>/dev/null | grep -o '[0-9]*' | head -n 1)
	if ((${have:-0} < $1)); then
		echo "SKIP the restore into another cluster: pg_dump ${have:-} here is older than the server, PostgreSQL $1" >&2
		return
	fi
	roles=$(grep '^pg_dumpall ' "$work/next/docs/upgrading.md")
	lines=$(marked "$work/next/docs/upgrading.md" "not run: make package-try runs it on a second server" 1 | sed -n 's/^\$ //p')
	server "$1" -other
	psql -qX "$admin" -c "ALTER ROLE postgres PASSWORD 'choose one'"
	mkdir "$work/other"
	ln -s "$work/next/dist/qtop-linux-$arch" "$work/other/qtop"
	# Step 1, in its prose: what is under way ends before the move.
	for flag in webhook.worker.enabled queue.job_substrate.enabled; do
		first+="qtop flag set $flag false --reason move --yes"$'\n'
	done
	grep -qF "${first%%$'\n'*}" "$work/next/docs/upgrading.md" || fail "upgrading.md stops the old database in another way"
	printf '%s\n' "$first" "$roles" "$lines" | sed "s|-h other\.example|-h 127.0.0.1 -p $port|; s|@other\.example/|@127.0.0.1:$port/|; s|PASSWORD '…'|PASSWORD 'choose one'|" >"$work/other/lines"
	# As a person's ~/.pgpass has it: for this database alone.
	printf '%s:choose one\n' "127.0.0.1:$from:shop:shop" "127.0.0.1:$port:shop:shop" "127.0.0.1:$port:postgres:postgres" >"$work/other/.pgpass"
	chmod 600 "$work/other/.pgpass"
	(cd "$work/other" && env -i HOME="$PWD" PATH="$PWD:$PATH" QTOP_DSN="postgres://shop@127.0.0.1:$from/shop" bash -e ./lines) >"$work/last" 2>&1 </dev/null ||
		{ tail -n 20 "$work/last" >&2; fail "upgrading.md: the restore into another cluster"; }
	line=$(PGPASSWORD='choose one' psql -qXAt "host=127.0.0.1 port=$port user=shop dbname=shop" -c 'SELECT count(*) FROM public.job_history')
	((line > 1)) || fail "the other cluster has $line finished jobs"
	say "upgrading.md: restored into another cluster and adopted, with ~/.pgpass of one database, in $((SECONDS - start)) s"
}

# reader TEXT: runs it inside as an ordinary user, with the variables that the quick start exported.
reader() {
	inside setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp/reader PGPASSWORD='choose one' \
		bash -e -c 'cd; [[ ! -e .exports ]] || . ./.exports; eval "$1"' reader "$1" </dev/null
}
# shows SHOWN OUTPUT: whether the output has the shown lines, in this order; … is anything.
shows() {
	local want re at=-1
	local -a out
	mapfile -t out <"$2"
	while IFS= read -r want; do
		[[ -n ${want//[ …]/} ]] || continue
		re=$(sed -E 's/[][\.*^$+?(){}|]/\\&/g; s/^ +| +$//g; s/ +/ +/g; s/…/.*/g' <<<"$want")
		until ((++at < ${#out[@]})) && [[ ${out[at]} =~ $re ]]; do
			((at < ${#out[@]})) || {
				echo "no line as: $want"
				return 1
			}
		done
	done <"$1"
}
as_shown() {
	reader "$1" >"$work/output" 2>&1 || { cat "$work/output"; return 1; }
	shows "$work/shown" "$work/output" || { cat "$work/output"; return 1; }
}
# console FILE SECONDS: runs each "$ command" until its output is as shown below it.
console() {
	local command='' line
	while IFS= read -r line <&3; do
		if [[ $line == '$ '* ]]; then
			[[ -z $command ]] || until_true "$2" "quickstart.md: $command" as_shown "$command"
			command=${line#'$ '}
			: >"$work/shown"
		else
			printf '%s\n' "$line" >>"$work/shown"
		fi
	done 3< <(cat "$1" && echo "$ end")
}

# quick_start MAJOR: follows quickstart.md with the installed program, on a new server: every block but the one that
# opens the console.
quick_start() {
	local start=$SECONDS mark what block text worker='' ran=0 limit metrics
	server "$1" -quickstart
	metrics=127.0.0.1:$((20000 + RANDOM % 20000))
	inside install -d -m 0700 -o 65534 -g 65534 /tmp/reader
	blocks "$work/next/docs/quickstart.md" "$work/quickstart"
	for mark in "$work"/quickstart/*.mark; do
		what=$(cat "$mark")
		block=$(find "$work/quickstart" -name "$(basename "$mark" .mark).*" ! -name '*.mark')
		fill <"$block" >"$work/block"
		text=$(cat "$work/block")
		limit=0
		[[ $what != "within "*" s" ]] || limit=$(tr -dc 0-9 <<<"$what")
		case "${block##*.} $what" in
		"sh not run: it opens the console") continue ;;
		"sh not run: it names your server") inside sh -c "cat >/tmp/reader/.exports" <<<"$text" ;;
		"sql $trial_mark") psql -qX "$admin" -v ON_ERROR_STOP=1 -f "$work/block" >"$work/last" 2>&1 ;;
		"sql ") PGPASSWORD='choose one' psql -qX "host=127.0.0.1 port=$port user=shop dbname=shop" -v ON_ERROR_STOP=1 -f "$work/block" >"$work/last" 2>&1 ;;
		"sh stays running")
			reader "echo \$\$ >.worker; exec $text" >"$work/reader.log" 2>&1 &
			worker=$!
			;;
		"sh ") reader "$text" >"$work/last" 2>&1 ;;
		"console "*) console "$work/block" "$limit" ;;
		*) fail "quickstart.md: the trial does not know a block ${block##*.} marked '$what'" ;;
		esac || { cat "$work/last" >&2; fail "quickstart.md: $text"; }
		ran=$((ran + 1))
	done
	[[ -n $worker && $ran -gt 10 ]] || fail "only $ran blocks of quickstart.md were found"
	# shellcheck disable=SC2016 # expanded inside
	inside sh -c 'kill -TERM $(cat /tmp/reader/.worker)'
	wait "$worker" || { tail -n 5 "$work/reader.log" >&2; fail "the worker host of the quick start did not end cleanly"; }
	inside rm -rf /tmp/reader
	say "quickstart.md: $ran blocks run with the installed program, as an ordinary user, in $((SECONDS - start)) s"
}
