#!/bin/sh
# Installs the packages that quern needs on Debian and Ubuntu; does nothing if all are installed.
#   deps.sh build     compiler and libraries
#   deps.sh unit      those, and the libraries of the tests in C
#   deps.sh test      those, and a Python environment for the tests (under build/)
#   deps.sh lint      those of build, binutils, Python and the pinned clang-format (under build/)
#   deps.sh fuzz      those of build, and clang with its sanitizers and libFuzzer
#   deps.sh sass      g++, binutils, Python and, where nvcc is, a disassembler of its machine code (under build/);
#                     test brings it, too
#   deps.sh packages NAME...   these
# Without root or sudo it prints the command to run as root.
set -eu
cd "$(dirname "$0")/.."
what=${1:-build}
[ "$what" != packages ] || { shift; named=$*; }

have() {
	dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed'
}

# msgpack's C library has two names: libmsgpack-dev up to Debian 12 and Ubuntu 23, then
# libmsgpack-c-dev.
msgpack() {
	if have libmsgpack-dev || { ! have libmsgpack-c-dev && ! apt-cache show libmsgpack-c-dev >/dev/null 2>&1; }; then
		echo libmsgpack-dev
	else
		echo libmsgpack-c-dev
	fi
}

# The page's test drives a browser; where the distribution has it only as a snap, the test is skipped.
browser() {
	if apt-cache show chromium-driver >/dev/null 2>&1; then
		echo chromium chromium-driver
	fi
}

missing() {
	packages="gcc make pkg-config libc6-dev libzmq3-dev $(msgpack) libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libmicrohttpd-dev libsqlite3-dev libgnutls28-dev libcurl4-openssl-dev libedit-dev"
	[ "$what" != unit ] || packages="$packages g++ libcriterion-dev"
	[ "$what" != test ] || packages="$packages g++ libcriterion-dev python3 python3-venv iproute2 zsh groff-base $(browser)"
	[ "$what" != lint ] || packages="$packages g++ binutils python3 python3-venv"
	[ "$what" != sass ] || packages="$packages g++ binutils python3 python3-venv"
	[ "$what" != fuzz ] || packages="$packages clang libclang-rt-dev python3"
	[ "$what" != packages ] || packages=$named
	for p in $packages; do
		have "$p" || printf '%s ' "$p"
	done
}

need=$(missing)
if [ -n "$need" ]; then
	if ! command -v apt-get >/dev/null; then
		echo "quern needs the counterparts of these Debian packages: $need" >&2
		exit 1
	fi
	if [ "$(id -u)" = 0 ]; then sudo=
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo
	else
		echo "quern needs some packages. As root, run:" >&2
		echo "  apt-get install -y $need" >&2
		exit 1
	fi
	echo "installing: $need"
	log=$(mktemp)
	# The name of a package may be unknown until the lists are updated.
	{ $sudo apt-get -o DPkg::Lock::Timeout=300 update && need=$(missing) && $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $need; } \
		>"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "apt-get failed: see $log" >&2; exit 1; }
	rm -f "$log"
fi

# python VENV REQUIREMENTS: a Python environment with what the file lists.  An existing one is kept:
# several checkouts may share it through a link.
python() {
	cmp -s "$2" "$1/.installed" 2>/dev/null && return
	echo "installing Python packages of $2 into $1"
	mkdir -p build
	# Debian's own python3 has ensurepip only through python3-venv; another python3 first on PATH
	# will do as well.
	[ -x "$1/bin/pip" ] || python3 -m venv "$1" || /usr/bin/python3 -m venv --clear "$1"
	"$1/bin/pip" install -q --disable-pip-version-check --no-compile -r "$2"
	cp "$2" "$1/.installed"
}
[ "$what" != test ] || python build/venv tests/requirements.txt
[ "$what" != lint ] || python build/venv-lint tests/lint/requirements.txt
[ "$what" != lint ] || python build/venv-types tests/lint/requirements-types.txt

# The toolkit may have nvdisasm, or be without it; tests that want it are skipped where it cannot be had.
disassembler() {
	nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
	[ -x "$nvcc" ] || return 0
	! command -v nvdisasm >/dev/null && [ ! -x "$(dirname "$(readlink -f "$nvcc")")/nvdisasm" ] || return 0
	(python build/venv-sass tests/sass/requirements.txt) || echo "no nvdisasm: make sass compares nothing"
}
case $what in test|sass) disassembler ;; esac
