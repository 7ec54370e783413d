"""Time to detect a loss and recover (by the controller's log), and a check that no endpoint reports "ready" while no
worker can serve."""

import http.client
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from statistics import median

import pytest

from jobclient import JobClient
from load import Load, specs, undisturbed
from service import BIN, DEMO, eventually, free_port, no_processes_left, spawn
from test_kills import processes, send


def poll_ready(endpoint, timeout=0.3):
    """Return `ready` of the job socket from a new connection, since the controller may be new. None: no reply."""
    with JobClient(endpoint) as c:
        try:
            return c.recv(c.send({"op": "ping"}), timeout)["ready"]
        except TimeoutError:
            return None


def until(condition, what, timeout=60):
    """Return the seconds until condition() holds, polled every millisecond."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout:
            raise AssertionError(f"{what} did not hold within {timeout} s")
        time.sleep(0.001)
    return time.monotonic() - begin


DAY_S = 86400


def events(s, text):
    """Return the lines of the controller's log with this text: [(second of the day, line)]."""
    found = re.findall(rf"^\S+T(\d\d):(\d\d):(\d\d\.\d+)\S* (.*{text}.*)$", s.log(), re.M)
    return [(3600 * int(h) + 60 * int(m) + float(sec), line) for h, m, sec, line in found]


def second_of_the_day():
    now = time.time()
    t = time.localtime(now)
    return 3600 * t.tm_hour + 60 * t.tm_min + t.tm_sec + now % 1


def spread(values):
    return f"median {median(values):.2f} s, at most {max(values):.2f} s"


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP], ids=lambda sig: sig.name)
def test_a_lost_worker_is_detected_and_replaced(start, long, figures, sig):
    s = start(DEMO)
    detected, served, beyond = [], [], []
    n = 20 if long else 1
    with JobClient(s.jobs) as c:
        for i in range(1, n + 1):
            in_flight = c.submit("Once upon a time", max_tokens=1500, ignore_eos=True, seed=1)
            in_flight.first_delta()
            (pid,) = processes(s, "quern-worker")
            begin = second_of_the_day()
            send(pid, sig)
            assert len(in_flight.done().tokens) == 1500
            eventually(lambda: len(events(s, "controller/fleet: replica serves")) == i + 1, 60, "a worker that serves")
            lost, ready = events(s, f"worker lost worker=.* reason=\"worker {pid} "), events(s, "controller/fleet: replica serves")
            assert len(lost) == 1
            load_s = int(re.findall(r"worker ready .* load_ms=(\d+)", s.log())[-1]) / 1000
            detected.append((lost[0][0] - begin) % DAY_S)
            served.append((ready[-1][0] - begin) % DAY_S)
            beyond.append(served[-1] - load_s)
    figures(f"{n} times: detected after {spread(detected)}; serving again after {spread(served)}, beyond the time to load {spread(beyond)}")


def test_a_killed_controller_serves_again_with_the_same_workers(start, long, figures):
    s = start(DEMO)
    served = []
    workers = processes(s, "quern-worker")
    for _ in range(20 if long else 2):
        time.sleep(0.5)     # longer than the restart delay
        (pid,) = processes(s, "quern-contr")
        begin = time.monotonic()
        send(pid, signal.SIGKILL)
        until(lambda: processes(s, "quern-contr") not in ([pid], []) and poll_ready(s.jobs), "a service that is ready")
        served.append(time.monotonic() - begin)
    assert processes(s, "quern-worker") == workers
    figures(f"{len(served)} times: serving again after {spread(served)}")


class Watch(threading.Thread):
    """Poll the readiness of the service in every available way. samples: (time sent, time answered, way, ready)."""

    def __init__(self, s):
        super().__init__()
        self.s, self.ended, self.samples, self.failures = s, False, [], []
        self.client = None

    def ping(self):
        return self.call("ping")

    def status(self):
        return self.call("status")

    def call(self, op):
        self.client = self.client or JobClient(self.s.jobs)
        try:
            return self.client.recv(self.client.send({"op": op}), 0.5)["ready"]
        except TimeoutError:
            self.client.close()
            self.client = None
            return None

    def http(self):
        host, port = self.s.http.removeprefix("http://").split(":")
        c = http.client.HTTPConnection(host, int(port), timeout=0.5)
        try:
            c.request("GET", random.choice(["/ready", "/health"]))
            return c.getresponse().status == 200
        except OSError:
            return None
        finally:
            c.close()

    def run(self):
        try:
            while not self.ended:
                for how in (self.ping, self.status, self.http):
                    sent = time.monotonic()
                    is_ready = how()
                    self.samples.append((sent, time.monotonic(), how.__name__, is_ready))
                time.sleep(0.005)
        except Exception as e:
            self.failures.append(f"{type(e).__name__}: {e}")
        finally:
            if self.client:
                self.client.close()

    def between(self, begin, end):
        return [(how, is_ready) for sent, answered, how, is_ready in self.samples if begin <= sent and answered <= end]

    def all_report(self, value):
        """Return true if the last sample of each way has this value."""
        return len(self.samples) >= 3 and all(is_ready is value for _, _, _, is_ready in self.samples[-3:])


class ByHand:
    """A controller and workers that only the test starts: dead and stopped workers stay so."""

    def __init__(self, n_workers, *options):
        self.dir = tempfile.TemporaryDirectory(prefix="quern-test-")
        self.mark = uuid.uuid4().hex
        port = free_port()
        self.bus, self.jobs, self.http = f"ipc://{self.dir.name}/bus", f"ipc://{self.dir.name}/jobs", f"http://127.0.0.1:{port}"
        self.argv = [BIN / "quern-controller", "--model", DEMO, "--bus", self.bus, "--jobs", self.jobs, "--http", f"127.0.0.1:{port}",
                     "--worker-wait", 300, *options]
        self.log = open(f"{self.dir.name}/log", "wb")
        self.workers = []
        self.controller = self.spawn(*self.argv)
        self.fill(n_workers)

    def spawn(self, *argv):
        return spawn(argv, self.mark, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def fill(self, n):
        """Start workers until there are n; continue stopped workers."""
        for w in self.workers:
            send(w.pid, signal.SIGCONT)
        self.workers = [w for w in self.workers if w.poll() is None]
        while len(self.workers) < n:
            self.workers.append(self.spawn(BIN / "quern-worker", "--bus", self.bus, "--threads", 1, "--grace", 120))

    def paralyse(self, dice):
        for w in self.workers:
            w.send_signal(dice.choice([signal.SIGKILL, signal.SIGSTOP]))
        for w in self.workers:
            eventually(lambda: self.state(w.pid) in "TZX", what="a worker that is stopped or dead")

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    def new_controller(self):
        self.controller.kill()
        self.controller.wait(60)
        self.controller = self.spawn(*self.argv)

    def end(self):
        self.controller.terminate()
        status = self.controller.wait(60)
        for w in self.workers:
            send(w.pid, signal.SIGCONT)
            w.wait(120)
        no_processes_left(self.mark)
        self.log.close()
        self.dir.cleanup()
        return status


@pytest.mark.parametrize("n, options", [(1, ()), (2, ()), (2, ("--tp", 2))], ids=["one worker", "two replicas", "two ranks"])
def test_no_endpoint_reports_ready_while_no_worker_can_serve(dice, long, figures, n, options):
    """Once the service has reported that it is not ready, it does so as long as every worker is dead or stopped, even
    with a new controller; it is ready again when the workers are back, and continues the jobs.

    Two replicas lost at once count twice for a job that moves from one to the other."""
    s = ByHand(n, *options)
    watch, load = Watch(s), None
    watch.start()
    try:
        eventually(lambda: watch.all_report(True), 60, "a service that is ready")
        jobs = specs(12, 200)
        known = undisturbed(s.jobs, jobs)
        load = Load(s.jobs, jobs, threads=3)
        denied, polled, struck = [], 0, set()
        for _ in range(20 if long else 2):
            load.wait_ended(struck)
            eventually(lambda: watch.all_report(True), 60, "a service that is ready")
            time.sleep(dice.uniform(0, 0.3))
            begin = time.monotonic()
            s.paralyse(dice)
            eventually(lambda: watch.all_report(False), 60, "a service that is not ready")
            since = time.monotonic()
            denied.append(since - begin)
            time.sleep(dice.uniform(0.2, 1))
            eventually(lambda: watch.between(since, time.monotonic()), what="a sample")
            if dice.random() < 0.5:
                s.new_controller()
                eventually(lambda: watch.all_report(False), 60, "a controller that answers")
                time.sleep(dice.uniform(0.2, 1))
            samples, struck = watch.between(since, time.monotonic()), load.jobs_under_way()
            s.fill(n)
            assert samples and not [x for x in samples if x[1]], [x for x in samples if x[1]][:3]
            polled += len(samples)
        eventually(lambda: load.ended >= 6 or load.failures, 200, "the jobs")
        load.stop()
        load.check(known)
    finally:
        if load:
            load.stop()
        watch.ended = True
        watch.join()
        status = s.end()
    assert status == 0 and not watch.failures, watch.failures
    figures(f"{len(denied)} times without a worker: not ready after {spread(denied)}; polled {polled} times meanwhile, never ready")
