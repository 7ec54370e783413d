#!/bin/sh
# The wheel with the programs inside, in bare roots of Debian 12 and 13 without a network: installed into an environment, the
# README's lines of Python, the command, a worker that is killed; and the same wheel twice.
. deploy/check/lib/check.sh
packages python3 python3-venv binutils mmdebstrap
need_root
need_namespaces
. /etc/os-release

step "the wheel, twice"
make -s wheel || not_run "the wheel cannot be built (PyPI is not reached?)"
wheel=$(ls "$BUILD"/wheel/dist/quern-*.whl)
sum=$(sha256sum <"$wheel")
make -s wheel >/dev/null
[ "$sum" = "$(sha256sum <"$wheel")" ] || fail "two wheels of the same files differ"
own=$(echo "$wheel" | sed -n 's/.*-manylinux_2_\([0-9]*\)_.*/\1/p')
echo "${wheel##*/}: $(stat -c %s "$wheel") bytes"

cat >"$WORK/lines.py" <<'EOF'
import os, signal, time
from quern import LLM, SamplingParams
with LLM("demo") as llm:
    story = llm.generate(["Once upon a time"], SamplingParams(max_tokens=60, seed=7))[0].outputs[0].text
    assert len(story) > 40, story
    os.kill(llm.client.workers()[0]["pid"], signal.SIGKILL)
    again = llm.generate(["Once upon a time"], SamplingParams(max_tokens=60, seed=7))[0].outputs[0].text
    assert again == story, again
print("the same story")
EOF

uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' "Origin: ${NAME%% *}" |
	awk -v release="${VERSION_CODENAME:-}" '$2 == release { print $1; exit }')
[ "${ID:-}" = debian ] && [ -n "$uri" ] || not_run "the archive of Debian is missing in apt's sources"

# try SUITE GLIBC PYTHON: the minor version of its glibc, and its Python's.
try() {
	if [ "$2" -lt "$own" ]; then
		echo "$1 has glibc 2.$2: this wheel is not for it"
		return
	fi
	step "$1: a bare root, the wheel and what it needs of PyPI"
	copy=$BUILD/deploy-check/root-wheel-$1.tar
	[ -f "$copy" ] || mmdebstrap --variant=minbase --include=python3,python3-venv "$1" "$copy" "deb $uri $1 main" ||
		not_run "a root of $1: mmdebstrap failed, see above (no network?)"
	mkdir -p "$WORK/$1/root/wheels"
	tar -C "$WORK/$1" -xf "$copy"
	"$BUILD/wheel/venv/bin/pip" download -q --disable-pip-version-check --python-version "$3" --only-binary :all: \
		-d "$WORK/$1/root/wheels" "$wheel" || not_run "pyzmq and msgpack cannot be had from PyPI"
	cp -r models/demo "$WORK/$1/root/demo"
	cp "$WORK/lines.py" "$WORK/$1/root/"
	in_root "$1" 'python3 -m venv v && v/bin/pip install -q --no-index --find-links wheels quern'
	step "$1: from Python, and as a command"
	in_root "$1" 'v/bin/python lines.py'
	in_root "$1" 'v/bin/quern run demo --raw "Once upon a time" --seed 7 --max-tokens 20'
	in_root "$1" 'v/bin/quern inspect demo && v/bin/quern-bench --version'
	rm -rf "${WORK:?}/$1"
}

# Runs a line of shell as root of the root, without a network.
in_root() {
	unshare --mount --pid --net --fork --kill-child sh -c 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" -o rw &&
		ip link set lo up && exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 sh -ec "cd; $2"' sh "$WORK/$1" "$2" ||
		fail "$1: $2"
}

try bookworm 36 3.11
try trixie 41 3.13
