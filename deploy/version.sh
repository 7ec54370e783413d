#!/bin/sh
# The version of this tree, as packages and archives have it.
#   0.1.0                        a commit with the tag v0.1.0, which must be the version of base/version.h
#   0.1.0~git20261124.1a2b3c4d   a commit before that tag
#   0.1.0+git20261124.1a2b3c4d   one after it
# An archive of `make dist` has its version in the file .version.
#   version.sh         the version
#   version.sh time    the time of the commit, in seconds since 1970: of all files in archives and packages
set -eu
cd "$(dirname "$0")/.."
if [ -f .version ]; then
	sed -n "$([ "${1:-}" = time ] && echo 2p || echo 1p)" .version
	exit
fi
git rev-parse --verify -q HEAD >/dev/null || {
	echo "deploy/version.sh: neither a git checkout nor an archive of make dist: no version" >&2
	exit 1
}
if [ "${1:-}" = time ]; then
	git log -1 --format=%ct
	exit
fi
own=$(sed -n 's/^#define QUERN_VERSION "\(.*\)"$/\1/p' base/version.h)
tag=$(git tag --points-at HEAD --list 'v[0-9]*' | tail -n 1)
if [ -n "$tag" ]; then
	[ "$tag" = "v$own" ] || {
		echo "deploy/version.sh: the tag is $tag, base/version.h has $own: change one of them" >&2
		exit 1
	}
	echo "$own"
	exit
fi
if [ -n "$(git tag --merged HEAD --list "v$own")" ]; then sign=+; else sign='~'; fi
echo "$own${sign}git$(TZ=UTC0 git log -1 --date=format-local:%Y%m%d --format=%cd.%h --abbrev=8)"
