#!/bin/sh
# How fast is the CUDA table on this machine's GPU?  bench.sh BUILD
#
# Kernels against cuBLAS and the device's own copy bandwidth in one run (tests/gpu/bench.cu), then
# whole models of made-up weights in real shapes, AWQ and F16, one after the other: batches in the
# default mode, what their steps cost the host, with graphs and without (tests/gpu/bench_step.c), prompts of
# 2,048 tokens in the default mode and with --fast; under 8 minutes.
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
		for mode in default fast; do
			timeout 60 "$build/bin/quern" bench engine "$dir/$type" --device cuda:0 --json --batch 1 --prompt-tokens 2048 \
				--max-tokens 2 --runs 7 --chunk 2048 --max-batch-tokens 2048 --max-step-ms 0 --no-prefix-cache \
				$([ $mode = fast ] && echo --fast) >"$dir/prefill-$type-$mode.json" 2>"$dir/log" ||
				{ cat "$dir/log" >&2; exit 1; }
			models="$models, \"$shape-$type-prefill-$mode\": $(cat "$dir/prefill-$type-$mode.json")"
		done
		rm -rf "${dir:?}/$type"
	else
		echo "$shape $type: not made: $(tail -n 1 "$dir/log")"
	fi
done
# Prompts, each mode named; over F16 of the default mode, as the goals have it.
python3 - "$dir" <<'EOF'
import json, pathlib, sys
found = {p.stem[8:]: json.loads(p.read_text()) for p in sorted(pathlib.Path(sys.argv[1]).glob("prefill-*.json"))}
speed = {name: r["results"][0]["prefill_tokens_per_s"] for name, r in found.items()}
for name, tps in speed.items():
    base = speed.get("f16-default")
    over = f", {tps / base:.2f} of F16 in the default mode" if base else ""
    print(f"prefill of 2,048 tokens, {name} ({found[name].get('numerics')}): {tps:.0f} tokens/s{over}")
EOF
printf '{"kernels": %s%s}\n' "$(cat "$dir/kernels.json")" "$models" >"$out"
echo "written to $out"
