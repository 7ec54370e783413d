#!/bin/sh
# A rolling upgrade of two services under load: from the programs of an older commit to those of this tree.  FROM=COMMIT
# names the older one; without it, the last tag, or else the oldest of the last 20 commits that speaks this bus.
. deploy/check/lib/check.sh
git rev-parse -q --verify HEAD >/dev/null || not_run "a git checkout is missing: there are no older programs"

# number FILE NAME [COMMIT]: a constant of a header, of this tree or of a commit.
number() {
	if [ $# = 3 ]; then git show "$3:$1" 2>/dev/null || true; else cat "$1"; fi | sed -n "s/.*\b$2 = \([0-9]*\).*/\1/p"
}
# Workers are taken back by a controller that speaks their version of the bus.
same_bus() { [ "$(number proto/bus.h BUS_VERSION)" = "$(number proto/bus.h BUS_VERSION "$1")" ]; }

from=${FROM:-$(git describe --tags --abbrev=0 HEAD~1 2>/dev/null || true)}
for n in 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1; do
	[ -z "$from" ] || break
	! git rev-parse -q --verify "HEAD~$n^{commit}" >/dev/null || ! same_bus "HEAD~$n" || from=HEAD~$n
done
[ -n "$from" ] || not_run "none of the last 20 commits speaks this version of the bus: name a later commit in FROM"
git rev-parse -q --verify "$from^{commit}" >/dev/null || not_run "the commit $from is missing: name one in FROM"
same_bus "$from" || not_run "$from speaks another version of the bus: name a later commit in FROM"

step "the older programs"
mkdir "$WORK/source"
git archive "$from" | tar -x -C "$WORK/source"
env -u BUILD -u MAKEFLAGS -u MAKELEVEL make -s -C "$WORK/source" -j"$(nproc)" BUILD=build \
	build/bin/quern build/bin/quern-controller build/bin/quern-worker || fail "$from cannot be built"
echo "from $(git log -1 --format='%h %s' "$from")"

# A journal of another format stays there.
rounds=1
[ "$(number controller/jobs/journal.h JOURNAL_FORMAT)" != "$(number controller/jobs/journal.h JOURNAL_FORMAT "$from")" ] || rounds=3

step "upgraded under load; with a journal of the same format taken back, and upgraded again"
mkdir "$WORK/sides"
python3 deploy/check/lib/rolling.py "$WORK/source/build/bin" "$BUILD/bin" "$WORK/sides" $rounds
