#!/bin/sh
# Manual pages from the programs' --help.
#   man.sh BIN OUT    those of the programs in folder BIN, into folder OUT (quern.1, quern-serve.1, ...)
set -eu
here=$(dirname "$0")
bin=$1
out=$2
records() { "$@" --help | awk -f "$here/help.awk"; }
# The rows of a table of commands, as "name about".
commands() { records "$@" | awk -F '\t' '$1 == "C" { print $2, $4 }'; }

version=$("$bin/quern" --version)
version=${version#quern }
top=$(commands "$bin/quern" | grep -v '^worker ') # quern-worker has its page
measures=$(commands "$bin/quern-bench")
pages="quern quern-controller quern-worker
$(echo "$top" | sed 's/ .*//; s/^/quern-/')
$(echo "$measures" | sed 's/ .*//; s/^/quern-bench-/')"
pages=$(echo $pages)

# page NAME ABOUT PROGRAM [WORD...]
page() {
	name=$1 about=$2 see=
	shift 2
	case $name in
	quern) refer="quern-serve quern-run quern-chat quern-submit quern-controller quern-worker quern-bench quern-quantize" ;;
	quern-bench) refer="quern quern-serve" ;;
	quern-bench-*) refer="quern quern-bench" ;;
	quern-controller | quern-worker) refer="quern quern-serve" ;;
	*) refer=quern ;;
	esac
	for r in $refer; do
		see="$see${see:+,
}.BR $(echo "$r" | sed 's/-/\\\\-/g') (1)"
	done
	records "$@" | awk -v page="$name" -v about="$about" -v version="$version" -v see="$see" -v pages="$pages" \
		-f "$here/man.awk" >"$out/$name.1"
}

mkdir -p "$out"
rm -f "$out"/quern*.1
page quern "an LLM inference service" "$bin/quern"
page quern-controller "the controller of a quern service" "$bin/quern-controller"
page quern-worker "one device of a quern service" "$bin/quern-worker"
echo "$top" | while read -r command about; do
	page "quern-$command" "$about" "$bin/quern" "$command"
done
echo "$measures" | while read -r measure about; do
	page "quern-bench-$measure" "$about" "$bin/quern-bench" "$measure"
done
