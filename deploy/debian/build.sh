#!/bin/sh
# Debian packages of what is built in BUILD: build.sh BUILD, which `make deb` runs.
#   BUILD/deb/quern_VERSION_ARCH.deb        programs, pages, completion, units, configuration, the demo model
#   BUILD/deb/quern-cuda_VERSION_ARCH.deb   the CUDA kernels, where they are built
# Without debhelper: what is in a package can be read here.  Two builds of a commit by the same compiler give the same
# bytes.
set -eu
here=$(dirname "$0")
build=$1
version=$("$here/../version.sh")
SOURCE_DATE_EPOCH=$("$here/../version.sh" time)
export SOURCE_DATE_EPOCH
arch=$(dpkg --print-architecture)
out=$build/deb
rm -rf "$out" && mkdir -p "$out"

# depends FILE...: the packages of the libraries that these link.
depends() {
	work=$(mktemp -d)
	mkdir "$work/debian"
	printf 'Source: quern\nPackage: quern\nArchitecture: any\n' >"$work/debian/control"
	files=$(realpath "$@")
	(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info $files 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
	rm -rf "$work"
}

# control PACKAGE DEPENDS DESCRIPTION [FIELD...]
control() {
	mkdir -p "$out/$1/DEBIAN"
	{
		printf 'Package: %s\nVersion: %s\nArchitecture: %s\nSection: net\nPriority: optional\n' "$1" "$version" "$arch"
		printf 'Maintainer: the quern developers <quern@localhost>\n'
		printf 'Installed-Size: %s\n' "$(du -sk --exclude=DEBIAN "$out/$1" | cut -f1)"
		printf 'Depends: %s\n' "$2"
		[ -z "${4:-}" ] || printf '%s\n' "$4"
		printf 'Description: %s\n' "$3"
	} >"$out/$1/DEBIAN/control"
}

# The documents of a package, and what Debian asks of each.
documents() {
	doc=$out/$1/usr/share/doc/$1
	install -d "$doc"
	install -m 644 "$here/copyright" "$doc/copyright"
	printf 'quern (%s) unstable; urgency=medium\n\n  * CHANGELOG.md has the changes.\n\n -- the quern developers <quern@localhost>  %s\n' \
		"$version" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
}

finish() {
	root=$out/$1
	(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	chmod -R u=rwX,go=rX "$root"
	find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch -h -d "@$SOURCE_DATE_EPOCH"
	dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null
	rm -rf "$root"
	ls "$out/$1"_*.deb
}

# ---- quern ----
root=$out/quern
make -s install BUILD="$build" DESTDIR="$(realpath "$out")/quern" PREFIX=/usr >/dev/null
rm -f "$root/usr/lib/libquern-cuda.so"
rmdir "$root/usr/lib" 2>/dev/null || true
strip --strip-unneeded "$root"/usr/bin/*
gzip -9n "$root"/usr/share/man/man1/*.1
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
"$here/units.sh" "$root/usr/lib/systemd/system"
rm -r "$root"/usr/lib/systemd/system/*.d
install -d "$root/etc/quern" "$root/usr/share/quern/demo"
install -m 644 "$here/quern.conf" "$here/worker.conf" "$root/etc/quern"
install -m 644 models/demo/* "$root/usr/share/quern/demo"
documents quern
install -m 644 README.md CHANGELOG.md "$root/usr/share/doc/quern"
cp -r docs "$root/usr/share/doc/quern/docs"
control quern "$(depends "$root"/usr/bin/*), adduser" "LLM inference service
 A controller that tokenizes and schedules, and workers that compute, one per
 device: on any x86-64 processor, and with quern-cuda on NVIDIA GPUs.  Clients
 of OpenAI, Anthropic, Ollama and llama.cpp can use it; durable jobs survive
 crashes, and outputs do not depend on load, preemption or lost workers." "Pre-Depends: init-system-helpers (>= 1.54)
Suggests: quern-cuda"
printf '/etc/quern/quern.conf\n/etc/quern/worker.conf\n' >"$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN"
finish quern

# ---- quern-cuda ----
cuda=$build/lib/libquern-cuda.so
if [ ! -e "$cuda" ]; then
	echo "no $cuda: quern-cuda is not built (make cuda, where nvcc is)"
	exit
fi
root=$out/quern-cuda
install -D -m 644 "$cuda" "$root/usr/lib/libquern-cuda.so"
strip --strip-unneeded "$root/usr/lib/libquern-cuda.so"
"$here/units.sh" "$root/usr/lib/systemd/system"
rm "$root"/usr/lib/systemd/system/*.service
documents quern-cuda
control quern-cuda "$(depends "$cuda"), quern (= $version)" "LLM inference service, kernels for NVIDIA GPUs
 With it, quern serves on GPUs of compute capability 8.0 or newer
 (--device cuda:0).  NVIDIA's driver must be installed; NCCL (several GPUs for
 one model) and cuBLAS (--fast) are opened where they are." "Recommends: libcuda1
Suggests: libnccl2"
install -m 755 "$here/cuda.postinst" "$root/DEBIAN/postinst"
install -m 755 "$here/cuda.postrm" "$root/DEBIAN/postrm"
finish quern-cuda
