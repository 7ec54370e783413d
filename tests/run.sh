#!/bin/sh
# Runs the tests that were built and adds up what they say:  run.sh BUILD [unit|e2e]
# Criterion runs each test in its own process with a time limit; pytest drives the programs.
# Closes with what failed, by name, and "N passed, N failed, N skipped"; exit 1 if any failed or none ran.
set -u
build=$1
only=${2:-all}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
passed=0 failed=0 skipped=0
log=$(mktemp)
names=$(mktemp)
trap 'rm -f "$log" "$names"' EXIT

number() { # number WORD: how many of them pytest's closing line counts
	grep -aE '(passed|failed|skipped|error).* in [0-9.]+s' "$log" | tail -n 1 | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+'
}

# program NAME PROGRAM [OPTION...]: a Criterion program, its line, and what failed in it
program() {
	name=$1
	shift
	start=$(date +%s)
	"$@" --timeout "${QUERN_TEST_TIMEOUT:-240}" --jobs 2 --verbose >"$log" 2>&1
	rc=$?
	line=$(grep -a 'Synthesis:' "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
	p=$(printf '%s' "$line" | sed -n 's/.*Passing: *\([0-9]*\).*/\1/p')
	f=$(printf '%s' "$line" | sed -n 's/.*Failing: *\([0-9]*\).*/\1/p')
	s=$(grep -a 'SKIP' "$log" | grep -ac '::')
	bad=${f:-0} # crashes among them
	[ "$rc" != 0 ] && [ "$bad" = 0 ] && bad=1
	printf '%-44s %4s passed %3s failed %3s skipped %4ss\n' "$name" "${p:-0}" "$bad" "$s" \
		"$(($(date +%s) - start))"
	grep -a 'SKIP' "$log" | grep -a '::' | sed 's/.*:: *//; s/.*SKIP[^ ]* */    skipped: /' | sort | uniq -c | head -n 20
	if [ "$bad" != 0 ]; then
		grep -avE 'RUN |PASS|SKIP' "$log" | sed 's/^/    /'
		grep -aq '^\[FAIL\]' "$log" || echo "$name: exit status $rc" >>"$names"
		grep -a '^\[FAIL\]' "$log" | sed "s|^\[FAIL\]|$name:|" >>"$names"
	fi
	passed=$((passed + ${p:-0})) failed=$((failed + bad)) skipped=$((skipped + s))
}

if [ "$only" != e2e ]; then
	for t in "$build"/tests/*/test_* "$build"/tests/unit/*/test_*; do
		[ -x "$t" ] || continue
		case $t in *.o|*.d) continue ;; esac
		[ -f "tests/${t#"$build"/tests/}.c" ] || [ -f "tests/${t#"$build"/tests/}.cc" ] || continue # of a removed test
		program "${t#"$build"/tests/}" "$t"
	done
	# A few of the calls that `make inject` lets fail one by one; without sanitizers.
	if [ -x "$build/inject/sweep" ]; then
		"$build/inject/sweep" --most 16 >"$log" 2>&1
		rc=$?
		p=$(grep -ac 'findings 0$' "$log") bad=$(grep -ac 'findings [1-9][0-9]*$' "$log")
		[ "$rc" != 0 ] && [ "$bad" = 0 ] && bad=1
		printf '%-44s %4s passed %3s failed\n' "failing calls, a sample" "$p" "$bad"
		[ "$bad" = 0 ] || sed 's/^/    /' "$log"
		grep -a 'findings [1-9][0-9]*$' "$log" | sed 's/^/failing calls: /' >>"$names"
		passed=$((passed + p)) failed=$((failed + bad))
	fi
	# The kernels' cases, and the worker as a whole, on the emulated CUDA device.
	sim=$(cd "$build" && pwd)/lib/libquern-cudasim.so
	if [ -e "$sim" ]; then
		export QUERN_TEST_DEVICE=cuda:0 QUERN_CUDA_LIBRARY="$sim"
		for t in kernels/test_attention kernels/test_experts kernels/test_linear kernels/test_rows kernels/test_sample \
			kernels/test_sample_golden unit/worker/test_model unit/worker/test_step; do
			program "$t, emulated CUDA" "$build/tests/$t"
		done
		program "unit/worker/test_tp, emulated CUDA" "$build/tests/unit/worker/test_tp" --filter 'tp/@(agrees*|whole*)'
		program "unit/worker/test_ep, emulated CUDA" "$build/tests/unit/worker/test_ep"
		program "unit/worker/test_model, emulated CUDA, --fast" env QUERN_TEST_FAST=1 "$build/tests/unit/worker/test_model" \
			--filter 'model/@(stories_bf16*|tiny*)'
		program "kernels/test_linear, 132 multiprocessors, interleaved" \
			env QUERN_CUDASIM_SMS=132 QUERN_CUDASIM_RESIDENT=0 "$build/tests/kernels/test_linear"
		# Some of them with the detector of races; make cudarace has all.
		race=$(cd "$build" && pwd)/lib/libquern-cudarace.so
		if [ -e "$race" ]; then
			export QUERN_CUDA_LIBRARY="$race"
			program "kernels/test_rows, race detector" "$build/tests/kernels/test_rows"
			program "kernels/test_experts, race detector" "$build/tests/kernels/test_experts" \
				--filter 'experts/@(all_of*|routers*)'
			program "kernels/test_linear, race detector" "$build/tests/kernels/test_linear" \
				--filter 'linear/matches_a_double_precision_reference'
		fi
		unset QUERN_TEST_DEVICE QUERN_CUDA_LIBRARY
	fi
fi
# pytests NAME FOLDERS [OPTION...]: tests in Python, their line, and what failed in them
pytests() {
	name=$1 folders=$2
	shift 2
	start=$(date +%s)
	# shellcheck disable=SC2086
	QUERN_BUILD=$build build/venv/bin/python -m pytest -q -rfEs --maxfail=20 -p no:cacheprovider "$@" $folders >"$log" 2>&1
	rc=$?
	p=$(number passed) f=$(number failed) s=$(number skipped) e=$(number error)
	bad=$((${f:-0} + ${e:-0}))
	[ "$rc" != 0 ] && [ "$bad" = 0 ] && bad=1
	printf '%-44s %4s passed %3s failed %3s skipped %4ss\n' "$name" "${p:-0}" "$bad" "${s:-0}" "$(($(date +%s) - start))"
	if [ "$bad" = 0 ]; then grep -a '^SKIPPED' "$log"; else sed 's/^/    /' "$log"; fi
	[ "$bad" = 0 ] || grep -aE '^(FAILED|ERROR) ' "$log" >>"$names" || echo "pytest: exit status $rc" >>"$names"
	passed=$((passed + ${p:-0})) failed=$((failed + bad)) skipped=$((skipped + ${s:-0}))
}

if [ "$only" != unit ]; then
	# Most of such a test is waiting: two files at a time.  Storms of kills and cut links have the machine alone.
	pytests "end to end" "tests/lint tests/sass tests/e2e" -n "${QUERN_TEST_JOBS:-2}" --dist loadfile
	pytests "end to end, chaos" tests/chaos
fi
[ ! -s "$names" ] || { echo "what failed:"; cut -c1-300 "$names"; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
