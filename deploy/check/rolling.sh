#!/bin/sh
# A rolling upgrade of two services under load: from the programs of an older commit to those of this tree.  FROM=COMMIT names the older one; without it, the last tag, or else the 20th commit back.
. deploy/check/lib/check.sh

step "the older programs"
git rev-parse -q --verify HEAD >/dev/null || not_run "a git checkout is missing: there are no older programs"
from=${FROM:-$(git describe --tags --abbrev=0 HEAD~1 2>/dev/null || echo HEAD~20)}
git rev-parse -q --verify "$from^{commit}" >/dev/null || not_run "the commit $from is missing: name one in FROM"
mkdir "$WORK/source"
git archive "$from" | tar -x -C "$WORK/source"
env -u BUILD -u MAKEFLAGS -u MAKELEVEL make -s -C "$WORK/source" -j"$(nproc)" BUILD=build \
	build/bin/quern build/bin/quern-controller build/bin/quern-worker || fail "$from cannot be built"
echo "from $(git log -1 --format='%h %s' "$from")"

# Workers are taken back by a controller that speaks their version of the bus, and a journal of another format stays there.
of() { sed -n "s/.*\b$2 = \([0-9]*\).*/\1/p" "$1"; }
[ "$(of proto/bus.h BUS_VERSION)" = "$(of "$WORK/source/proto/bus.h" BUS_VERSION)" ] ||
	not_run "$from speaks another version of the bus: name a later commit in FROM"
rounds=1
[ "$(of controller/jobs/journal.h JOURNAL_FORMAT)" != "$(of "$WORK/source/controller/jobs/journal.h" JOURNAL_FORMAT)" ] || rounds=3

step "upgraded under load; with a journal of the same format taken back, and upgraded again"
mkdir "$WORK/sides"
python3 deploy/check/lib/rolling.py "$WORK/source/build/bin" "$BUILD/bin" "$WORK/sides" $rounds
