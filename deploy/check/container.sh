#!/bin/sh
# The container image, run by crun from Debian: as its user, on a read-only root, without capabilities; a job submitted, a
# worker killed, the health check, and SIGTERM to process 1 while a request runs.
. deploy/check/lib/check.sh
need_root
need_namespaces
packages crun umoci skopeo jq procps curl
with_cgroup2
limit_mb=60

step "the image: twice the same, valid for two other programs, under $limit_mb MB"
make -s image BUILD="$BUILD"
image=$BUILD/image
python3 deploy/container/image.py "$BUILD" "$WORK/again"
cmp "$image/index.json" "$WORK/again/index.json" || fail "two images of one build differ"
rm -r "$WORK/again"
tag=$(jq -r '.manifests[0].annotations["org.opencontainers.image.ref.name"]' "$image/index.json")
skopeo inspect --raw "oci:$image:$tag" >"$WORK/manifest.json"
bytes=$(jq "[.layers[].size] | add" "$WORK/manifest.json")
[ "$bytes" -lt $((limit_mb * 1000000)) ] || fail "the image has $bytes bytes"
echo "image: $bytes bytes compressed, $(gzip -dc "$image/blobs/sha256/$(jq -r '.layers[0].digest' "$WORK/manifest.json" | cut -d: -f2)" | wc -c) unpacked"
umoci unpack --image "$image:$tag" "$WORK/bundle"
skopeo copy -q "oci:$image:$tag" "docker-archive:$WORK/docker.tar:quern:check"
tar -xOf "$WORK/docker.tar" "$(tar -xOf "$WORK/docker.tar" manifest.json | jq -r '.[0].Config')" | jq -e '.config.User == "10001:10001"' >/dev/null ||
	fail "Docker's form of the image has another user"

# What a runtime adds to the image: a read-only root, a tmpfs, a volume, no capabilities, a network of its own.
install -d -o 10001 -g 10001 -m 700 "$WORK/volume"
jq --arg volume "$WORK/volume" '
	.root.readonly = true | .process.terminal = false | .process.noNewPrivileges = true
	| .process.capabilities = {bounding: [], effective: [], permitted: [], inheritable: [], ambient: []}
	| .hostname = "quern" | .linux.resources = {} | del(.linux.cgroupsPath)
	| .linux.namespaces = [{type: "pid"}, {type: "network"}, {type: "ipc"}, {type: "uts"}, {type: "mount"}]
	| .mounts = [.mounts[] | select(.destination != "/run/quern" and .destination != "/var/lib/quern" and .type != "cgroup")]
	+ [{destination: "/run/quern", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev", "noexec", "mode=700", "uid=10001", "gid=10001"]},
	   {destination: "/var/lib/quern", type: "bind", source: $volume, options: ["bind", "rw", "nosuid", "nodev"]}]' \
	"$WORK/bundle/config.json" >"$WORK/config.json"
cp "$WORK/config.json" "$WORK/bundle/config.json"

crun="crun --root $WORK/state --cgroup-manager=disabled"
name=quern-check-$$
inside() { $crun exec --cap= "$name" "$@"; }
process() { $crun state "$name" | jq .pid; }
clean_up() {
	$crun delete --force "$name" >/dev/null 2>&1 || true
	rm -rf "$WORK/bundle" "$WORK/docker.tar" "$WORK/volume"
}
start() {
	$crun run --bundle "$WORK/bundle" --pid-file "$WORK/pid" "$name" >>"$WORK/container.log" 2>&1 &
	runtime=$!
	wait_for 60 "the container's health check" inside /usr/bin/quern health
}
job() { inside /usr/bin/quern submit --raw "Once upon a time" --seed 7 "$@"; }
trap clean_up EXIT

step "started: process 1, user 10001, no capabilities, nothing to write to"
start
pid=$(process)
[ "$(awk '/^NSpid/ { print $NF }' "/proc/$pid/status")" = 1 ] || fail "quern is not process 1"
grep -q '^Uid:.10001.10001.10001.10001$' "/proc/$pid/status" || fail "another user than 10001"
grep -q '^CapEff:.0*$' "/proc/$pid/status" || fail "capabilities are left"
grep -q ' / ro' "/proc/$pid/mountinfo" || fail "the root can be written"
inside /usr/bin/quern status

step "a worker is killed: its job ends with the same tokens"
want=$(job -m 400 --ignore-eos)
: >"$WORK/text"
job -m 400 --ignore-eos >>"$WORK/text" &
running=$!
wait_for 30 "the first tokens" test -s "$WORK/text"
kill -KILL "$(pgrep -P "$pid" quern-worker)"
wait $running || fail "the job did not survive its worker"
[ "$want" = "$(cat "$WORK/text")" ] || fail "another text after the worker was killed"
wait_for 30 "health after the worker was replaced" inside /usr/bin/quern health

step "SIGTERM to process 1 while a request runs: it ends, and the container with status 0"
job --durable --detach -m 20 >"$WORK/durable"
inside /usr/bin/quern attach "$(cat "$WORK/durable")" >"$WORK/durable.text"
: >"$WORK/text"
job -m 400 --ignore-eos >>"$WORK/text" &
running=$!
wait_for 30 "the first tokens" test -s "$WORK/text"
$crun kill "$name" TERM
# `crun exec` ends with the container: what the request got by then is compared, not its exit status.
wait $running || true
wait $runtime || fail "the container ended with status $?"
[ "$want" = "$(cat "$WORK/text")" ] || fail "the request was cut"

step "started again on its volume: the journal has the durable job"
$crun delete --force "$name" >/dev/null 2>&1 || true
start
inside /usr/bin/quern result "$(cat "$WORK/durable")" >/dev/null || fail "the journal was lost"
$crun kill "$name" TERM
wait $runtime || fail "the container ended with status $?"

step "from the runtime's start to /readyz, several times"
begin() {
	rm -f "$WORK/pid"
	$crun run --bundle "$WORK/bundle" --pid-file "$WORK/pid" "$name" >>"$WORK/container.log" 2>&1 &
	runtime=$!
}
ready() { [ -s "$WORK/pid" ] && nsenter -t "$(cat "$WORK/pid")" -n curl -sf http://127.0.0.1:8080/readyz; }
end() {
	$crun kill "$name" TERM
	wait $runtime || fail "the container ended with status $?"
	$crun delete --force "$name" >/dev/null 2>&1 || true
}
$crun delete --force "$name" >/dev/null 2>&1 || true
starts 9 container begin ready end

[ -e "$BUILD/lib/libquern-cuda.so" ] || { echo "the CUDA image: not tried, $BUILD/lib/libquern-cuda.so is not built (make cuda)"; exit; }
step "the image with CUDA kernels: nothing of the toolkit or the driver, and a reason where there is no GPU"
python3 deploy/container/image.py "$BUILD" "$WORK/cuda" --cuda
rm -rf "$WORK/bundle"
umoci unpack --image "$WORK/cuda:$(jq -r '.manifests[0].annotations["org.opencontainers.image.ref.name"]' "$WORK/cuda/index.json")" "$WORK/bundle"
cp "$WORK/config.json" "$WORK/bundle/config.json"
find "$WORK/bundle/rootfs" -name 'libcuda*' -o -name 'libcublas*' -o -name 'libnv*' -o -name 'libnccl*' >"$WORK/toolkit"
[ ! -s "$WORK/toolkit" ] || fail "the image has files of the toolkit or the driver: $(cat "$WORK/toolkit")"
# run_once ARGUMENTS: its output, and its exit status
run_once() {
	jq --argjson args "$(printf '%s\n' "$@" | jq -R . | jq -s .)" '.process.args = $args' "$WORK/config.json" >"$WORK/bundle/config.json"
	timeout 60 $crun run --bundle "$WORK/bundle" "$name" </dev/null 2>&1
}
if run_once /usr/bin/quern inspect gpu >"$WORK/inspect"; then fail "a GPU was found: $(cat "$WORK/inspect")"; fi
grep -q 'no NVIDIA driver is installed' "$WORK/inspect" || fail "no reason: $(cat "$WORK/inspect")"
if run_once /usr/bin/quern worker --join 127.0.0.1:1 --grace 1 >"$WORK/join"; then fail "a worker without a controller succeeded"; fi
grep -q 'join without a GPU device=cpu reason=".*no NVIDIA driver is installed' "$WORK/join" || fail "no reason: $(cat "$WORK/join")"
cp "$WORK/config.json" "$WORK/bundle/config.json"
start
job -m 2
end
