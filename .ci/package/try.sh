#!/usr/bin/env bash
# Tries the Debian package in its real environment: a minimal Debian with systemd, in a container. Builds it with
# a signature and checks that; installs the package of release 0.2.0, sets a database up as an owner who is no
# superuser (PostgreSQL 17 and 15, or the majors of QTOP_TEST_PG), starts the unit, delivers the first webhook,
# requeues the first dead letter, upgrades under load with a ledger of what was sent and done, lets the unit crash
# and hang, starts one without its database, follows the quick start, takes its database to another cluster, purges, and
# does the same with the RPM package as far as it goes without its own system. The commands are those of docs/install.md that are marked as run
# here, and of docs/quickstart.md. Where no container boots, or with QTOP_TRIAL=chroot, the same is tried in a chroot, in which
# .ci/package/units replaces systemd: it starts the installed unit, waits for READY=1, expects its signs
# of life and ends a host that hangs; the sandbox of the unit is not tried there. Needs root, debootstrap and
# psql; names what it skips. Three to eight minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
	echo "SKIP package trial: $1" >&2
	exit 0
}
[[ $(id -u) -eq 0 ]] || skip "it needs root, for debootstrap and a container or chroot"
missing=
for program in debootstrap:debootstrap systemd-nspawn:systemd-container psql:postgresql-client rpm:rpm; do
	command -v "${program%:*}" >/dev/null || missing+=" ${program#*:}"
done
if [[ -n $missing ]] && command -v apt-get >/dev/null; then
	# shellcheck disable=SC2086 # one word each
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 || true
fi
for program in debootstrap psql dpkg-deb curl ssh-keygen; do
	command -v "$program" >/dev/null || skip "$program is not installed and could not be (apt-get install$missing)"
done

work=$(mktemp -d /var/tmp/qtop-trial-XXXXXX)
chmod 0755 "$work"
began=$SECONDS
children=()
stop_server=()
# shellcheck disable=SC2329 # trap
cleanup() {
	local code=$? pid
	[[ $code -eq 0 ]] || show_failure
	for pid in "${children[@]}"; do kill "$pid" 2>/dev/null || true; done
	for data in "${stop_server[@]}"; do as_postgres "${data%%:*}/pg_ctl" -D "${data#*:}" -m immediate stop >/dev/null 2>&1 || true; done
	wait
	[[ ! -e $work/root/proc/self ]] || umount -l "$work/root/proc"
	rm -rf --one-file-system "$work"
	exit "$code"
}
show_failure() {
	echo "FAILED after $((SECONDS - began)) s; the journal of the units ends with:" >&2
	[[ -z ${enter[*]:-} ]] || inside journalctl --no-pager -q -n 500 -u 'qtop-worker@*' | grep -v '"msg":"attempt"' | tail -n 20 >&2 || true
}
trap cleanup EXIT

say() { echo "[$((SECONDS - began)) s] $*"; }
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
# until SECONDS WHAT CMD…: waits for a condition.
until_true() {
	local limit=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >"$work/last" 2>&1; do
		((SECONDS < limit)) || {
			tail -n 5 "$work/last" >&2
			fail "$what did not come true"
		}
		sleep 0.1
	done
}

# shellcheck source=SCRIPTDIR/machine.sh
. .ci/package/machine.sh
# shellcheck source=SCRIPTDIR/documents.sh
. .ci/package/documents.sh

# ---- packages -----------------------------------------------------------------
arch=$(go env GOHOSTARCH)
# tree NAME: a copy of the working tree without git, to build in.
tree() {
	mkdir "$work/$1"
	git ls-files -co --exclude-standard -z | xargs -0 tar -cf - --ignore-failed-read 2>/dev/null | tar -C "$work/$1" -xf -
}
# build NAME: its Debian package.
build() {
	(cd "$work/$1" && SOURCE_DATE_EPOCH=$(git -C "$OLDPWD" log -1 --format=%ct) QTOP_DIST=linux/$arch .ci/package.sh) >"$work/$1.log" 2>&1 || {
		cat "$work/$1.log" >&2
		fail "the package of the tree '$1' is not built"
	}
	cp "$work/$1"/dist/*.deb "$work/$1.deb"
	cp "$work/$1"/dist/*.rpm "$work/$1.rpm"
}
tree next
release=$(sed -n 's/^const release = "\(.*\)"$/\1/p' "$work/next/cmd/qtop/version.go")
# Release 0.2.0 as its source was when it could first be packaged: code 1 and 44 migrations.
before=7294d039170604a12bc1caf8f1d8c99d05e749c4
mkdir "$work/before"
if git archive "$before" 2>/dev/null | tar -C "$work/before" -xf - 2>/dev/null; then
	what="release 0.2.0, commit ${before:0:8}, with a lower version"
	code="code 1 is installed, this qtop needs code"
else
	echo "SKIP the upgrade from release 0.2.0: the history does not reach commit $before; the package of before is this source" >&2
	rmdir "$work/before"
	tree before
	what="this source with a lower version"
	code=
fi
sed -i 's/^const release = .*/const release = "v0.1.99"/' "$work/before/cmd/qtop/version.go"
ssh-keygen -q -t ed25519 -N '' -C qtop-trial -f "$work/release"
QTOP_SIGN_KEY=$work/release build next
build before
say "built $(dpkg-deb -W "$work/before.deb" | tr '\t' ' ') ($what) and $(dpkg-deb -W "$work/next.deb" | tr '\t' ' ')"
check_signature "$work/next/dist"
dpkg-deb -x "$work/next.deb" "$work/unpacked"
check_links "$work/unpacked/usr/share/doc/qtop"
go build -o "$work/receiver" ./.ci/package/receiver
CGO_ENABLED=0 go build -o "$work/units" ./.ci/package/units

# ---- a bare Debian ------------------------------------------------------------
cache=/var/cache/qtop/trial-bookworm-$arch.tar
if [[ ! -s $cache ]]; then
	mkdir -p "$(dirname "$cache")"
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$work/base" >"$work/debootstrap.log" 2>&1 || {
		tail -n 3 "$work/debootstrap.log" >&2
		skip "debootstrap cannot get Debian bookworm here"
	}
	rm -f "$work/base/etc/machine-id"
	tar -C "$work/base" -cf "$cache.$$" . && mv "$cache.$$" "$cache"
	rm -rf "$work/base"
fi
root=$work/root
mkdir "$root"
tar -C "$root" -xf "$cache"
# apt takes nothing from the network, and dpkg keeps the path, in which the stand-in for systemctl is first.
echo 'APT::Install-Recommends "false"; DPkg::Path "";' >"$root/etc/apt/apt.conf.d/trial"
path=/usr/sbin:/usr/bin:/sbin:/bin
offline=--offline=false
enter=()
how="in a container"
container || {
	standin
	how="in a chroot"
}
inside() { "${enter[@]}" env -i PATH="$path" DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
# shellcheck disable=SC2016 # expanded inside
say "$how: $(inside sh -c '. /etc/os-release; echo "$PRETTY_NAME"') with $(inside systemctl --version | head -n 1)"
[[ $how != "in a chroot" ]] || say "no container ($(tail -n 1 "$work/console")): the sandbox of the unit and a boot are not tried"

# files: lists all files with type, owner and mode, and the users, without files that other programs write by themselves.
files() {
	inside sh -c 'find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /packages -o -path /tmp -o -path /var/log \
		-o -path "/var/tmp/*" -o -path "/var/lib/systemd/*" -o -path "/var/lib/private/*" -o -path "/var/lib/dpkg/*-old" \
		-o -path /var/cache/apt -o -path /var/lib/apt -o -path "/etc/*-" \) -prune -o -printf "%p %y %u:%g %m\n" | sort
		cat /etc/passwd /etc/group /etc/shadow /etc/gshadow | sort'
}
files >"$work/files.before"

# ---- install: starts nothing ----------------------------------------------------
inside dpkg -i /packages/before.deb >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -i"; }
[[ $(inside qtop --version) == "qtop v0.1.99 "* ]] || fail "qtop --version: $(inside qtop --version)"
[[ -z $(inside systemctl list-units --plain --no-legend 'qtop-worker@*') ]] || fail "the installation started a unit"
[[ -z $(inside sh -c 'ls /etc/systemd/system/*.wants/ | grep qtop') ]] || fail "the installation enabled a unit"
[[ $(inside stat -c '%U:%G %a' /etc/qtop /etc/qtop/config.yaml | tr '\n' ' ') == "root:qtop 750 root:qtop 640 " ]] || fail "rights of /etc/qtop"
inside env XDG_CONFIG_HOME=/etc qtop config check >/dev/null || fail "the sample configuration is not valid"
inside systemd-analyze verify --man=no qtop-worker@main.service >"$work/verify" 2>&1 || true
[[ ! -s $work/verify ]] || { cat "$work/verify"; fail "systemd-analyze verify has something to say"; }
say "installed: nothing started or enabled; systemd-analyze verify is silent; $(inside systemd-analyze security --no-pager $offline qtop-worker@main.service 2>&1 | grep -o 'Overall exposure level.*')"

# ---- databases ------------------------------------------------------------------
as_postgres() { (cd / && setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ "$@"); }
# bin MAJOR: the folder of its server programs.
bin() {
	local dir
	for dir in /usr/lib/postgresql/"$1"/bin "${XDG_CACHE_HOME:-/nonexistent}"/qtop/postgres/*-"$1".*/bin ~/.cache/qtop/postgres/*-"$1".*/bin /var/cache/qtop/postgres/*-"$1".*/bin; do
		[[ -x $dir/initdb ]] && as_postgres test -x "$dir/initdb" && echo "$dir" && return
	done
	return 1
}
# server MAJOR SUFFIX: starts one with passwords over TCP; sets port, admin and super.
server() {
	local data=$work/pg$1$2 dir
	dir=$(bin "$1")
	install -d -o 65534 -g 65534 -m 0700 "$data"
	as_postgres "$dir/initdb" -D "$data" -U postgres --auth-local=trust --auth-host=scram-sha-256 -E UTF8 --locale=C >/dev/null
	port=$((20000 + RANDOM % 20000))
	as_postgres "$dir/pg_ctl" -D "$data" -w -l "$data/log" -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$data -c fsync=off" start >/dev/null || {
		tail -n 3 "$data/log" >&2
		fail "PostgreSQL $1 does not start"
	}
	stop_server+=("$dir:$data")
	admin="host=$data port=$port user=postgres dbname=postgres"
	super="host=$data port=$port user=postgres dbname=app"
}
# sql LOGIN STATEMENT
sql() { PGPASSWORD=$1-secret psql -qXAt "host=127.0.0.1 port=$port user=app_$1 dbname=app" -v ON_ERROR_STOP=1 -c "$2"; }
# qtop_as LOGIN ARGUMENT…: the packaged program inside, as an operator's shell has it.
qtop_as() {
	local login=$1
	shift
	inside env PGPASSWORD="$login-secret" QTOP_DSN="postgres://app_$login@127.0.0.1:$port/app" QTOP_ACTOR=anna HOME=/root qtop "$@"
}
field() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }
count() { sort -nu "$1" 2>/dev/null | grep -c . || true; }

# receiver: starts it; sets hook and the ledger's folder.
receiver() {
	ledger=$work/ledger$1
	mkdir "$ledger"
	"$work/receiver" "$ledger" &
	children+=($!)
	until_true 5 "the receiver's address" test -s "$ledger/address"
	hook=http://$(cat "$ledger/address")/hook
}

# configure: what an administrator writes before the unit is started.
configure() {
	inside sh -c 'cat >/etc/qtop/config.yaml' <<-END
		profiles:
		  main:
		    dsn: postgres://app_host@127.0.0.1:$port/app
		    executor: mailer
		    grace: 10s
		    handlers:
		      - {kind: mail.render, command: [/usr/local/bin/render-mail], timeout: 1m}
		    delivery:
		      allow_networks: [127.0.0.0/8]
		      allow_plain_http: [127.0.0.0/8]
	END
	inside sh -c 'umask 077; echo PGPASSWORD=host-secret >/etc/qtop/main.env'
	# The handler keeps its ledger where the unit lets it write: a drop-in makes that folder.
	inside sh -c 'mkdir -p /usr/local/bin /etc/systemd/system/qtop-worker@main.service.d
		printf "[Service]\nStateDirectory=trial\nWatchdogSec=3s\n" >/etc/systemd/system/qtop-worker@main.service.d/trial.conf
		printf "#!/bin/sh\nread -r job\necho \"\$job\" >>/var/lib/trial/done\n" >/usr/local/bin/render-mail
		chmod 755 /usr/local/bin/render-mail; systemctl daemon-reload'
}

delivered() { grep -qx "$1" "$ledger/delivered"; }
is_dead() { qtop_as operator dlq -o json | grep HTTP_503 >/dev/null; }
# lost LEDGER: how many of the committed numbers are not in this ledger (a file of what was sent or done).
lost() { comm -23 <(sort -u "$ledger/committed") <(sort -u "$1") | wc -l; }
# nothing_lost: copies the handler's ledger out of the container, and compares both with what was committed.
nothing_lost() {
	inside cat /var/lib/trial/done | grep -o '"n": *[0-9]*' | grep -o '[0-9]*' >"$work/done"
	echo "lost: $(lost "$ledger/delivered") webhooks, $(lost "$work/done") jobs"
	[[ $(lost "$ledger/delivered") -eq 0 && $(lost "$work/done") -eq 0 ]]
}
pid_of_unit() { inside systemctl show -p MainPID --value qtop-worker@main; }

# roles_of_host TREE: the grant to a host in its install.md.
roles_of_host() { grep -o 'GRANT dot_executor.* TO app_host;' "$work/$1/docs/install.md"; }

# first MAJOR: from an empty database to the first requeued dead letter.
first() {
	local start=$SECONDS id line
	receiver "$1"
	marked "$work/next/docs/install.md" "$trial_mark" 1 | fill | psql -qX "$admin" -v ON_ERROR_STOP=1 >/dev/null
	qtop_as owner migrate up >"$work/migrate.log" 2>&1 || { tail -n 5 "$work/migrate.log" >&2; fail "migrate up as the owner on PostgreSQL $1"; }
	[[ $(sql owner 'SELECT rolsuper FROM pg_roles WHERE rolname = session_user') == f ]] || fail "the owner is a superuser"
	sql owner "CREATE ROLE app_host LOGIN PASSWORD 'host-secret';
		$(roles_of_host before)
		CREATE ROLE app_operator LOGIN PASSWORD 'operator-secret';
		GRANT queue_viewer, dead_letter_operator, workflow_admin, subscription_admin TO app_operator;
		CREATE ROLE app_producer LOGIN PASSWORD 'producer-secret';
		GRANT event_ingest_writer TO app_producer"
	qtop_as operator executor register mailer --domains mail --owner-role app_host --yes >/dev/null
	qtop_as operator executor subscribe mailer --kind mail.render --reason trial --yes >/dev/null
	configure
	while IFS= read -r line <&3; do
		typed "$line" >"$work/last" 2>&1 || { cat "$work/last" >&2; fail "install.md: $line"; }
	done 3< <(commands 2)
	grep -q 'every loop runs' "$work/last" || { cat "$work/last" >&2; fail "systemctl status, as install.md has it"; }
	[[ $(inside systemctl show -p StatusText --value qtop-worker@main) == "every loop runs" ]] || fail "the status of the unit"
	[[ $(inside ps -o user= -p "$(pid_of_unit)" 2>/dev/null || inside stat -c %U "/proc/$(pid_of_unit)") == qtop ]] || fail "the user of the unit"

	qtop_as operator webhook add "$hook" --types order.paid --unsigned --reason trial --yes >/dev/null
	sql producer "INSERT INTO events (event_type, payload) VALUES ('order.paid', '{\"n\": 1}')"
	until_true 60 "the first webhook" delivered 1
	local webhook=$((SECONDS - start))

	qtop_as operator flag set webhook.max_attempts 1 --reason trial --yes >/dev/null
	touch "$ledger/down"
	sql producer "INSERT INTO events (event_type, payload) VALUES ('order.paid', '{\"n\": 2}')"
	until_true 60 "the first dead letter" is_dead
	rm "$ledger/down"
	id=$(qtop_as operator dlq -o json | field id)
	qtop_as operator requeue "$id" --reason "receiver is back" --yes >/dev/null
	until_true 60 "the delivery of the requeued dead letter" delivered 2
	say "PostgreSQL $1 ($(sql owner 'SHOW server_version'), owner without superuser): first webhook after $webhook s, first dead letter requeued after $((SECONDS - start)) s"
}

# leave: stops the unit, and removes the configuration of the database.
leave() {
	local start=$SECONDS
	inside systemctl disable --now qtop-worker@main 2>/dev/null
	[[ $(inside systemctl show -p Result --value qtop-worker@main) == success ]] || fail "the unit did not stop cleanly"
	[[ $(psql -qXAt "$super" -c "SELECT stop_reason FROM public.queue_host") == SIGTERM ]] || fail "the host did not record why it stopped"
	say "stopped: a clean drain in $((SECONDS - start)) s"
}

majors=${QTOP_TEST_PG:-17,15}
tried=()
for major in ${majors//,/ }; do
	if ! bin "$major" >/dev/null; then
		echo "SKIP PostgreSQL $major: its server programs are not here (QTOP_TEST_PG=$major go test ./pgclient/pgtest fetches them)" >&2
		continue
	fi
	[[ ${#tried[@]} -eq 0 ]] || leave
	server "$major" ''
	first "$major"
	tried+=("$major")
done
[[ ${#tried[@]} -gt 0 ]] || skip "no PostgreSQL of the majors $majors"

# ---- upgrade under load -----------------------------------------------------------
qtop_as operator flag set webhook.max_attempts 10 --reason trial --yes >/dev/null
# The producer writes down what was committed; its numbers begin at 1001.
(
	for ((n = 1001; ; n++)); do
		sql producer "BEGIN; INSERT INTO events (event_type, payload) VALUES ('order.paid', '{\"n\": $n}');
			SELECT 1 FROM fn_job_enqueue('mail.render', 'mail', 'external_worker', '{\"n\": $n}'); COMMIT" >/dev/null || exit 1
		echo "$n" >>"$ledger/committed"
	done
) &
producer=$!
children+=("$producer")
work_done() { (($(count "$ledger/delivered") > $1)) && (($(inside sh -c 'wc -l </var/lib/trial/done 2>/dev/null || echo 0') > $1)); }
until_true 120 "work under load" work_done 30
before_pid=$(pid_of_unit)
mapfile -t upgrade < <(commands 3)
[[ ${#upgrade[@]} -eq 3 ]] || fail "the upgrade of install.md no longer has three commands"
backup "postgres://app_owner@127.0.0.1:$port/app"
typed "${upgrade[0]}" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "install.md: ${upgrade[0]}"; }
grep -q "qtop-worker@main.service" "$work/dpkg.log" || fail "the upgrade does not name the host that runs"
[[ $(pid_of_unit) == "$before_pid" ]] || fail "the upgrade restarted the host"
[[ $(inside readlink "/proc/$before_pid/exe") == *"(deleted)" ]] || fail "the host does not run the program of before"
[[ $(inside cat /etc/qtop/config.yaml) == *app_host* ]] || fail "the upgrade changed the configuration"
# shellcheck disable=SC2016 # Perl
inside perl -e 'our %nrconf; do "/etc/needrestart/conf.d/qtop.conf" // die $@;
	while (my ($service, $restart) = each %{$nrconf{override_rc}}) { exit 0 if "qtop-worker\@main.service" =~ /$service/ && !$restart } exit 1' ||
	fail "needrestart would restart the host"
at=$(count "$ledger/delivered")
until_true 120 "work by the host of before" work_done $((at + 10))
if [[ -n $code ]]; then # the new program refuses the database of 0.2.0 in one line
	! qtop_as host worker --host-id early >"$work/last" 2>&1 || fail "a host of the new release works before migrate up"
	grep "$code" "$work/last" | grep "run qtop migrate up" >/dev/null || { cat "$work/last" >&2; fail "a host of the new release does not say what to do"; }
fi
typed "${upgrade[1]}" >"$work/last" 2>&1 || { cat "$work/last" >&2; fail "install.md: ${upgrade[1]}"; }
at=$(count "$ledger/delivered")
until_true 120 "work by the host of before on the new schema" work_done $((at + 10))
# From here on the host has the roles that the new release asks for, and no others.
granted=$(roles_of_host before)
granted=${granted/GRANT/REVOKE}
sql owner "${granted/ TO / FROM }; $(roles_of_host next)"
typed "${upgrade[2]}" >"$work/last" 2>&1 || { cat "$work/last" >&2; fail "install.md: ${upgrade[2]}"; }
[[ $(inside readlink "/proc/$(pid_of_unit)/exe") == /usr/bin/qtop ]] || fail "the host does not run the new program"
[[ $(qtop_as operator hosts -o json | field version) == "$release"* ]] || fail "the database does not show the new program"
at=$(count "$ledger/delivered")
until_true 120 "work by the new host" work_done $((at + 10))
inside systemctl reload qtop-worker@main
at=$(count "$ledger/delivered")
until_true 120 "work after a reload" work_done $((at + 10))
# A crash, and a host that hangs: systemd starts it again.
crash() {
	local old
	old=$(pid_of_unit)
	inside systemctl kill --kill-who=main -s "$1" qtop-worker@main
	until_true 60 "the restart after $1" restarted "$old"
	at=$(count "$ledger/delivered")
	until_true 120 "work after $1" work_done $((at + 10))
}
restarted() { [[ $(inside systemctl is-active qtop-worker@main) == active && $(pid_of_unit) != "$1" ]]; }
crash KILL
crash STOP
inside journalctl --no-pager -q -u qtop-worker@main | grep -i "watchdog timeout" >/dev/null || fail "it was not the watchdog that ended the hung host"
kill "$producer"
wait "$producer" 2>/dev/null || true
until_true 180 "the end of all work without a loss" nothing_lost
twice() { echo $(($(wc -l <"$1") - $(sort -u "$1" | wc -l))); }
committed=$(wc -l <"$ledger/committed")
[[ $committed -gt 60 ]] || fail "only $committed transactions were committed"
say "upgrade, reload, crash and hang under load: $committed transactions committed, 0 of their webhooks and jobs lost, $(twice "$ledger/delivered") webhooks and $(twice "$work/done") jobs done twice"

# ---- a host without its database --------------------------------------------------------
# Its login has no password yet. systemctl start returns after a minute all the same; the host works once it can log in.
sql owner "CREATE ROLE app_late LOGIN; $(roles_of_host next | sed 's/app_host/app_late/')"
inside sh -c "printf '  late:\n    dsn: postgres://app_late@127.0.0.1:$port/app\n    host_id: late\n' >>/etc/qtop/config.yaml
	umask 077; echo PGPASSWORD=late-secret >/etc/qtop/late.env"
at=$SECONDS at_port=$port
(inside systemctl start qtop-worker@late && echo $((SECONDS - at)) >"$work/late") >"$work/late.log" 2>&1 &
late=$!
children+=("$late")

# ---- quick start ----------------------------------------------------------------------
quick_start "${tried[-1]}"
other_cluster "${tried[-1]}"

wait "$late" || { cat "$work/late.log" >&2; fail "the start of a host that waits for its database"; }
took=$(cat "$work/late")
((took >= 55 && took < 85)) || fail "systemctl start of a host that waits for its database returned after $took s"
status_of_late() { inside systemctl show -p StatusText --value qtop-worker@late; }
[[ $(status_of_late) == "not ready: waits for the database: "* ]] || fail "the status of a host that waits for its database: $(status_of_late)"
port=$at_port
sql owner "ALTER ROLE app_late PASSWORD 'late-secret'"
late_runs() { [[ $(status_of_late) == "every loop runs" ]]; }
until_true 60 "the host whose login was repaired" late_runs
say "a host that cannot log in: systemctl start returned after $took s; every loop runs $((SECONDS - at - took)) s later, after the repair"

# ---- remove and purge ---------------------------------------------------------------
inside dpkg -r qtop >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -r"; }
[[ $(inside systemctl is-active qtop-worker@main || true) == inactive ]] || fail "the host runs without its package"
[[ $(inside cat /etc/qtop/config.yaml) == *app_host* ]] || fail "the removal took the configuration away"
inside dpkg -P qtop >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -P"; }
[[ ! -s $work/dpkg.log ]] || ! grep -i warning "$work/dpkg.log" || fail "the purge warns"
inside rm -rf /usr/local/bin/render-mail /var/lib/trial # the trial's own
files >"$work/files.after"
diff "$work/files.before" "$work/files.after" >"$work/left" || { cat "$work/left"; fail "the purge left something, or took too much"; }
say "removed and purged: the $(wc -l <"$work/files.before") names and users are those of before"

# ---- the new package alone ------------------------------------------------------------
inside dpkg -i /packages/next.deb >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -i of the new package"; }
[[ $(inside stat -c '%U:%G %a' /etc/qtop /etc/qtop/config.yaml | tr '\n' ' ') == "root:qtop 750 root:qtop 640 " ]] || fail "rights of /etc/qtop of the new package"
inside setpriv --reuid=qtop --regid=qtop --init-groups env XDG_CONFIG_HOME=/etc qtop config check >/dev/null || fail "the sample configuration of the new package is not valid"
inside sh -c "dpkg -r qtop && dpkg -i /packages/next.deb" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -i after dpkg -r"; }
[[ $(inside stat -c '%U:%G %a' /etc/qtop/config.yaml) == "root:qtop 640" ]] || fail "the configuration is gone after a removal"
inside dpkg -P qtop >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -P of the new package"; }
files >"$work/files.after"
diff "$work/files.before" "$work/files.after" >"$work/left" || { cat "$work/left"; fail "the purge of the new package left something, or took too much"; }
say "the new package alone: installed, removed, installed again and purged without a rest"

# ---- the RPM package --------------------------------------------------------------------
# From outside, so that its scripts find no running systemd: installed, upgraded, removed.
rpm_does() { rpm --root "$root" --dbpath /var/lib/qtop-trial-rpm "$@" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log" >&2; fail "rpm $*"; }; }
host_reads() { inside setpriv --reuid=qtop --regid=qtop --init-groups env XDG_CONFIG_HOME=/etc qtop config check >/dev/null || fail "hosts cannot read their configuration after $1 by rpm"; }
try_rpm() {
	command -v rpm >/dev/null || { echo "SKIP the RPM package: rpm is not installed and could not be" >&2; return; }
	rpm_does -i "$work/before.rpm"
	host_reads "an installation"
	inside systemctl enable qtop-worker@main 2>/dev/null
	rpm_does -U "$work/next.rpm" # rpm gives the folder, and a file that nobody has changed, back to root
	host_reads "an upgrade"
	[[ $(inside qtop --version) == "qtop $release "* ]] || fail "qtop --version after an upgrade by rpm: $(inside qtop --version)"
	inside sh -c 'echo "# changed" >>/etc/qtop/config.yaml'
	rpm_does -e qtop
	[[ -z $(inside sh -c 'find /etc/systemd /usr -name "*qtop*"') ]] || fail "the removal by rpm left $(inside sh -c 'find /etc/systemd /usr -name "*qtop*"')"
	inside grep -q '^# changed' /etc/qtop/config.yaml.rpmsave || fail "the removal by rpm took the configuration away"
	say "the RPM package: installed, upgraded and removed by rpm $(rpm --version | grep -o '[0-9.]*$'); the changed configuration stays"
}
try_rpm
echo "package trial: ok $how on PostgreSQL ${tried[*]}, $((SECONDS - began)) s"
