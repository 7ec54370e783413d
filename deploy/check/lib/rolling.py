"""A rolling upgrade under load: two services at one address, each a controller with a journal and a worker.
Their programs are replaced in place and restarted, one service after the other, the controller first.

    rolling.py OLD NEW WORK [ROUNDS]    folders of programs; writes logs and journals below WORK, prints figures

Plain requests go to any ready service, as with a load balancer that checks /readyz.  A stream with a key stays with
the service that has its job, and is resumed by Last-Event-ID when its connection ends."""

import http.client
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

PROGRAMS = ("quern", "quern-controller", "quern-worker")
MODEL = pathlib.Path(__file__).resolve().parents[3] / "models" / "demo"
STREAM = {"prompt": "Once upon a time", "max_tokens": 1500, "temperature": 1, "seed": 7, "ignore_eos": True}
PLAIN = {**STREAM, "prompt": "The little dog", "max_tokens": 16}
# Older programs ignore the trace in the journal.
FIELDS = {"Content-Type": "application/json", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
WAIT_S = 120 * float(os.environ.get("QUERN_TEST_SLOW", "1"))    # factor for all time limits: sanitizers are slow
BEYOND_S = 20    # a request that is refused for longer fails the check; the goal is 2 s
GONE = (OSError, http.client.HTTPException)


def wait_for(what, condition, every_s=0.05):
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {WAIT_S} s for {what}")
        time.sleep(every_s)


def free_port():
    """Return a port to be bound later and again, which the system does not give to connections meanwhile."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(min(10000, first - 1000), first)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def other_version(source, to):
    """Copy the programs, with another version in the controller's replies. Only that text is changed, because the
    linker lets other strings share their ends with the version's."""
    to.mkdir()
    for name in PROGRAMS:
        old = (source / name).read_bytes()
        new = re.sub(rb'("system_fingerprint":"quern-\d+\.\d+\.\d*)\d"', rb'\g<1>x"', old)
        assert name != "quern-controller" or new != old, "the controller has no fingerprint"
        (to / name).write_bytes(new)
        (to / name).chmod(0o755)
    return to


class Side:
    """One of the two services."""

    def __init__(self, folder, programs, drain_s, popen):
        self.folder, self.drain_s, self.popen, self.port = folder, drain_s, popen, free_port()
        folder.mkdir()
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.install(programs)
        self.all = []

    def begin(self):
        self.start_controller()
        self.worker = self.start_worker()

    def install(self, source):
        """Replace the programs in place, as a package manager does: running processes keep their old files."""
        for name in PROGRAMS:
            shutil.copy(source / name, self.programs / f".{name}")
            os.replace(self.programs / f".{name}", self.programs / name)

    def start(self, program, *options):
        with open(self.folder / f"{program}.log", "ab") as log:
            p = self.popen([self.programs / program, "--bus", f"ipc://{self.folder}/bus", *options],
                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.all.append(p)
        return p

    def start_controller(self):
        self.controller = self.start(
            "quern-controller", "--model", MODEL, "--jobs", f"ipc://{self.folder}/jobs", "--http",
            f"127.0.0.1:{self.port}", "--journal", self.folder / "journal", "--keep-workers", "--drain-timeout", self.drain_s)

    def start_worker(self):
        return self.start("quern-worker", "--threads", "1", "--grace", "60", "--leave-timeout", "60")

    def get(self, path, timeout=30.0):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request("GET", path)
            reply = c.getresponse()
            return reply.status, reply.read()
        finally:
            c.close()

    def ready(self):
        try:
            return self.get("/readyz", 1)[0] == 200
        except GONE:
            return False

    def quern(self, *argv):
        return subprocess.run([self.programs / "quern", *argv, "--to", f"ipc://{self.folder}/jobs"],
                              capture_output=True, text=True, timeout=WAIT_S)

    def serving(self):
        """Return the processes of the serving workers. One status request may fail: the service's socket may be new."""
        done = self.quern("status", "--json")
        if done.returncode:
            done = self.quern("status", "--json")
        assert done.returncode == 0, f"quern status: {done.stderr}"
        status = json.loads(done.stdout)
        return {w["pid"] for w in status["workers"] if w["state"] == "serving"}

    def submit_durable(self):
        done = self.quern("submit", "--durable", "--detach", "--raw", STREAM["prompt"], "--max-tokens", "1500",
                          "--temperature", "1", "--seed", "7", "--ignore-eos")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[0]

    def upgrade(self, programs, in_flight):
        """Upgrade the controller first; its worker waits for the next controller. Then start a new worker, and the old
        worker leaves."""
        self.install(programs)
        wait_for("a stream that is under way", in_flight, 0.005)
        self.controller.send_signal(signal.SIGTERM)
        assert self.controller.wait(WAIT_S) == 0, "the controller did not end in order"
        self.start_controller()
        wait_for("readiness after the controller's upgrade", self.ready)
        assert self.serving() == {self.worker.pid}, "the worker was not taken back"
        old, self.worker = self.worker, self.start_worker()
        wait_for("the new worker", lambda: self.serving() == {old.pid, self.worker.pid})
        old.send_signal(signal.SIGTERM)
        assert old.wait(WAIT_S) == 0, "the worker did not leave in order"
        for p in (self.controller, self.worker):
            assert not os.readlink(f"/proc/{p.pid}/exe").endswith("(deleted)"), "an old program runs"

    def journalled(self):
        """Return the ids of all jobs of the journal."""
        db = sqlite3.connect(f"file:{self.folder}/journal?mode=ro", uri=True)
        try:
            return [row[0] for row in db.execute("SELECT id FROM jobs")]
        finally:
            db.close()

    def end(self):
        """End the controllers first: they tell the workers to end their jobs."""
        for p in self.all:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                p.wait(WAIT_S)

    def kill(self):
        for p in self.all:
            if p.poll() is None:
                p.kill()
                p.wait()


class Proxy:
    """One address for both services: each connection goes to the next service that is ready."""

    def __init__(self, sides):
        self.sides, self.turn, self.up = sides, itertools.count(), dict.fromkeys(sides, True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.over = self.listener.getsockname()[1], threading.Event()
        for work in (self.accept, self.probe):
            threading.Thread(target=work, daemon=True).start()

    def probe(self):
        while not self.over.wait(0.1):
            for side in self.sides:
                self.up[side] = side.ready()

    def accept(self):
        while not self.over.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        first = next(self.turn)
        order = [self.sides[(first + i) % len(self.sides)] for i in range(len(self.sides))]
        with client:
            for side in sorted(order, key=lambda s: not self.up[s]):
                try:
                    server = socket.create_connection(("127.0.0.1", side.port), 5)
                except OSError:
                    continue
                with server:
                    back = threading.Thread(target=self.copy, args=(server, client), daemon=True)
                    back.start()
                    self.copy(client, server)
                    back.join()
                return

    @staticmethod
    def copy(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.over.set()
        self.listener.close()


def plain(port):
    """Return the text and the version that made it, or None if the request was refused."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        c.request("POST", "/v1/completions", json.dumps(PLAIN), {**FIELDS, "Connection": "close"})
        reply = c.getresponse()
        body = json.loads(reply.read())
        if reply.status == 503:
            return None
        assert reply.status == 200, body
        return body["choices"][0]["text"], body["system_fingerprint"]
    except GONE:
        return None
    finally:
        c.close()


class Stream:
    """Read a stream with a key to its end, over as many connections as it takes."""

    def __init__(self, side, key):
        self.side, self.key = side, key
        self.text, self.last, self.connections, self.whole = "", 0, 0, False

    def in_flight(self):
        """True if the stream has just begun: later, the service may already have sent everything that remains to be
        read."""
        return 0 < self.last < STREAM["max_tokens"] // 24

    def read_some(self):
        c = http.client.HTTPConnection("127.0.0.1", self.side.port, timeout=WAIT_S)
        try:
            c.request("POST", "/v1/completions", json.dumps({**STREAM, "stream": True}),
                      {**FIELDS, "Idempotency-Key": self.key,
                       **({"Last-Event-ID": str(self.last)} if self.last else {})})
            reply = c.getresponse()
            if reply.status == 503:
                return
            assert reply.status == 200, reply.read()
            self.connections += 1
            self.events(reply)
        except GONE:
            pass
        finally:
            c.close()

    def events(self, reply):
        """Ignore an error and the end after it: they have no number."""
        number = None
        for line in reply:
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data" and number is not None:
                assert number == self.last + 1, f"event {number} after event {self.last}"
                self.last, number = number, None
                if value == "[DONE]":
                    self.whole = True
                    return
                self.text += "".join(x["text"] for x in json.loads(value)["choices"])

    def read(self):
        end = time.monotonic() + WAIT_S
        while not self.whole and time.monotonic() < end:
            self.read_some()
            time.sleep(0.02)
        return self


class Load:
    """Clients that run until finish(), which raises any error that a client found."""

    def __init__(self, sides, proxy, want):
        self.sides, self.proxy, self.want = sides, proxy, want
        self.over, self.lock, self.wrong = threading.Event(), threading.Lock(), []
        self.n_plain, self.refused_s, self.streams, self.versions = 0, [0.0], [], set()
        self.now = {}    # the stream that each thread reads
        works = [(self.one_plain,)] * 2 + [(self.one_stream, s, i) for s in sides for i in range(2)]
        self.threads = [threading.Thread(target=self.run, args=work, daemon=True) for work in works]
        for t in self.threads:
            t.start()

    def run(self, once, *args):
        try:
            for n in itertools.count():
                once(n, *args)
                if self.over.is_set():
                    return
        except Exception as e:    # an exception in a thread would be lost
            self.wrong.append(repr(e))

    def one_plain(self, _n):
        began = time.monotonic()
        while (answer := plain(self.proxy.port)) is None:
            with self.lock:
                self.refused_s.append(time.monotonic() - began)
            assert self.refused_s[-1] < WAIT_S, "requests are refused for good"
            time.sleep(0.02)
        assert answer[0] == self.want["plain"], f"another text: {answer}"
        with self.lock:
            self.n_plain += 1
            self.versions.add(answer[1])
        self.over.wait(0.03)

    def one_stream(self, n, side, i):
        s = Stream(side, f"stream-{i}-{n}")
        with self.lock:
            self.now[side, i] = s
        s.read()
        with self.lock:
            self.streams.append(s)
        assert s.whole, f"a stream ended for good after event {s.last}"
        same = len(os.path.commonprefix([s.text, self.want["stream"]]))
        assert s.text == self.want["stream"], (f"another text of a stream on {side.folder.name}, over {s.connections} "
                                               f"connections, from character {same} on: {s.text[same:same + 60]!r}, not "
                                               f"{self.want['stream'][same:same + 60]!r}; {len(s.text)} characters, not "
                                               f"{len(self.want['stream'])}")

    def in_flight(self, side):
        with self.lock:
            return any(s.side is side and s.in_flight() for s in self.now.values())

    def finish(self):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.wrong, self.wrong


def roll(old, new, work, popen=subprocess.Popen, rounds=1):
    """Upgrade both services and return the figures; an AssertionError names the failure."""
    sides, proxy, load = [], None, None
    try:
        # When they end, the first service lets requests finish, and the second cuts them.
        for name, drain_s in (("a", "10"), ("b", "0")):
            sides.append(Side(work / name, old, drain_s, popen))
            sides[-1].begin()
        for s in sides:
            wait_for("readiness", s.ready)
        proxy = Proxy(sides)
        whole = Stream(sides[0], "undisturbed").read()
        answer = plain(proxy.port)
        assert whole.whole and answer, "an undisturbed service does not answer"
        want = {"stream": whole.text, "plain": answer[0]}
        load, durable = Load(sides, proxy, want), []
        for n in range(rounds):
            for s in sides:
                durable += [(s, s.submit_durable()) for _ in range(2)]
                s.upgrade(old if n % 2 else new, lambda s=s: load.in_flight(s))
        load.finish()
        for s, job in durable:
            wait_for(f"the durable job {job}", lambda s=s, job=job: s.quern("result", job).returncode == 0)
            assert s.quern("result", job).stdout.rstrip("\n") == want["stream"].rstrip("\n"), f"job {job} has another text"
        jobs = [j for s in sides for j in s.journalled()]
        assert len(jobs) == len(set(jobs)) == len(durable) + len(load.streams) + 1, "a job ran twice, or is lost"
        return {"upgrades": rounds * len(sides), "durable_jobs": len(durable), "streams": len(load.streams), "versions": sorted(load.versions),
                "streams_resumed": sum(s.connections > 1 for s in load.streams), "requests": load.n_plain,
                "refused_tries": len(load.refused_s) - 1, "longest_refusal_s": round(max(load.refused_s), 3)}
    finally:
        if load:
            load.over.set()
        if proxy:
            proxy.close()
        try:
            for s in sides:
                s.end()
        finally:
            for s in sides:
                s.kill()


def main():
    old, new, work = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    figures = roll(old, new, work, rounds=int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    print(json.dumps(figures))
    print(f"jobs lost: 0; streams gone on with: {figures['streams_resumed']} of {figures['streams']}; longest time that "
          f"a request was refused: {figures['longest_refusal_s']} s (goal: 2 s)")
    assert figures["streams_resumed"], "no stream was cut: the load was too small to show anything"
    assert figures["longest_refusal_s"] < BEYOND_S, f"a request was refused for more than {BEYOND_S} s"


if __name__ == "__main__":
    main()
