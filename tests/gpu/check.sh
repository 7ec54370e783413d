#!/bin/sh
# Is the CUDA table right on this machine's GPU?  check.sh BUILD
#
# Kernel tests (the cases of the emulated device, and larger ones), golden models, same tokens, and
# compute-sanitizer on the kernel tests, each with a time limit; under 8 minutes in all.  A table on
# stdout, and as JSON in docs/performance/gpu-check.json.
# Needs: nvcc and the libraries named in the README, Criterion among them; Python with numpy for
# the tiny models.  Missing tools are reported, and their steps skipped.
set -u
build=$1
cd "$(dirname "$0")/../.." || exit 1
out=docs/performance/gpu-check.json
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$log" 2>&1; then
	echo "make gpu-check: this machine has no GPU that its driver knows" >&2
	exit 1
fi
gpu=$(sed -n '1s/ (UUID.*//p' "$log")
[ -n "${GPU_BUILT:-}" ] || make --no-print-directory -j"$(nproc)" BUILD="$build" gpu-tests || exit 1
rows=
bad=0

# step NAME SECONDS COMMAND...: one row of the table
step() {
	name=$1 limit=$2
	shift 2
	start=$(date +%s)
	timeout "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	took=$(($(date +%s) - start))
	line=$(grep -a 'Synthesis:' "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
	passed=$(printf '%s' "$line" | sed -n 's/.*Passing: *\([0-9]*\).*/\1/p')
	failed=$(printf '%s' "$line" | sed -n 's/.*Failing: *\([0-9]*\).*/\1/p')
	errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
	[ "$rc" = 0 ] && [ "$errors" = 0 ] && verdict=ok || { verdict="FAILED ($rc)"; bad=1; }
	printf '%-44s %-12s %4s passed %3s failed %3s reports %4ss\n' "$name" "$verdict" "${passed:-0}" "${failed:-0}" "$errors" "$took"
	[ "$verdict" = ok ] || grep -avE 'RUN |PASS' "$log" | head -n 40 | sed 's/^/    /'
	rows="$rows${rows:+, }{\"name\": \"$name\", \"ok\": $([ "$verdict" = ok ] && echo true || echo false), \"passed\": ${passed:-0}, \"failed\": ${failed:-0}, \"reports\": $errors, \"seconds\": $took}"
}

echo "$gpu"
# The cases of every table, then those of the CUDA table's own parts.
export QUERN_TEST_DEVICE=cuda:0 QUERN_CUDA_LIBRARY="$PWD/$build/lib/libquern-cuda.so"
case $build in /*) QUERN_CUDA_LIBRARY=$build/lib/libquern-cuda.so ;; esac
for t in attention linear rows sample; do
	step "kernels: $t" 120 "$build/tests/kernels/test_$t" --jobs 1
done
for t in linear_plans fast graph device step; do
	step "cuda: $t" 120 "$build/gpu/test_$t" --jobs 1
done
step "golden models" 120 "$build/tests/unit/worker/test_model" --jobs 2
step "golden models, --fast" 120 env QUERN_TEST_FAST=1 "$build/tests/unit/worker/test_model" --jobs 2
step "steps" 60 "$build/tests/unit/worker/test_step" --jobs 2
step "steps, one ahead" 60 "$build/tests/unit/worker/test_step_ahead" --jobs 2
step "same tokens" 120 "$build/tests/unit/worker/test_same_tokens" --jobs 2
step "a service" 60 "$build/bin/quern" run models/demo --raw "Once upon a time" --device cuda:0 --seed 7 -m 40
# Ranks through NCCL: one on one GPU, as many as there are (to three) on more.
n_gpus=$(nvidia-smi -L | wc -l)
if [ -x "$build/gpu/test_nccl" ]; then
	step "nccl" 120 "$build/gpu/test_nccl" --jobs 1
	[ "$n_gpus" -lt 2 ] || step "a service on two GPUs" 120 "$build/bin/quern" run models/demo --raw "Once upon a time" \
		--device cuda:0,cuda:1 --tp 2 --seed 7 -m 40
else
	echo "built without NCCL: ranks on several GPUs skipped"
fi
if command -v compute-sanitizer >/dev/null; then
	# Criterion's tests are processes of their own.
	while read -r t only; do
		for tool in memcheck racecheck; do
			step "$tool: $t" 120 compute-sanitizer --tool $tool --target-processes all --error-exitcode 9 \
				"$build/$t" --jobs 1 --filter "$only"
		done
	done <tests/gpu/sanitized
else
	echo "compute-sanitizer is not here: memcheck and racecheck skipped"
fi
printf '{"device": "%s", "steps": [%s]}\n' "$gpu" "$rows" >"$out"
echo "written to $out"
exit $bad
