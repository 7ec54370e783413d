#!/bin/sh
# Completion of `quern` for bash and zsh, made from its --help.
#   completion.sh BIN OUT    of BIN/quern, into folder OUT: quern (bash), _quern (zsh)
set -eu
here=$(dirname "$0")
bin=$1
out=$2
records() { "$bin/quern" $1 --help | awk -f "$here/help.awk"; }
names() { records "$1" | awk -F '\t' '$1 == "C" { print $2 }'; }

# Every record with the command that it belongs to as its first field: "bench serve", "" for quern itself.
all() {
	records "" | sed 's/^/	/'
	for c in $(names ""); do
		records "$c" | sed "s/^/$c	/"
	done
	for m in $(names bench); do
		records "bench $m" | sed "s/^/bench $m	/"
	done
}

mkdir -p "$out"
all >"$out/records"
awk -f "$here/completion/bash.awk" "$out/records" | cat - "$here/completion/quern.bash" >"$out/quern"
awk -f "$here/completion/zsh.awk" "$out/records" >"$out/_quern"
rm "$out/records"
