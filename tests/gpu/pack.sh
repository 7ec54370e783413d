#!/usr/bin/env bash
# Makes an archive with everything gpu-run needs on a machine that has only a GPU:  pack.sh BUILD ARCHIVE [NVCC]
#
# NVCC: the compiler of BUILD's kernels.  Without it the emulated device is packed instead, to try everything on
# this machine.  Prints the size of each part; fails if the archive is larger than 37 MB: with the
# project's own files it has to travel to a machine that takes 64 MB.
set -eu -o pipefail
build=$(cd "$1" && pwd) nvcc=${3:-}
mkdir -p "$(dirname "$2")"
archive=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
cd "$(dirname "$0")/../.."
most=$((37 * 1000 * 1000))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
top=$stage/quern-gpu
mkdir -p "$build/tiny" "$top"/{bin,lib/cxx,gpu,tests/kernels,tests/unit/worker,tests/golden,tests/gpu,tests/tiny,models}

# ---- programs ----
cp "$build"/bin/quern "$build"/bin/quern-{controller,worker,bench} "$top/bin/"
cp "$build"/gpu/{together,make_weights,report} "$top/gpu/"
if [ -n "$nvcc" ]; then
	release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
	cp "$build/lib/libquern-cuda.so" "$top/lib/"
	cp "$build"/gpu/{bench_step,test_parts,probes} "$top/gpu/"
	echo "CUDA $release" >"$top/built"
	# The CUDA runtime is linked in; any driver of its major release can run it.
	case $release in 13.*) echo 580 ;; 12.*) echo 525 ;; *) echo 450 ;; esac >"$top/needs-driver"
else
	cp "$build/lib/libquern-cudasim.so" "$top/lib/libquern-cuda.so"
	cp "$build/gpu/sim_bench_step" "$top/gpu/bench_step"
	cp "$build/gpu/sim_test_parts" "$top/gpu/test_parts"
	cp "$build/gpu/sim_probes" "$top/gpu/probes"
	echo "the emulated device" >"$top/built"
	echo 580 >"$top/needs-driver"
fi
find "$top" -type f -perm -u+x -exec strip {} +
strip "$top/lib/libquern-cuda.so"
# One program with several names: shapes, measure, and the tests, which gpu-run selects by suite.
for t in gpu/{shapes,measure} tests/kernels/test_{attention,linear,rows,sample,sample_golden} \
	tests/unit/worker/test_{model,step,step_ahead,same_tokens}; do
	ln "$top/gpu/together" "$top/$t"
done
rm "$top/gpu/together"

# ---- libraries: all but the C library's and the driver's; cuBLAS and NCCL are opened by name ----
find "$top" -type f \( -perm -u+x -o -name '*.so' \) -exec env LD_LIBRARY_PATH="$top/lib" ldd {} \; 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
	grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libmvec|libcuda|ld-linux[^/]*)\.so' |
	while read -r so; do
		case $so in
		"$top"/*) ;;
		*/libstdc++.so* | */libgcc_s.so*) cp -L "$so" "$top/lib/cxx/" ;; # only where the machine's are too old
		*/libcublas* | */libnccl*) echo "pack.sh: a program is linked with $so" >&2 && exit 1 ;;
		*) cp -L "$so" "$top/lib/" ;;
		esac
	done
# curl's other protocols and name services, TLS's tokens and ZeroMQ's other transports are half the bytes of the
# libraries.  Stubs replace them, and libraries that only they need are removed.
unused=()
for so in "$top"/lib/lib{crypto,ssl,gssapi_krb5,ldap-2.5,lber-2.5,ssh2,rtmp,nghttp2,psl,brotlidec,p11-kit,idn2,unistring,norm,pgm-5.3}.so.*; do
	[ ! -e "$so" ] || unused+=("$so")
done
mkdir "$stage/real"
[ ${#unused[@]} = 0 ] || mv "${unused[@]}" "$stage/real/"
[ ${#unused[@]} = 0 ] || python3 tests/gpu/stubs.py "$top/lib" "$stage"/real/*
for _ in 1 2 3 4; do # until the last of a chain
	needed=$(find "$top" -type f \( -perm -u+x -o -name '*.so*' \) -exec readelf -d {} + 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
	for so in "$top"/lib/*.so.*; do
		grep -qxF "${so##*/}" <<<"$needed" || rm "$so"
	done
done

# ---- goldens, models ----
cp tests/golden/{models,quant,gguf_family,sample*}.json "$top/tests/golden/"
cp -r models/demo "$top/models/"
cp tests/gpu/gpu-run "$top/"
mkdir "$top/references"
for m in small ${nvcc:+qwen3-8b qwen3-0.6b}; do cp "$build/gpu/references/$m" "$top/references/"; done
cp tests/gpu/sanitized "$top/tests/gpu/"
cp tests/sass/bounds.json "$top/estimates.json"
for python in build/venv/bin/python python3; do
	! "$python" -c 'import numpy' 2>/dev/null || break
done
"$python" -c 'import numpy' || { echo "pack.sh: the tiny models need Python with numpy" >&2 && exit 1; }
for t in $("$python" tests/tools/make_model.py --list | sed -n 's/^tiny: *//p'); do
	# Left out to save bytes: weights that a GPU gets unpacked, models for host computations only (RoPE's tables,
	# names, types of files), shapes for two ranks, and what others have, too.
	case $t in
	*-form-* | *gptq* | *autoround* | *w4a16* | *w3a16* | *w8a8* | *fp8* | *nvfp4 | *-nf4 | *-bnb8 | *-mixed | *-gemv | *-fast | *-awq8 | phi3-awq-*) continue ;;
	*-linear | *-dynamic | *-yarn | *-longrope | *-params | *-even | *-tp | *-types | *-g64 | gemma3 | phi3 | llama2 | qwen2-moe) continue ;;
	esac
	[ -d "$build/tiny/$t" ] || "$python" tests/tools/make_model.py "$build/tiny/$t" --tiny "$t" >/dev/null
	cp -r "$build/tiny/$t" "$top/tests/tiny/"
done
data=${QUERN_SHARED_DATA:-../shared/data}/weights
for w in stories260K-hf-f32 stories260K-hf-bf16 stories260K-reference.json tiny-random tiny-reference.json tiny_qwen3-awq-w4g32; do
	if [ -e "$data/$w" ]; then
		mkdir -p "$top/data/weights"
		cp -r "$data/$w" "$top/data/weights/"
	else
		echo "pack.sh: without $w: its tests are skipped there"
	fi
done
chmod -R u+w "$top"
git rev-parse --short=12 HEAD >"$top/commit" 2>/dev/null || echo "unknown" >"$top/commit"
[ -z "$(git status --porcelain 2>/dev/null)" ] || sed -i 's/$/, changed/' "$top/commit"

tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -cf - quern-gpu | gzip -9 >"$archive.new"
mv "$archive.new" "$archive"
for p in "$top"/*; do
	[ ! -e "$p" ] || printf '%10d  %s\n' "$(du -sb "$p" | cut -f1)" "${p##*/}"
done
echo "by size:"
(cd "$top" && du -sb bin/* gpu/* lib/*.so* lib/cxx/* tests/tiny/* references/* models/* data/*/* | sort -k1,1nr | awk '{printf "%10d  %s\n", $1, $2}' | head -n 40)
size=$(stat -c %s "$archive")
printf '%10d  unpacked\n%10d  %s\n' "$(du -sb "$top" | cut -f1)" "$size" "$archive"
[ "$size" -le $most ] || { echo "pack.sh: more than $most bytes" >&2 && exit 1; }
