"""Hosts simulated by network namespaces: a controller and two workers on three hosts, with keys, and links that are cut
during generation. Needs root, ip(8) and a kernel that allows namespaces."""

import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pytest

from jobclient import JobClient
from load import specs, tokens_of, undisturbed
from service import BIN, DEMO, QUERN, eventually, free_port, marked, no_processes_left, spawn


def ip(*words):
    r = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, timeout=30)
    if r.returncode:
        raise OSError(f"ip {' '.join(map(str, words))}: {r.stderr.strip()}")


class Hosts:
    """Namespaces: host 0 is in the middle, and host i at the other end of its own link. On that link, host 0 is
    10.77.i.1 and host i is 10.77.i.2."""

    def __init__(self, n):
        self.tag = uuid.uuid4().hex[:6]
        self.names = [f"q{self.tag}{i}" for i in range(n)]
        self.made = []
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            self.made.append(name)
            ip("-n", name, "link", "set", "dev", "lo", "up")
            if i:
                ip("-n", self.names[0], "link", "add", "name", f"v{i}", "type", "veth", "peer", "name", "v0", "netns", name)
                self.address(self.names[0], f"v{i}", f"10.77.{i}.1/24")
                self.address(name, "v0", f"10.77.{i}.2/24")

    def address(self, name, dev, address):
        ip("-n", name, "addr", "add", address, "dev", dev)
        ip("-n", name, "link", "set", "dev", dev, "up")

    def link(self, i, up):
        ip("-n", self.names[0], "link", "set", "dev", f"v{i}", "up" if up else "down")

    def slow(self, i, ms):
        r = subprocess.run(["ip", "netns", "exec", self.names[0], "tc", "qdisc", "replace", "dev", f"v{i}", "root", "netem",
                            "delay", f"{ms}ms"], capture_output=True, timeout=30)
        return r.returncode == 0

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


@pytest.fixture
def hosts():
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and ip(8)")
    h = None
    try:
        h = Hosts.__new__(Hosts)
        h.made = []
        h.__init__(3)
    except OSError as e:
        h.close()
        pytest.skip(f"no network namespaces here: {e}")
    yield h
    h.close()


class Cluster:
    """A controller on host 0 and a worker on each other host. Jobs use a path that all hosts see."""

    def __init__(self, hosts):
        self.hosts, self.mark = hosts, uuid.uuid4().hex
        self.dir = tempfile.TemporaryDirectory(prefix="quern-hosts-")
        d = Path(self.dir.name)
        allow = d / "allow"
        for name in ("service", "w1", "w2"):
            subprocess.run([QUERN, "keygen", "--out", d, "--name", name], check=True, capture_output=True, timeout=30)
        public = {n: (d / f"{n}.pub").read_text().split("public = ")[1].strip() for n in ("w1", "w2")}
        allow.write_text("".join(f"worker {k} {n}\n" for n, k in public.items()))
        allow.chmod(0o600)
        self.jobs = f"ipc://{d}/jobs"
        self.log = open(d / "log", "w+")
        self.processes = {}
        self.start(0, BIN / "quern-controller", "--model", DEMO, "--bus", "tcp://0.0.0.0:7430", "--jobs", self.jobs, "--http",
                   "none", "--curve-key", d / "service.key", "--allow", allow, "--worker-wait", 120)
        self.worker_options = [(BIN / "quern-worker", "--bus", f"tcp://10.77.{i}.1:7430", "--grace", 30, "--threads", 1, "--key",
                                d / f"w{i}.key", "--server-key", d / "service.pub") for i in (1, 2)]
        for i, options in enumerate(self.worker_options, 1):
            self.start(i, *options)

    def start(self, host, *argv):
        self.processes[host] = spawn(["ip", "netns", "exec", self.hosts.names[host], *argv], self.mark,
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def tend(self, stop):
        """Restart workers that have ended, as systemd would on each host."""
        while not stop.wait(0.2):
            for i, options in enumerate(self.worker_options, 1):
                if self.processes[i].poll() is not None:
                    self.start(i, *options)

    def serving(self):
        with JobClient(self.jobs) as c:
            return sum(w["state"] == "serving" for w in c.workers())

    def text(self):
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")

    def close(self):
        self.processes[0].terminate()
        try:
            self.processes[0].wait(30)
        finally:
            for p in self.processes.values():
                if p.poll() is None:
                    p.terminate()
            for p in self.processes.values():
                p.wait(60)
            no_processes_left(self.mark)
            self.log.close()
            self.dir.cleanup()


@pytest.fixture
def cluster(hosts):
    c = Cluster(hosts)
    stop = threading.Event()
    tending = threading.Thread(target=c.tend, args=(stop,))
    tending.start()
    try:
        yield c
    except BaseException:
        print(c.text()[-6000:])
        raise
    finally:
        stop.set()
        tending.join()
        print(c.text()[-6000:])
        c.close()


def generate(cluster, jobs, at_once):
    """Run all jobs, several at once; return their tokens."""
    with JobClient(cluster.jobs) as c:
        in_flight = [c.submit(p, **params) for p, params in jobs[:at_once]]
        for j in in_flight:
            j.first_delta()
        yield in_flight
        yield {i: tokens_of(j.done()) for i, j in enumerate(in_flight)}


def during(cluster, jobs, known, disturb):
    """Run the jobs while disturb() runs, and compare their tokens."""
    steps = generate(cluster, jobs, len(jobs))
    next(steps)
    disturb()
    got = next(steps)
    steps.close()
    assert got == known


LONG_JOBS = [(prompt, {**params, "max_tokens": 1200, "n": 1}) for prompt, params in specs(6, 400)]


def test_a_link_that_is_cut_for_five_seconds(cluster, long, figures):
    eventually(lambda: cluster.serving() == 2, 60, "two serving workers")
    known = undisturbed(cluster.jobs, LONG_JOBS)
    for cut in ((1,), (2,), (1, 2)) if long else ((1,),):
        def disturb():
            for i in cut:
                cluster.hosts.link(i, False)
            time.sleep(5)
            for i in cut:
                cluster.hosts.link(i, True)
        during(cluster, LONG_JOBS, known, disturb)
        t = time.monotonic()
        eventually(lambda: cluster.serving() == 2, 60, "both workers back")
        figures(f"links {cut} cut for 5 s: the tokens are the same; both workers serve {time.monotonic() - t:.1f} s after the jobs")


def test_a_slow_link(cluster, long):
    eventually(lambda: cluster.serving() == 2, 60, "two serving workers")
    jobs = [(p, {**params, "max_tokens": 40}) for p, params in LONG_JOBS]
    known = undisturbed(cluster.jobs, jobs)
    if not cluster.hosts.slow(1, 100):
        pytest.skip("no netem in this kernel")
    assert undisturbed(cluster.jobs, jobs) == known
    assert len(marked(cluster.mark)) == 3


class SlowLink(threading.Thread):
    """A link between the workers and the bus with a delay; the link can be cut."""

    def __init__(self, to, delay_s):
        super().__init__()
        self.to, self.delay_s, self.ended = to, delay_s, False
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.far = {}       # socket -> socket at the other end
        self.in_flight = [] # (arrival time, socket, bytes); "": the end
        self.carried = 0
        self.cut_now = threading.Event()

    def accept(self):
        near, _ = self.listening.accept()
        try:
            there = socket.create_connection(("127.0.0.1", self.to), 5)
        except OSError:
            near.close()
            return
        self.far[near], self.far[there] = there, near

    def take(self, sock):
        try:
            data = sock.recv(65536)
        except OSError:
            data = b""
        self.in_flight.append((time.monotonic() + self.delay_s, self.far[sock], data))
        if not data:
            del self.far[sock]

    def deliver(self):
        while self.in_flight and self.in_flight[0][0] <= time.monotonic():
            _, sock, data = self.in_flight.pop(0)
            try:
                sock.sendall(data) if data else sock.shutdown(socket.SHUT_WR)
                self.carried += len(data)
            except OSError:
                pass

    def cut(self):
        self.cut_now.set()

    def run(self):
        while not self.ended:
            wait = max(0.0, min(0.05, self.in_flight[0][0] - time.monotonic())) if self.in_flight else 0.05
            readable, _, _ = select.select([self.listening, *self.far], [], [], wait)
            for sock in readable:
                self.accept() if sock is self.listening else self.take(sock)
            self.deliver()
            if self.cut_now.is_set():
                self.cut_now.clear()
                for sock in self.far:
                    sock.close()
                self.far, self.in_flight = {}, []
        for sock in [self.listening, *self.far]:
            sock.close()


def test_workers_at_the_end_of_a_slow_link(dice, long, figures):
    """Plans and results are delayed, and sometimes lost: the tokens are those of a fast link. Needs no namespaces."""
    mark, port = uuid.uuid4().hex, free_port()
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    link = SlowLink(port, 0)
    link.start()
    jobs = [(p, {**params, "max_tokens": 60, "n": 1}) for p, params in specs(8, 400)]
    with tempfile.TemporaryDirectory(prefix="quern-slow-") as d:
        controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", f"tcp://127.0.0.1:{port}", "--jobs", f"ipc://{d}/jobs",
                            "--http", "none", "--worker-wait", 120], mark, **quiet)
        workers = [spawn([BIN / "quern-worker", "--bus", f"tcp://127.0.0.1:{link.port}", "--threads", 1, "--grace", 60], mark, **quiet)
                   for _ in range(2)]

        def serving():
            with JobClient(f"ipc://{d}/jobs") as c:
                return sum(w["state"] == "serving" for w in c.workers())
        try:
            eventually(lambda: serving() == 2, 60, "two serving workers")
            known = undisturbed(f"ipc://{d}/jobs", jobs)
            cuts = 0
            delays = [0.02, 0.1, 0.3] * 5 if long else [0.1]
            for link.delay_s in delays:
                with JobClient(f"ipc://{d}/jobs") as c:
                    in_flight = [c.submit(p, **params) for p, params in jobs]
                    in_flight[0].first_delta()
                    if long:
                        time.sleep(dice.uniform(0, 3))
                        link.cut()
                        cuts += 1
                    assert {i: tokens_of(j.done()) for i, j in enumerate(in_flight)} == known
                eventually(lambda: serving() == 2, 60, "two serving workers")
            figures(f"20 to 300 ms each way, {cuts} times cut, {link.carried >> 10} KiB carried: the tokens are the same")
        finally:
            controller.terminate()
            status = controller.wait(60)
            for w in workers:
                w.wait(90)
            link.ended = True
            link.join()
    assert status == 0
    no_processes_left(mark)
