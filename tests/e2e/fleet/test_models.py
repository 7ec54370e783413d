"""A worker's model: the controller's model from its path, from the cache, or fetched; otherwise none.

"Another host" is a mount namespace in which the controller's path is an empty folder."""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import msgpack
import pytest
import zmq

from jobclient import JobClient
from service import BIN, BUS_VERSION, DEMO, QUERN, eventually, free_port, marked, no_processes_left, spawn

PROMPT = "Once upon a time"
SHORT = dict(max_tokens=16, temperature=0, ignore_eos=True)
MIB = 1 << 20


def other_weights(model, out):
    """Change the values of the model's weights; names, sizes and headers stay."""
    weights = bytearray((model / "model.safetensors").read_bytes())
    (header,) = struct.unpack("<Q", weights[:8])
    for at in range(8 + header, len(weights), 1000):
        weights[at] ^= 1
    out.write_bytes(weights)


def pad(model, mib):
    """Add a tensor that no worker uses, so that there is more to fetch."""
    data = (model / "model.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    header["padding"] = {"dtype": "U8", "shape": [mib * MIB], "data_offsets": [len(body), len(body) + mib * MIB]}
    text = json.dumps(header).encode()
    piece = random.Random(7).randbytes(MIB)
    with open(model / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
        for i in range(mib):
            f.write(bytes([i % 256]) + piece[1:])


@pytest.fixture
def model(tmp_path):
    """A copy of the demo model."""
    folder = tmp_path / "model"
    folder.mkdir()
    for f in DEMO.iterdir():
        if f.suffix in (".json", ".safetensors") and f.name != "checks.json":
            shutil.copy(f, folder / f.name)
    return folder


@pytest.fixture(scope="module")
def namespaces():
    r = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, timeout=30)
    if r.returncode:
        pytest.skip(f"mount namespaces: {r.stderr}")


class Relay:
    """A relay between workers and the bus. It passes on `allowed` bytes of the controller, then blocks."""

    def __init__(self, path, bus, allowed):
        self.bus, self.allowed, self.passed, self.more = bus, allowed, 0, threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.path = path
        threading.Thread(target=self._accept, daemon=True).start()

    def allow(self, n):
        with self.more:
            self.allowed += n
            self.more.notify_all()

    def _accept(self):
        while True:
            try:
                worker, _ = self.listener.accept()
                bus = socket.socket(socket.AF_UNIX)
                bus.connect(str(self.bus))
            except OSError:    # the listener is closed, or there is no controller: the worker tries again
                if self.listener.fileno() < 0:
                    return
                worker.close()
                continue
            threading.Thread(target=self._copy, args=(worker, bus, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(bus, worker, True), daemon=True).start()

    def _copy(self, source, to, counted):
        try:
            while data := source.recv(1 << 16):
                with self.more:
                    self.more.wait_for(lambda: not counted or self.passed < self.allowed)
                    self.passed += len(data) if counted else 0
                to.sendall(data)
        except OSError:
            pass
        for s in (source, to):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Hosts:
    """A controller, and workers on "other hosts"; all end with the test."""

    def __init__(self, model, folder, bus=None, of_controller=(), of_worker=()):
        self.model, self.folder, self.mark = model, Path(folder), uuid.uuid4().hex
        self.bus, self.jobs = bus or f"ipc://{folder}/bus", f"ipc://{folder}/jobs"
        self.of_controller, self.of_worker = of_controller, of_worker
        self.cache = self.folder / "cache"
        self.logs = []
        self.start_controller()

    def _spawn(self, argv):
        self.logs.append(self.folder / f"log{len(self.logs)}")
        with open(self.logs[-1], "wb") as log:
            return spawn(argv, self.mark, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def start_controller(self, model=None):
        self.controller = self._spawn([BIN / "quern-controller", "--model", model or self.model, "--bus", self.bus, "--jobs",
                                       self.jobs, "--http", "none", "--drain-timeout", "0", "--cache", self.folder / "of-controller", *self.of_controller])
        self.controller_log = self.logs[-1]

    def worker(self, *options, mounts="", cache=None):
        """mounts: further commands in its mount namespace."""
        script = f'mount -t tmpfs none "$0" && {mounts or "true"} && exec "$@"'
        p = self._spawn(["unshare", "-rm", "sh", "-c", script, self.model, BIN / "quern-worker", "--bus", self.bus, "--cache",
                         cache or self.cache, *self.of_worker, *options])
        p.log = self.logs[-1]
        return p

    def tokens(self):
        with JobClient(self.jobs) as c:
            return c.generate(PROMPT, **SHORT).tokens

    def workers(self):
        with JobClient(self.jobs) as c:
            return c.workers()

    def entries(self, cache=None):
        """Return the finished cache entries, as quern list shows them."""
        r = subprocess.run([QUERN, "list", "--json"], env={**os.environ, "QUERN_MODELS": str(cache or self.cache)},
                           capture_output=True, text=True, timeout=30)
        assert r.returncode == 0, r.stderr
        return [e for e in json.loads(r.stdout) if not e["partial"]]

    def part(self):
        """Return the number of weight bytes that an unfinished fetch has."""
        sizes = [f.stat().st_size for f in self.cache.glob("_fetched/*/.*.part/.model.safetensors.part")]
        return max(sizes, default=0)

    def resumed_at(self, log):
        """Return the MiB present when the last fetch in that log began."""
        lines = [line for line in log.read_text().splitlines() if "fetching the model" in line]
        starts = [line for line in lines if line.endswith("mib_per_s=0.0")]
        return int(starts[-1].split("mib=")[1].split()[0])

    def close(self):
        for pid in marked(self.mark):
            os.kill(pid, signal.SIGKILL)
        no_processes_left(self.mark)


@pytest.fixture
def hosts(model, namespaces):
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        h = Hosts(model, d)
        yield h
        h.close()


def of_path(model, tmp_path):
    """Return the tokens of a worker that has the path."""
    with tempfile.TemporaryDirectory(prefix="quern-path-") as d:
        h = Hosts(model, d)
        p = h._spawn([BIN / "quern-worker", "--bus", h.bus, "--fetch", "never", "--cache", Path(d) / "none"])
        try:
            return h.tokens()
        finally:
            assert p.poll() is None
            h.close()


def test_other_weights_than_the_controllers_are_refused(start, model, tmp_path):
    """The files are replaced while the service runs."""
    s = start(model)
    other_weights(model, tmp_path / "new")
    os.replace(tmp_path / "new", model / "model.safetensors")    # the running worker keeps its mapped file
    (pid,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-work")]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "changed or replaced since the service started" in s.log(), what="the refusal")
    assert "is not the model that the controller serves: their weights differ" in s.log()
    s.stop(signal.SIGKILL)


def test_a_worker_fetches_the_model_and_finds_it_again(hosts, model, tmp_path):
    known = of_path(model, tmp_path)
    w = hosts.worker()
    assert hosts.tokens() == known
    assert "model fetched path=" in w.log.read_text()
    (entry,) = hosts.entries()
    assert entry["name"] == "_fetched/model" and entry["kind"] == "safetensors"
    for f in ("config.json", "model.safetensors"):
        assert (Path(entry["path"]) / f).read_bytes() == (model / f).read_bytes()
    os.kill(w.pid, signal.SIGTERM)
    w.wait(30)
    again = hosts.worker("--fetch", "never")
    assert hosts.tokens() == known
    assert "model found in the cache" in again.log.read_text()
    r = subprocess.run([QUERN, "rm", "_fetched/model"], env={**os.environ, "QUERN_MODELS": str(hosts.cache)},
                       capture_output=True, text=True, timeout=30)
    assert r.returncode == 0 and not hosts.entries(), r.stderr


def test_a_worker_takes_what_was_pulled(hosts, model, tmp_path):
    """Any cache entry with these contents is used, whatever its name."""
    place = hosts.cache / "someone" / "something" / ("0" * 40)
    shutil.copytree(model, place)
    w = hosts.worker("--fetch", "never")
    assert hosts.tokens() == of_path(model, tmp_path)
    assert f"model found in the cache path={place}" in w.log.read_text()


def test_a_name_means_what_was_pulled(model, tmp_path):
    """The files that a worker fetches have no tokenizer, and carry the name of the controller's model."""
    for place in ("someone/model/" + "1" * 40, "_fetched/model/" + "2" * 64):
        shutil.copytree(model, tmp_path / "cache" / place)
    (tmp_path / "cache" / "_fetched" / "model" / ("2" * 64) / "tokenizer.json").unlink()
    r = subprocess.run([QUERN, "tokenize", "model", "--ids"], env={**os.environ, "QUERN_MODELS": str(tmp_path / "cache")},
                       input=PROMPT, capture_output=True, text=True, timeout=30)
    assert r.returncode == 0 and r.stdout.split(), r.stderr


def test_a_controller_with_pointers_serves_workers_that_have_the_model(model, namespaces, tmp_path):
    """The controller has a clone without git lfs: it needs only the configuration and the tokenizer."""
    known = of_path(model, tmp_path)
    real = shutil.copytree(model, tmp_path / "real")
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        h = Hosts(model, d)
        try:
            h.worker(mounts=f'mount --bind "{real}" "{model}"')
            assert h.tokens() == known
            assert "model.safetensors is a git-lfs pointer" in h.controller_log.read_text()
        finally:
            h.close()


def test_never_fetches_nothing(hosts):
    w = hosts.worker("--fetch", "never")
    assert w.wait(60) == 1
    log = w.log.read_text()
    assert "--fetch never forbids to fetch it" in log and str(hosts.cache) in log
    assert not hosts.cache.exists() or not list(hosts.cache.glob("_fetched/*/*"))


def test_a_damaged_cached_file_is_found_and_fetched_again(hosts, model, tmp_path):
    w = hosts.worker()
    known = hosts.tokens()
    os.kill(w.pid, signal.SIGKILL)
    w.wait(30)
    (entry,) = hosts.entries()
    weights = Path(entry["path"]) / "model.safetensors"
    with open(weights, "r+b") as f:
        f.seek(-1000, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-1000, os.SEEK_END)
        f.write(bytes([byte ^ 1]))
    again = hosts.worker()
    assert hosts.tokens() == known
    log = again.log.read_text()
    assert "has another checksum than the controller's" in log and "model fetched" in log
    assert weights.read_bytes() == (model / "model.safetensors").read_bytes()


def test_a_path_with_another_model_is_not_served(hosts, model, tmp_path):
    """auto: fetch the controller's model; never: refuse."""
    other = tmp_path / "other"
    shutil.copytree(model, other)
    other_weights(model, other / "model.safetensors")
    w = hosts.worker("--fetch", "never", mounts=f'mount --bind "{other}" "{model}"')
    assert w.wait(60) == 1
    assert "their weights differ" in w.log.read_text()
    auto = hosts.worker(mounts=f'mount --bind "{other}" "{model}"')
    assert hosts.tokens() == of_path(model, tmp_path)
    assert "their weights differ" in auto.log.read_text() and "model fetched" in auto.log.read_text()


def test_a_fetch_goes_on_after_the_worker_or_the_controller_was_killed(model, namespaces, tmp_path):
    """Data present at the kill is not fetched again, except data in flight."""
    pad(model, 40)
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        hosts = Hosts(model, d)
        bus, hosts.bus = hosts.bus, f"ipc://{d}/relayed"
        relay = Relay(Path(d) / "relayed", Path(d) / "bus", 10 * MIB)

        def held_back(at_least):
            """The relay lets no more through, and the worker has written everything."""
            eventually(lambda: relay.passed >= relay.allowed and hosts.part() >= at_least, what="a part of the model")
            return hosts.part()
        try:
            w = hosts.worker()
            there = held_back(8 * MIB)
            eventually(lambda: "fetching" in [x["doing"] for x in hosts.workers()], what="a worker that fetches")
            os.kill(w.pid, signal.SIGKILL)
            w.wait(30)
            relay.allow(10 * MIB)
            w = hosts.worker()
            eventually(lambda: "fetching the model" in w.log.read_text())
            assert hosts.resumed_at(w.log) >= there // MIB
            there = held_back(16 * MIB)
            starts = w.log.read_text().count("mib_per_s=0.0")
            hosts.controller.kill()
            hosts.controller.wait(30)
            hosts.bus = bus
            hosts.start_controller()
            relay.allow(1 << 40)
            eventually(lambda: w.log.read_text().count("mib_per_s=0.0") > starts)
            assert hosts.resumed_at(w.log) >= there // MIB
            assert hosts.tokens() == of_path(model, tmp_path)
            assert w.poll() is None and relay.passed < 50 * MIB
            (entry,) = hosts.entries()
            a, b = Path(entry["path"]) / "model.safetensors", model / "model.safetensors"
            assert subprocess.run(["cmp", a, b], timeout=60).returncode == 0
        finally:
            relay.listener.close()
            hosts.close()


def test_two_workers_of_a_host_fetch_it_once(hosts):
    both = [hosts.worker() for _ in range(2)]
    eventually(lambda: [w["state"] for w in hosts.workers()] == ["serving"] * 2, what="two workers that serve")
    logs = [w.log.read_text() for w in both]
    assert sum("model fetched" in log for log in logs) == 1
    assert sum("another worker of this host fetches" in log or "model found in the cache" in log for log in logs) >= 1
    assert len(hosts.entries()) == 1


def test_a_small_disk_is_named(hosts):
    small = hosts.folder / "small"
    small.mkdir()
    w = hosts.worker(mounts=f'mount -t tmpfs -o size=4m none "{small}"', cache=small / "cache")
    assert w.wait(60) == 1
    log = w.log.read_text()
    assert "MiB free: quern rm, or --cache on another disk" in log
    with JobClient(hosts.jobs) as c:
        assert not c.ping()["ready"]


def test_a_limit_on_the_size_of_files_is_named(hosts):
    w = hosts.worker(mounts="ulimit -f 1000")
    assert w.wait(60) == 1
    assert "model.safetensors in " in w.log.read_text() and "File too large; what was fetched is kept" in w.log.read_text()


class OneHost:
    """A mount namespace that outlives its workers. The controller's path is an empty folder, the cache a small disk."""

    def __init__(self, hosts, mib):
        self.hosts, self.disk, ready = hosts, hosts.folder / "small", hosts.folder / "mounted"
        self.disk.mkdir()
        script = f'mount -t tmpfs none "$0" && mount -t tmpfs -o size={mib}m none "{self.disk}" && : > "{ready}" && exec sleep 3600'
        self.holder = hosts._spawn(["unshare", "-rm", "sh", "-c", script, hosts.model])
        eventually(ready.exists, what="the mounts")
        self.enter = ["nsenter", "-t", str(self.holder.pid), "-U", "-m", "--preserve-credentials"]

    def worker(self):
        h = self.hosts
        p = h._spawn([*self.enter, BIN / "quern-worker", "--bus", h.bus, "--cache", self.disk / "cache", *h.of_worker])
        p.log = h.logs[-1]
        return p

    def run(self, script):
        r = subprocess.run([*self.enter, "sh", "-c", script, self.disk], capture_output=True, text=True, timeout=60)
        return r.stdout

    def part(self):
        return int(self.run('cat "$0"/cache/_fetched/*/.*.part/.model.safetensors.part 2>&- | wc -c'))


def test_a_disk_that_fills_during_a_fetch_is_named_and_what_came_stays(model, namespaces, tmp_path):
    pad(model, 24)
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        hosts = Hosts(model, d)
        hosts.bus = f"ipc://{d}/relayed"
        relay = Relay(Path(d) / "relayed", Path(d) / "bus", 8 * MIB)
        try:
            host = OneHost(hosts, 64)
            w = host.worker()
            eventually(lambda: relay.passed >= relay.allowed and host.part() >= 6 * MIB, what="a part of the model")
            host.run('dd if=/dev/zero of="$0"/others bs=64k')     # until the disk is full
            there = host.part()
            relay.allow(1 << 40)
            assert w.wait(60) == 1
            log = w.log.read_text()
            assert "the disk is full: quern rm, or --cache on another disk; what was fetched is kept" in log
            assert host.part() >= there
            w = host.worker()      # while the disk is full
            assert w.wait(60) == 1
            assert "MiB free: quern rm, or --cache on another disk" in w.log.read_text()
            host.run('rm "$0"/others')
            w = host.worker()
            assert hosts.tokens() == of_path(model, tmp_path)
            assert hosts.resumed_at(w.log) >= there // MIB and w.poll() is None
        finally:
            relay.listener.close()
            hosts.close()


@pytest.mark.parametrize("caches", [1, 2])
def test_a_group_of_two_fetches_its_model(model, namespaces, tmp_path, caches):
    """The ranks share a cache, and one waits for the other; or each rank has its own cache."""
    pad(model, 24)
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        hosts = Hosts(model, d, of_controller=("--tp", "2"))
        try:
            both = [hosts.worker(cache=hosts.folder / f"cache{i % caches}") for i in range(2)]
            assert hosts.tokens() == of_path(model, tmp_path)
            logs = [w.log.read_text() for w in both]
            assert sum("model fetched" in log for log in logs) == caches
            assert [w.poll() for w in both] == [None, None]
            assert sorted(w["rank"] for w in hosts.workers()) == [0, 1]
        finally:
            hosts.close()


def test_a_group_forms_when_its_last_rank_has_the_model(model, namespaces, tmp_path):
    """The other rank has the model, and waits longer than a rank may be late in a step."""
    pad(model, 24)
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        hosts = Hosts(model, d, of_controller=("--tp", "2"), of_worker=("--rank-timeout", "1"))
        bus, hosts.bus = hosts.bus, f"ipc://{d}/relayed"
        relay = Relay(Path(d) / "relayed", Path(d) / "bus", 4 * MIB)
        try:
            late = hosts.worker()
            early = hosts._spawn([BIN / "quern-worker", "--bus", bus, "--rank-timeout", "1", "--cache", hosts.folder / "none"])
            eventually(lambda: relay.passed >= relay.allowed and len(hosts.workers()) == 2, what="a rank that fetches")
            time.sleep(1.5)
            relay.allow(1 << 40)
            assert hosts.tokens() == of_path(model, tmp_path)
            assert late.poll() is None and early.poll() is None
            assert "model fetched" in late.log.read_text()
        finally:
            relay.listener.close()
            hosts.close()


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


def hello(device, **more):
    return msgpack.packb([BUS_VERSION, 1, {"device": device, "host": "here", "pid": 1, "compute": "f32", **more}])


def test_a_worker_that_does_not_read_costs_little_memory(hosts, model):
    """A worker requests shards of the model again and again. The controller buffers no more than a few MiB of them."""
    bus = zmq.Context.instance().socket(zmq.DEALER)
    bus.setsockopt(zmq.RCVHWM, 1)
    bus.setsockopt(zmq.LINGER, 0)
    bus.connect(hosts.bus)
    bus.send(hello("cpu"))
    load = {}
    while not load:
        version, kind, body = msgpack.unpackb(bus.recv())
        load = body if kind == 2 else {}
    assert load["offers"] == 1

    def want(file, n):
        bus.send(msgpack.packb([version, 10, {"epoch": load["epoch"], "file": file, "offset": 0, "bytes": n}]))

    def beat():
        bus.send(msgpack.packb([version, 7, {"epoch": load["epoch"], "state": 1, "progress": 0, "expected": 1, "moves": 1}]))
    want((1 << 32) - 1, 0)
    kind = 0
    while kind != 11:
        version, kind, body = msgpack.unpackb(bus.recv())
    weights = [f[0] for f in body[3]].index("model.safetensors")
    before = resident(hosts.controller.pid)
    with JobClient(hosts.jobs) as c:
        for i in range(3000):                  # unread, these would be 6 GB
            for _ in range(8):
                want(weights, 256 << 10)
            c.ping()                           # the controller still answers
            if i % 50 == 0:
                beat()
                assert resident(hosts.controller.pid) - before < 64 * MIB
    bus.close()
    w = hosts.worker()                         # other workers are served
    eventually(lambda: "serving" in [x["state"] for x in hosts.workers()], what="a worker that serves")
    assert w.poll() is None


def test_files_that_were_replaced_are_not_given_out(hosts, model, tmp_path):
    """The controller's own files were replaced since its start. Running workers already have the original files."""
    eventually(lambda: Path(hosts.bus[6:]).exists(), what="the bus")
    other_weights(model, tmp_path / "new")
    os.replace(tmp_path / "new", model / "model.safetensors")
    w = hosts.worker()
    assert w.wait(60) == 1
    assert "was changed or replaced since the service started: restart it" in w.log.read_text()


def test_on_tcp_workers_with_keys_fetch_and_others_do_not(model, namespaces, tmp_path):
    keys = tmp_path / "keys"
    assert subprocess.run([QUERN, "keygen", "--fleet", "--out", keys], capture_output=True, timeout=30).returncode == 0
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        locked = Hosts(model, d, f"tcp://127.0.0.1:{free_port()}", ("--curve-key", keys / "service.key", "--allow", keys / "allow"),
                       ("--key", keys / "worker.key", "--server-key", keys / "service.pub"))
        try:
            locked.worker()
            assert locked.tokens() == of_path(model, tmp_path)
        finally:
            locked.close()
    with tempfile.TemporaryDirectory(prefix="quern-hosts-") as d:
        open_bus = Hosts(model, d, f"tcp://127.0.0.1:{free_port()}")
        try:
            w = open_bus.worker()
            assert w.wait(60) == 1
            assert "the controller gives its files only to workers with keys (--curve-key) or on ipc://" in w.log.read_text()
        finally:
            open_bus.close()
