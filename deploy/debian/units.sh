#!/bin/sh
# The systemd units of the packages, into a folder: units.sh OUT.
#   quern.service, quern-worker@.service      each with hardening.conf in it
#   quern.service.d, quern-worker@.service.d  cuda.conf of quern-cuda
set -eu
here=$(dirname "$0")
out=$1
for unit in quern.service quern-worker@.service; do
	mkdir -p "$out/$unit.d"
	sed -e "/^#HARDENING\$/{r $here/hardening.conf" -e 'd}' "$here/$unit" >"$out/$unit"
	cp "$here/cuda.conf" "$out/$unit.d/cuda.conf"
done
