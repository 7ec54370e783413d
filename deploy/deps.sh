#!/bin/sh
# Installs what quern needs on Debian and Ubuntu, and does nothing when all is there.
#   deps.sh build     compiler and libraries
#   deps.sh test      those, and what the tests need (a Python environment under build/)
#   deps.sh fuzz      those of build, and clang with its sanitizers and libFuzzer
# Without root or sudo it prints the one line to run.
set -eu
cd "$(dirname "$0")/.."
what=${1:-build}

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
	packages="gcc make pkg-config libc6-dev libzmq3-dev $(msgpack) libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libmicrohttpd-dev libsqlite3-dev libgnutls28-dev libcurl4-openssl-dev"
	[ "$what" != test ] || packages="$packages g++ libcriterion-dev python3 python3-venv $(browser)"
	[ "$what" != fuzz ] || packages="$packages clang libclang-rt-dev python3"
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
	# What a package is called may be known only when the lists are here.
	{ $sudo apt-get update && need=$(missing) && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need; } \
		>"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "apt-get failed: the whole of it is in $log" >&2; exit 1; }
	rm -f "$log"
fi

if [ "$what" = test ]; then
	venv=build/venv
	stamp=$venv/.installed
	if ! cmp -s tests/requirements.txt "$stamp" 2>/dev/null; then
		echo "installing the tests' Python packages into $venv"
		mkdir -p build
		# Debian's own python3 has ensurepip only through python3-venv; another python3 first on
		# PATH will do as well.
		# One that is there is kept: several checkouts may share it through a link.
		[ -x "$venv/bin/pip" ] || python3 -m venv "$venv" || /usr/bin/python3 -m venv --clear "$venv"
		"$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt
		cp tests/requirements.txt "$stamp"
	fi
fi
