#!/bin/sh
# How fast is the CUDA table on this machine's GPU?  bench.sh BUILD
#
# Kernels against cuBLAS and the device's own copy bandwidth in one run (tests/gpu/bench.cu), then
# whole models of made-up weights in real shapes, AWQ and F16, one after the other, and what their steps cost
# the host, with graphs and without (tests/gpu/bench_step.c); under 8 minutes.
# Tables on stdout, JSON in docs/performance/gpu-bench.json.
# Needs: nvcc, cuBLAS and the libraries named in the README; Python with numpy, and 22 GB of disk in
# $TMPDIR, for the models (QUERN_GPU_MODEL=qwen3-0.6b for a small one).
set -u
build=$1
cd "$(dirname "$0")/../.." || exit 1
out=docs/performance/gpu-bench.json
shape=${QUERN_GPU_MODEL:-qwen3-8b}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
	echo "make gpu-bench: this machine has no GPU that its driver knows" >&2
	exit 1
fi
[ -n "${GPU_BUILT:-}" ] || make --no-print-directory -j"$(nproc)" BUILD="$build" gpu-tests || exit 1
timeout 240 "$build/gpu/bench" ${QUICK:+--quick} --json "$dir/kernels.json" || exit 1
models=
for type in awq f16; do
	if timeout 120 python3 tests/tools/make_model.py "$dir/$type" --shape "$shape" --type "$type" >"$dir/log" 2>&1; then
		timeout 120 "$build/bin/quern" bench engine "$dir/$type" --device cuda:0 --json >"$dir/$type.json" 2>"$dir/log" &&
			models="$models, \"$shape-$type\": $(cat "$dir/$type.json")" || { cat "$dir/log" >&2; exit 1; }
		echo "$shape $type: $(cat "$dir/$type.json")"
		echo "$shape $type, a step of decoding:"
		timeout 120 "$build/gpu/bench_step" "$dir/$type" --json "$dir/steps.json" 2>"$dir/log" &&
			models="$models, \"$shape-$type-steps\": $(cat "$dir/steps.json")" || { cat "$dir/log" >&2; exit 1; }
		rm -rf "${dir:?}/$type"
	else
		echo "$shape $type: not made: $(tail -n 1 "$dir/log")"
	fi
done
printf '{"kernels": %s%s}\n' "$(cat "$dir/kernels.json")" "$models" >"$out"
echo "written to $out"
