#!/bin/bash
# The pages of docs/, with the programs as `make install` puts them: their commands run, and their options and tables are
# those of the installed programs.  A command that no test can run here is listed with its reason.
. deploy/check/lib/check.sh

step "make install"
make -s install DESTDIR="$WORK/root" PREFIX=/usr BUILD="${BUILD#"$PWD"/}"

step "the pages"
python=build/venv/bin/python
[ -x "$python" ] || not_run "build/venv is missing: make deps-test"
QUERN_TEST_LONG=1 QUERN_BUILD=$WORK/root/usr "$python" -m pytest -q -p no:cacheprovider tests/e2e/documented

step "not run here"
grep -rn '^# needs ' docs README.md
