#!/bin/sh
# A release of the commit that is checked out: dist.sh OUT, which `make dist` runs.
#   OUT/quern-VERSION.tar.gz      what git has of it, and its version (.version); all files have the commit's time
#   OUT/SHA256SUMS                of it
# The same commit gives the same bytes, whoever makes it and when.
set -eu
cd "$(dirname "$0")/.."
out=$1
[ -d .git ] || [ -f .git ] || { echo "make dist: this is no git checkout" >&2; exit 1; }
if ! git diff --quiet HEAD; then
	echo "make dist: there are changes that are not committed; commit or stash them" >&2
	exit 1
fi
version=$(deploy/version.sh)
name=quern-$version
mkdir -p "$out"
rm -f "$out"/quern-*.tar.gz "$out/SHA256SUMS"
git -c tar.umask=0022 archive --format=tar --prefix="$name/" \
	--add-virtual-file="$name/.version:$(printf '%s\n%s' "$version" "$(deploy/version.sh time)")" HEAD |
	gzip -9n >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >SHA256SUMS && cat SHA256SUMS)
