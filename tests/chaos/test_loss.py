"""How fast a loss is noticed and made good, and that nobody says "ready" while nothing can serve."""

import http.client
import random
import re
import signal
import threading
import time
from statistics import median

import pytest

from jobclient import JobClient
from load import Load, specs, undisturbed
from service import DEMO, eventually, marked, no_processes_left
from test_kills import processes, send


def ask_ready(endpoint, timeout=0.3):
    """Whether the job socket says so; a new connection, since the controller may be new.  None: no reply."""
    with JobClient(endpoint) as c:
        try:
            return c.recv(c.send({"op": "ping"}), timeout)["ready"]
        except TimeoutError:
            return None


def until(condition, what, timeout=60):
    """Seconds until condition() holds; it is asked often."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout:
            raise AssertionError(f"{what} did not come about within {timeout} s")
        time.sleep(0.001)
    return time.monotonic() - begin


def load_s(s):
    """How long the worker that has become ready last took to load, by the controller's log; 0: it had its
    weights already."""
    return int(re.findall(r"worker ready .* load_ms=(\d+)", s.log())[-1]) / 1000


def told(values):
    return f"median {median(values):.2f} s, at most {max(values):.2f} s"


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP], ids=lambda sig: sig.name)
def test_a_lost_worker_is_noticed_and_replaced(start, long, figures, sig):
    s = start(DEMO)
    noticed, served, beyond = [], [], []
    with JobClient(s.jobs) as c:
        for _ in range(20 if long else 1):
            under_way = c.submit("Once upon a time", max_tokens=1500, ignore_eos=True, seed=1)
            under_way.first_delta()
            begin = time.monotonic()
            (pid,) = processes(s, "quern-worker")
            send(pid, sig)
            until(lambda: not c.ping()["ready"], "a service that is not ready")
            noticed.append(time.monotonic() - begin)
            until(lambda: c.ping()["ready"], "a service that is ready")
            served.append(time.monotonic() - begin)
            beyond.append(served[-1] - load_s(s))
            assert len(under_way.done().tokens) == 1500
    figures(f"{len(noticed)} times: noticed after {told(noticed)}; serving again after {told(served)}, beyond the time to load {told(beyond)}")


def test_a_killed_controller_serves_again_with_the_workers_there_are(start, long, figures):
    s = start(DEMO)
    served = []
    workers = processes(s, "quern-worker")
    for _ in range(20 if long else 2):
        time.sleep(0.5)     # longer than a controller that dies again and again waits
        (pid,) = processes(s, "quern-contr")
        begin = time.monotonic()
        send(pid, signal.SIGKILL)
        until(lambda: processes(s, "quern-contr") not in ([pid], []) and ask_ready(s.jobs), "a service that is ready")
        served.append(time.monotonic() - begin)
    assert processes(s, "quern-worker") == workers
    figures(f"{len(served)} times: serving again after {told(served)}")


class Watch(threading.Thread):
    """Asks all the time whether the service is ready, in every way that there is.  samples: (asked at, answered
    at, how, what)."""

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
                    asked = time.monotonic()
                    said = how()
                    self.samples.append((asked, time.monotonic(), how.__name__, said))
                time.sleep(0.005)
        except Exception as e:
            self.failures.append(f"{type(e).__name__}: {e}")
        finally:
            if self.client:
                self.client.close()

    def between(self, begin, end):
        return [(how, said) for asked, answered, how, said in self.samples if begin <= asked and answered <= end]

    def last(self):
        """What each way has said last."""
        return {how: said for _, _, how, said in self.samples[-3:]}


class Paralysis(threading.Thread):
    """Stops or kills every worker there is, and stops each that comes before it can serve, until it is let go."""

    def __init__(self, s, sig):
        super().__init__()
        self.s, self.sig, self.ended, self.hit = s, sig, False, set()
        self.all_hit = threading.Event()

    def run(self):
        while not self.ended:
            new = [pid for pid in processes(self.s, "quern-worker") if pid not in self.hit]
            for pid in new:
                send(pid, signal.SIGSTOP if self.hit else self.sig)
            self.hit.update(new)
            if self.hit and not new:
                self.all_hit.set()
            time.sleep(0.001)

    def end(self):
        self.ended = True
        self.join()
        for pid in self.hit & set(marked(self.s.mark)):
            send(pid, signal.SIGCONT)


@pytest.mark.parametrize("options", [(), ("--replicas", "2"), ("--tp", "2")], ids=["one worker", "two replicas", "two ranks"])
def test_it_never_says_ready_while_nothing_can_serve(start, dice, long, figures, options):
    """Once it has said that it is not ready it says nothing else as long as every worker is dead or stopped,
    whatever happens to the controller meanwhile; and it is ready again when they are let go."""
    s = start(DEMO, "--worker-wait", "120", "--threads", "1", *options)
    jobs = specs(12, 200)
    known = undisturbed(s.jobs, jobs)
    load, watch = Load(s.jobs, jobs, threads=3), Watch(s)
    watch.start()
    denied, asked = [], 0
    try:
        for _ in range(20 if long else 2):
            until(lambda: all(watch.last().values()), "a service that is ready")
            time.sleep(dice.uniform(0, 0.3))
            p = Paralysis(s, dice.choice([signal.SIGKILL, signal.SIGSTOP]))
            begin = time.monotonic()
            p.start()
            try:
                p.all_hit.wait(30)
                until(lambda: not any(watch.last().values()), "a service that is not ready")
                since = time.monotonic()
                denied.append(since - begin)
                time.sleep(dice.uniform(0.2, 1))
                if dice.random() < 0.5:
                    for pid in processes(s, "quern-contr"):
                        send(pid, signal.SIGKILL)
                    until(lambda: False in watch.last().values(), "a controller that answers")
                    time.sleep(dice.uniform(0.2, 1))
                end = time.monotonic()
            finally:
                p.end()
            said = watch.between(since, end)
            assert not [x for x in said if x[1]], [x for x in said if x[1]][:3]
            asked += len(said)
            until(lambda: all(watch.last().values()), "a service that is ready")
        eventually(lambda: load.ended >= 6 or load.failures, 200, "the jobs")
    finally:
        watch.ended = True
        watch.join()
        load.stop()
    load.check(known)
    assert not watch.failures, watch.failures
    figures(f"{len(denied)} times without a worker: not ready after {told(denied)}; asked {asked} times meanwhile, never ready")
    s.idle()
    assert s.end() == 0
    no_processes_left(s.mark)
