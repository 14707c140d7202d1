#!/bin/sh
# Builds what a release consists of, into dist/: binaries, archives, Debian and RPM packages, bills of
# materials, a Homebrew formula, checksums with their signature, and the container image, if
# docker, podman or buildah is here. The same commit, with the same version of Go, gives the same bytes on any
# machine (checked by .ci/package/reproducible.sh), except in the image and the signature.
#
#   QTOP_DIST       targets ("linux/amd64"); default: all four
#   QTOP_SIGN_KEY   an SSH key that signs the checksums
#   QTOP_URL        where the archives will be; default: the release on GitHub
set -eu
cd "$(dirname "$0")/.."

# The version is fixed, so that the packages do not change with the tool.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

tar=tar
if command -v gtar >/dev/null 2>&1; then tar=gtar; fi
$tar --version 2>/dev/null | grep -q GNU || {
	echo "package: GNU tar is needed for archives that are the same everywhere; install it (brew install gnu-tar)" >&2
	exit 1
}

date -d @0 >/dev/null 2>&1 || {
	echo "package: GNU date is needed: build on Linux" >&2
	exit 1
}

umask 022
LC_ALL=C
TZ=UTC
export LC_ALL TZ

version=$(sed -n 's/^const release = "v\(.*\)"$/\1/p' cmd/qtop/version.go)
# The time of every file in the packages: that of the commit; without git, that of the release.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null ||
	date -d "$(sed -n "s/^## \[$version\] - //p" CHANGELOG.md)" +%s)}
export SOURCE_DATE_EPOCH
MTIME=$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

targets=${QTOP_DIST:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
QTOP_DIST=$targets .ci/dist.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Man pages and completions are the same for every target: the program for this machine writes them, in
# an empty environment, so that no variable of the builder can change them.
env -u GOOS -u GOARCH .ci/build.sh "$work/qtop"
qtop() { env -i HOME=/nonexistent SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" TZ=UTC "$work/qtop" "$@"; }
mkdir -p "$work/man" "$work/completions"
qtop man "$work/man"
gzip -n -9 "$work/man"/*
for shell in bash zsh fish; do qtop completion $shell >"$work/completions/qtop.$shell"; done

# documents FOLDER: README and docs side by side, as in the source, so that their links lead somewhere. Links to
# the source go to the repository.
documents() {
	install -m 0644 README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md "$1/"
	mkdir -p "$1/docs/tour"
	install -m 0644 docs/*.* "$1/docs/"
	sed -i "s|](\.\./\([a-z]*/\)|](https://github.com/qtop/qtop/blob/v$version/\1|g" "$1/docs"/*.md
	install -m 0644 docs/tour/* "$1/docs/tour/"
}

# archive TARGET: the files of one tar.gz, inside a folder with the name of the archive.
archive() {
	os=${1%/*} arch=${1#*/}
	name=qtop-$version-$os-$arch
	root=$work/$name
	install -D -m 0755 "dist/qtop-$os-$arch" "$root/bin/qtop"
	mkdir -p "$root/share/man/man1"
	cp "$work/man"/* "$root/share/man/man1/"
	install -D -m 0644 "$work/completions/qtop.bash" "$root/share/bash-completion/completions/qtop"
	install -D -m 0644 "$work/completions/qtop.zsh" "$root/share/zsh/site-functions/_qtop"
	install -D -m 0644 "$work/completions/qtop.fish" "$root/share/fish/vendor_completions.d/qtop.fish"
	install -D -m 0644 -t "$root/examples" .ci/package/config.yaml .ci/package/qtop-worker@.service .ci/package/sysusers.conf
	install -m 0644 LICENSE "$root/"
	documents "$root"
	$tar -C "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
		gzip -n -9 >"dist/$name.tar.gz"
}

# packages ARCH: the deb and the rpm.
packages() {
	stage=$work/stage-$1
	usr=$stage/usr
	install -D -m 0755 "dist/qtop-linux-$1" "$usr/bin/qtop"
	mkdir -p "$usr/share/man/man1" "$stage/completions"
	cp "$work/man"/* "$usr/share/man/man1/"
	cp "$work/completions"/* "$stage/completions/"
	install -D -m 0644 "$work/completions/qtop.bash" "$usr/share/bash-completion/completions/qtop"
	install -D -m 0644 "$work/completions/qtop.fish" "$usr/share/fish/vendor_completions.d/qtop.fish"
	install -D -m 0644 -t "$usr/lib/systemd/system" .ci/package/qtop-worker@.service
	install -D -m 0644 .ci/package/sysusers.conf "$usr/lib/sysusers.d/qtop.conf"
	install -D -m 0644 LICENSE "$usr/share/doc/qtop/copyright"
	documents "$usr/share/doc/qtop"
	install -m 0644 -t "$stage" .ci/package/config.yaml .ci/package/needrestart.conf
	cp -r .ci/package/scripts .ci/package/nfpm.yaml "$stage/"
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for kind in deb rpm; do
		(cd "$stage" && ARCH=$1 VERSION=$version "$work/nfpm" package -f nfpm.yaml -p $kind -t "$out") >"$work/log" 2>&1 ||
			{ cat "$work/log" >&2; exit 1; }
	done
}

# same_bill: takes out of a bill of materials what another builder would have differently: the time, and the
# checksums of the tool, in which are his processor and the folder of his modules.
same_bill() {
	sed "s/\"timestamp\": \"[^\"]*\"/\"timestamp\": \"$MTIME\"/
		/^    \"tools\": \[/,/^    ]/ { /^        \"hashes\": \[/,/^        ]/d; }"
}

# A tool is built once and then called for each target.
GOBIN=$work env -u GOOS -u GOARCH CGO_ENABLED=0 go install "$nfpm"
GOBIN=$work env -u GOOS -u GOARCH CGO_ENABLED=0 go install "$cyclonedx"
out=$PWD/dist
for target in $targets; do
	archive "$target"
	os=${target%/*} arch=${target#*/}
	[ "$os" != linux ] || packages "$arch"
	"$work/cyclonedx-gomod" bin -json -std -noserial -version "v$version" "dist/qtop-$os-$arch" 2>"$work/log" |
		same_bill >"dist/qtop-$version-$os-$arch.cdx.json"
	[ -s "dist/qtop-$version-$os-$arch.cdx.json" ] || { cat "$work/log" >&2; exit 1; }
done

if [ "$(echo "$targets" | wc -w)" -eq 4 ]; then
	url=${QTOP_URL:-https://github.com/qtop/qtop/releases/download/v$version}
	fill="s|@VERSION@|$version|g; s|@URL@|$url|g"
	for target in darwin/arm64 darwin/amd64 linux/arm64 linux/amd64; do
		os=${target%/*} arch=${target#*/}
		sum=$(sha256sum "dist/qtop-$version-$os-$arch.tar.gz" | cut -d ' ' -f 1)
		fill="$fill; s|@SHA256_${os}_${arch}@|$sum|"
	done
	sed "$fill" .ci/package/qtop.rb.in >dist/qtop.rb
else
	echo "SKIP Homebrew formula: it needs the archives of all four targets" >&2
fi

.ci/sums.sh
.ci/package/image.sh "$version"
