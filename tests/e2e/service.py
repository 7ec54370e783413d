"""service.py - run `quern serve` for a test, and check that no process is left afterwards."""

import contextlib
import ctypes
import json
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from jobclient import SLOW, JobClient

ROOT = Path(__file__).resolve().parents[2]
BUS_VERSION = int(re.search(r"BUS_VERSION = (\d+)", (ROOT / "proto/params.h").read_text())[1])
BUILD = ROOT / os.environ.get("QUERN_BUILD", "build")
BIN = BUILD / "bin"
QUERN = str(BIN / "quern")
DEMO = ROOT / "models" / "demo"
SHARED = Path(os.environ.get("QUERN_SHARED_DATA", ROOT.parent / "shared" / "data"))

START_S = 90 * SLOW    # longest wait for a service to start, on a busy machine
END_S = 30 * SLOW
MARK = "QUERN_TEST_MARK"
TRIES = 10             # attempts at steps that may come too late on a busy machine

# Only variables with these prefixes keep the value of the shell that runs the tests: a developer's QUERN_CONTEXT would
# become an option of every service.
OF_TESTS = ("QUERN_BUILD", "QUERN_CHAOS", "QUERN_CRASH_", "QUERN_CUDA_LIBRARY", "QUERN_ROOT", "QUERN_SHARED_DATA", "QUERN_SIM_",
            "QUERN_STREAMS", "QUERN_TEST_")
for _name in [n for n in os.environ if n.startswith("QUERN_") and not n.startswith(OF_TESTS)] + ["EDITRC", "NO_COLOR"]:
    os.environ.pop(_name, None)
if os.environ.get("QUERN_TEST_ISA"):    # "plain": as on a machine without VNNI
    os.environ["QUERN_ISA"] = os.environ["QUERN_TEST_ISA"]

_libc = ctypes.CDLL(None)


def _in_child():
    """Run in the child process: die with the test run, and restore Ctrl-C, which background jobs ignore."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and the tests may run under nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


def demo_with(folder, template):
    """Copy the demo model with another chat template; None: without one."""
    model = folder / "model"
    model.mkdir()
    for f in DEMO.iterdir():
        if f.suffix in (".json", ".safetensors"):
            shutil.copy(f, model / f.name)
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["chat_template"] = template
    if template is None:
        del config["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    return model


def spawn(argv, mark, **kwargs):
    """Start a process in its own group; the process and its children carry the mark."""
    env = {**os.environ, MARK: mark, **kwargs.pop("env", {})}
    return subprocess.Popen([str(a) for a in argv], env=env, start_new_session=True,
                            preexec_fn=_in_child, **kwargs)


def has_ended(pid):
    """Return whether all threads of the process have ended: only then are its files closed.  A process that is ending has
    lost its environment, and so its mark, before that."""
    try:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(state in "ZX" for state in states)


def marked(mark):
    """Return the live processes with the mark: {pid: name}."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
        if state not in "ZX":
            found[int(entry.name)] = name
    return found


def eventually(condition, timeout=30, what="the condition"):
    """Wait until condition() returns a true value, and return that value."""
    end = time.monotonic() + timeout * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not hold within {timeout * SLOW} s; last: {value!r}")
        time.sleep(0.02)


def free_port():
    """Return a port that another process will bind later: not one that the system may give to connections meanwhile."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(min(10000, first - 1000), first)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def whole_lines(path):
    """Parse the lines of a JSON log; the last line may be incomplete."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def slow_quern(folder, step_ms):
    """Make quern in a folder whose workers take at least step_ms for a step, as on a slower device."""
    shutil.copy(QUERN, folder)      # it looks for the other programs in its own folder
    (folder / "quern-controller").symlink_to(BIN / "quern-controller")
    (folder / "quern-worker").write_text(f'#!/bin/sh\nexec "{BIN}/quern-worker" --least-step-ms {step_ms} "$@"\n')
    (folder / "quern-worker").chmod(0o755)
    return folder / "quern"


def no_processes_left(mark, timeout=20):
    left = {}

    def none():
        left.clear()
        left.update(marked(mark))
        return not left
    try:
        eventually(none, timeout)
    except AssertionError:
        raise AssertionError(f"processes are left: {left}") from None


class Service:
    """`quern serve MODEL`, ready. http and jobs are its endpoints; process is the supervisor."""

    used = []   # by the current test: their logs are shown if the test fails

    def __init__(self, model=DEMO, *options, wait=True, default=(), step_ms=0):
        """default: options of ("--http", "--jobs") that the service chooses itself.  step_ms: the least time of a step."""
        self.mark = uuid.uuid4().hex
        self.dir = tempfile.TemporaryDirectory(prefix="quern-test-")
        self.log_path = Path(self.dir.name) / "log"
        self.clients = []
        quern = slow_quern(Path(self.dir.name), step_ms) if step_ms else QUERN
        argv = [quern, "serve", *([] if model is None else [model]), "--json"]
        # Jobs that a test leaves running are cut at the end, unless the test sets --drain-timeout.
        for name, value in (("--http", "127.0.0.1:0"), ("--jobs", "tcp://127.0.0.1:*"), ("--drain-timeout", "0")):
            if name not in options and name not in default:
                argv += [name, value]
        self.argv = [str(a) for a in argv + list(options)]
        with open(self.log_path, "wb") as log:
            self.process = spawn(self.argv, self.mark, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=log)
        Service.used.append(self)
        self.http = self.jobs = None
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.stop(signal.SIGKILL)
                raise

    def wait_ready(self, timeout=START_S):
        self.ready = json.loads(self._line(timeout))
        self.jobs = self.ready["jobs"]
        self.http = "http://" + self.ready["http"] if self.ready.get("http") else None

    def _line(self, timeout):
        end, line = time.monotonic() + timeout, b""
        fd = self.process.stdout.fileno()
        with selectors.DefaultSelector() as s:
            s.register(fd, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not s.select(max(0, end - time.monotonic())):
                    raise AssertionError(f"{self.argv} was not ready within {timeout} s\n{self.log()}")
                byte = os.read(fd, 1)
                if not byte:
                    raise AssertionError(f"{self.argv} ended with {self.process.wait(END_S)}\n{self.log()}")
                line += byte
        return line

    def log(self):
        try:
            return self.log_path.read_text(errors="replace")
        except OSError:
            return "(no log)"

    def client(self):
        """Return a client of the job socket; it is closed with the service at the latest."""
        c = JobClient(self.jobs)
        self.clients.append(c)
        return c

    def status(self):
        with JobClient(self.jobs) as c:
            return c.status()

    def idle(self, timeout=60):
        """Wait until no sequence runs or waits, and every block is free or cached."""
        def settled():
            s = self.status()
            return s if s["running"] == s["waiting"] == s["swapped"] == s["blocks"]["held"] == 0 else None
        return eventually(settled, timeout, "an idle service")

    def workers(self):
        with JobClient(self.jobs) as c:
            return c.workers()

    @contextlib.contextmanager
    def paused(self):
        """Stop all workers inside the `with` block and yield their pids. --worker-timeout and the supervisor tolerate
        this for at least 1.5 s."""
        pids = [w["pid"] for w in self.workers()]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield pids
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def submit_together(self, client, jobs):
        """Submit jobs while all workers are stopped, so that they run at the same time even on a busy machine."""
        for _ in range(TRIES):
            with self.paused() as pids:
                sent = [client.submit(**{"stream": False, **job}) for job in jobs]
                for job in sent:
                    job.accepted()
                if pids == [w["pid"] for w in self.workers()]:
                    return sent
            for job in sent:    # a stopped worker was replaced before all jobs were accepted
                job.done()
        raise AssertionError("the jobs were never accepted while the workers were stopped")

    def kill_amid(self, client, jobs, n_steps=10):
        """Kill the only worker after this many more steps, and wait for its successor. Return False if a job had ended
        before."""
        (worker,) = client.workers()
        was = client.status()["steps"]
        eventually(lambda: client.status()["steps"] > was + n_steps or not all(j.unfinished() for j in jobs), what="some steps")
        with self.paused():
            if not all(j.unfinished() for j in jobs):
                return False
            with contextlib.suppress(ProcessLookupError):    # it was stopped for so long that it was already replaced
                os.kill(worker["pid"], signal.SIGKILL)

        def another():
            return [w for w in client.workers() if w["state"] == "serving" and w["pid"] != worker["pid"]]
        eventually(another, what="another worker")
        return True

    def kill(self, name=""):
        """Send SIGKILL to the processes with this prefix in their names, by default to all; wait for their end."""
        killed = [pid for pid, is_name in sorted(marked(self.mark).items()) if is_name.startswith(name)]
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not name:
            self.process.wait(END_S)
            eventually(lambda: not marked(self.mark) and all(map(has_ended, killed)), what="an end of all")

    def end(self, sig=signal.SIGINT, timeout=END_S):
        """Send the signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(timeout)

    def stop(self, sig=signal.SIGINT):
        """End the service by any means, for clean-up."""
        for c in self.clients:
            c.close()
        try:
            self.end(sig)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_S)
        self.process.stdout.close()
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def served(model, options, **kwargs):
    """For fixtures: yield a service that is stopped when its tests are done."""
    s = Service(model, *options, **kwargs)
    yield s
    s.stop()
    Service.used.remove(s)
