#!/bin/sh
# The Debian packages on a machine of their own (lib/machine.sh): installed, started by systemd, a job submitted, a
# worker killed, upgraded with its journal, drained, joined by a worker of another unit, removed and purged.
. deploy/check/lib/check.sh
. deploy/check/lib/machine.sh
need_root
page=docs/deploy/debian.md

local_run() { "$@"; }
job() { machine quern submit --raw "Once upon a time" --seed 7 "$@"; }
# The processes of the unit with this name.
pids() { machine pgrep -u quern -x "$1"; }
serves() { [ "$(machine systemctl show -P StatusText quern)" = "serves demo" ]; }

step "packages"
documented $page local_run "make deb"
deb=$(ls "$BUILD"/deb/quern_*.deb)
version=$(dpkg-deb -f "$deb" Version)
cuda=$(ls "$BUILD"/deb/quern-cuda_*.deb 2>/dev/null || true)
for package in "$deb" $cuda; do
	echo "${package##*/}: $(stat -c %s "$package") bytes, Installed-Size $(dpkg-deb -f "$package" Installed-Size) KiB"
done
cp "$deb" "$WORK/first.deb"
deploy/debian/build.sh "$BUILD" >/dev/null
cmp "$WORK/first.deb" "$deb" || fail "two builds of one commit differ"

step "a clean root, and its systemd"
machine_root systemd systemd-sysv sudo procps curl adduser
mkdir -p "$WORK/root/root/build/deb"
cp "$deb" "$WORK/root/root/build/deb/"
chroot "$WORK/root" apt-get -qq update
chroot "$WORK/root" apt-get -qq install -y --no-install-recommends --download-only "/root/build/deb/${deb##*/}" ||
	not_run "the libraries that the package needs, from the archive (no network?)"
machine_boot

step "installed and started"
documented $page machine "sudo apt-get install -y ./build/deb/quern_*.deb"
wait_for 60 "the service" serves
documented $page machine "systemctl status quern"
documented $page machine "quern status"
documented $page machine 'quern submit "Tell me a story."'
documented $page machine "journalctl -u quern"
[ "$(machine systemctl show -P NRestarts quern)" = 0 ] || fail "the service was restarted"
machine stat -c '%U %a %n' /var/lib/quern/journal /run/quern /etc/quern/quern.conf
machine curl -sf http://127.0.0.1:8080/readyz
machine systemd-analyze security --threshold=20 quern.service >/dev/null || fail "exposure beyond 2.0"

step "a worker is killed: its job ends with the same tokens"
want=$(job -m 400 --ignore-eos)
: >"$WORK/text"
job -m 400 --ignore-eos >>"$WORK/text" &
running=$!
wait_for 30 "the first tokens" test -s "$WORK/text"
machine pkill -KILL -u quern -x quern-worker
wait $running || fail "the job did not survive its worker"
[ "$want" = "$(cat "$WORK/text")" ] || fail "another text after the worker was killed"
wait_for 60 "another worker" pids quern-worker
[ "$(machine systemctl show -P NRestarts quern)" = 0 ] || fail "the unit was restarted with the worker"

step "reloaded, and restarted by the administrator"
documented $page machine "sudo systemctl reload quern"
machine sed -i 's/^drain-timeout = 30/drain-timeout = 31/' /etc/quern/quern.conf
documented $page machine "sudo systemctl restart quern"
serves || fail "restart returned before the service was ready"

step "a controller that is killed is replaced, a supervisor that is killed restarts the unit"
machine pkill -KILL -u quern -x quern-controlle
wait_for 60 "another controller" job -m 2
machine pkill -KILL -u quern -x quern
wait_for 60 "another service" job -m 2
[ "$(machine systemctl show -P NRestarts quern)" = 1 ] || fail "systemd did not restart the unit"

step "upgraded: the journal, the configuration, and a job that runs"
done=$(job --durable --detach -m 20)
machine quern attach "$done" >/dev/null
half=$(job --durable --detach -m 400 --ignore-eos)
dpkg-deb -R "$deb" "$WORK/next"
sed -i "s/^Version: .*/Version: $version+1/" "$WORK/next/DEBIAN/control"
dpkg-deb --root-owner-group -b "$WORK/next" "$WORK/root/root/next.deb" >/dev/null
machine apt-get -qq install -y ./next.deb
[ "$(machine dpkg-query -W -f '${Version}' quern)" = "$version+1" ] || fail "the next version is not installed"
serves || fail "the upgrade did not leave a service that serves"
[ "$(machine quern attach "$half")" = "$want" ] || fail "the job that ran during the upgrade has another text"
machine quern result "$done" >/dev/null || fail "the journal was lost"
machine grep -q '^drain-timeout = 31' /etc/quern/quern.conf || fail "the configuration was overwritten"

step "stopped: a running request ends"
: >"$WORK/text"
job -m 400 --ignore-eos >>"$WORK/text" &
running=$!
wait_for 30 "the first tokens" test -s "$WORK/text"
machine systemctl stop quern
wait $running || fail "the request was cut"
[ "$want" = "$(cat "$WORK/text")" ] || fail "the request was cut short"
[ "$(machine systemctl show -P Result quern)" = success ] || fail "the unit did not end in success"

step "started, several times: systemctl start returns when the service is ready"
begin() { machine systemctl start quern; }
# More starts in a row than the unit's limit are meant here.
end() { machine systemctl stop quern && machine systemctl reset-failed quern; }
starts 9 "quern.service" begin true end

step "a worker of another unit"
machine sed -i 's,^#bus = .*,bus = tcp://127.0.0.1:7430,' /etc/quern/quern.conf
machine systemctl start quern
documented $page machine "sudo systemctl enable --now quern-worker@cpu"
two() { [ "$(machine quern workers --json | grep -o '"state":"serving"' | wc -l)" = 2 ]; }
wait_for 60 "two workers" two
documented $page machine "quern workers"

if [ -n "$cuda" ]; then
	step "the CUDA kernels, without a driver: installed, the service serves on the CPU, and a reason where a GPU is wanted"
	cp "$cuda" "$WORK/root/root/"
	[ "$(dpkg-deb -c "$cuda" | awk '{ print $6 }' | grep -v -e '/$' -e /usr/share/doc/)" = "./usr/lib/libquern-cuda.so
./usr/lib/systemd/system/quern-worker@.service.d/cuda.conf
./usr/lib/systemd/system/quern.service.d/cuda.conf" ] || fail "quern-cuda has other files: $(dpkg-deb -c "$cuda")"
	! dpkg-deb -f "$cuda" Depends | grep -qE 'libcuda|libcublas|libnccl|nvidia' || fail "quern-cuda depends on the toolkit"
	# Of the version that is installed; the driver's library, which it recommends, is in no archive of free software.
	dpkg-deb -R "$cuda" "$WORK/next-cuda"
	sed -i -e "s/^Version: .*/Version: $version+1/" -e "s/quern (= $version)/quern (= $version+1)/" "$WORK/next-cuda/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$WORK/next-cuda" "$WORK/root/root/next-cuda.deb" >/dev/null
	machine apt-get -qq install -y --no-install-recommends ./next-cuda.deb
	wait_for 60 "the service with the CUDA kernels beside it" serves
	# A unit that was read before the drop-in was there has private devices; installing must have it read again.
	[ "$(machine systemctl show -P PrivateDevices quern)" = no ] || fail "the unit's drop-in is not in force"
	machine systemd-analyze security --threshold=20 quern.service >/dev/null || fail "exposure beyond 2.0 with quern-cuda"
	if machine quern inspect gpu >"$WORK/inspect" 2>&1; then fail "a GPU was found"; fi
	grep -q 'no NVIDIA driver is installed' "$WORK/inspect" || fail "no reason: $(cat "$WORK/inspect")"
	machine apt-get -qq remove -y quern-cuda
	machine test ! -e /usr/lib/libquern-cuda.so || fail "remove left the kernels"
fi

step "removed, and purged"
machine apt-get -qq remove -y quern
if pids quern-worker || pids quern; then fail "processes are left"; fi
machine test -e /var/lib/quern/journal || fail "remove deleted the journal"
machine test ! -e /usr/bin/quern || fail "remove left the programs"
machine apt-get -qq install -y ./next.deb
wait_for 60 "the service" serves
machine quern result "$done" >/dev/null || fail "the journal was lost by remove and install"
documented $page machine "sudo apt-get purge -y quern"
for left in /var/lib/quern /var/cache/quern /etc/quern /usr/share/quern /etc/systemd/system/multi-user.target.wants/quern.service; do
	machine test ! -e $left || fail "purge left $left"
done
all_documented $page
