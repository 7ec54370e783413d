#!/bin/sh
# What is under deploy/, tried on the real thing: `make deploy-check`, not a part of `make check`.
#   run.sh [PART...]    all parts, deploy/check/*.sh, one after another; or these, by their names
#
# A part is a script with one promise of deploy/, such as debian.sh.  It is started in the repository's root, which
# has been built into $BUILD (build), with an empty folder of its own in $WORK (build/deploy-check/PART), and says by
# its exit status how it ended: 0 it passed; 77 it cannot be run here, and the last line of its output is
# "not run: REASON", which names what is missing; anything else, it failed.  deploy/check/lib/check.sh has what
# parts share.  Outputs go to build/deploy-check/PART.log, and to the terminal only where a part failed.
#
# The exit status is 1 if a part failed.  STRICT=1: also if one was not run.
set -u
cd "$(dirname "$0")/../.."
BUILD=$(realpath "${BUILD:-build}")
export BUILD
logs=$BUILD/deploy-check
mkdir -p "$logs"
passed=0 failed=0 missing=0

parts() {
	for script in deploy/check/*.sh; do
		name=${script##*/}
		[ "$name" = run.sh ] || echo "${name%.sh}"
	done
}

# The last line of a log, as the reason of a part that was not run.
reason() {
	sed -n '$s/^not run: *//p' "$1"
}

run_part() {
	script=deploy/check/$1.sh log=$logs/$1.log WORK=$logs/$1
	if [ "$1" = run ] || [ ! -f "$script" ]; then
		echo "deploy/check: there is no part \"$1\"; there are: $(parts | tr '\n' ' ')" >&2
		exit 2
	fi
	rm -rf "$WORK" && mkdir -p "$WORK" || exit 1
	export WORK
	began=$(date +%s)
	"$script" >"$log" 2>&1 </dev/null
	status=$?
	took="$(($(date +%s) - began)) s"
	if [ $status = 77 ] && [ -n "$(reason "$log")" ]; then
		missing=$((missing + 1))
		printf '%-12s not run: %s\n' "$1" "$(reason "$log")"
		return
	fi
	case $status in
	0)
		passed=$((passed + 1))
		printf '%-12s passed (%s)\n' "$1" "$took"
		;;
	*)
		failed=$((failed + 1))
		printf '%-12s failed (exit status %s, %s); its output, %s:\n' "$1" "$status" "$took" "$log"
		tail -n 60 "$log" | sed 's/^/    /'
		;;
	esac
}

[ $# -gt 0 ] || set -- $(parts)
for part; do
	run_part "$part"
done
echo "deploy-check: $passed passed, $failed failed, $missing not run"
[ $failed = 0 ] || exit 1
[ $missing = 0 ] || [ -z "${STRICT:-}" ] || exit 1
