"""A worker with a hung main thread, while its heartbeat thread keeps running."""

import ctypes
import os
import threading
import time

import pytest

from jobclient import JobError
from service import DEMO, marked

SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
PROMPT = "Once upon a time"
LONG = dict(max_tokens=1500, ignore_eos=True, temperature=1.0, seed=4)

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def halt(thread):
    """Halt a thread as a debugger does; the other threads of its process keep running."""
    if libc.ptrace(SEIZE, thread, None, None) < 0:
        pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    assert libc.ptrace(INTERRUPT, thread, None, None) == 0
    os.waitpid(thread, WALL)


def let_go(thread):
    assert libc.ptrace(DETACH, thread, None, None) == 0


def see_to_its_end(pid):
    """The tracer of a process is notified of its end before its parent is."""
    def wait():
        while not os.WIFSIGNALED(os.waitpid(pid, WALL)[1]):
            pass
    threading.Thread(target=wait, daemon=True).start()


def unfinished(client, job):
    try:
        client.result(job.job)
        return False
    except JobError as e:
        assert e.code == "E_NOT_READY"
        return True


def test_hung_worker_with_heartbeats_is_replaced_and_its_jobs_continue(start):
    s = start(DEMO, "--stuck-timeout", "3")
    with s.client() as c:
        for _ in range(20):
            job = c.submit(PROMPT, **LONG)
            job.first_delta()
            (worker,) = c.workers()
            halt(worker["pid"])     # its main thread
            if unfinished(c, job):
                break
            let_go(worker["pid"])   # too late: try again
            job.done()
        else:
            pytest.fail("every job ended before it could be disturbed")
        see_to_its_end(worker["pid"])
        tokens = job.done().tokens
        assert tokens == c.generate(PROMPT, **LONG).tokens
        (other,) = c.workers()
        assert other["pid"] != worker["pid"]
    assert worker["pid"] not in marked(s.mark)
    assert "heartbeats without progress" in s.log() or "silent for too long" in s.log()    # between two steps


def test_worker_held_by_a_debugger_is_kept_without_a_timeout(start):
    """The worker is held longer than it waits for its controller, and longer than its connection waits for a
    heartbeat."""
    s = start(DEMO, "--worker-timeout", "0")
    with s.client() as c:
        known = c.generate(PROMPT, **LONG).tokens
        job = c.submit(PROMPT, **LONG)
        job.first_delta()
        (worker,) = c.workers()
        threads = [int(t) for t in os.listdir(f"/proc/{worker['pid']}/task")]
        for t in threads:
            halt(t)
        time.sleep(12)
        for t in threads:
            let_go(t)
        assert job.done().tokens == known
        (same,) = c.workers()
        assert same["pid"] == worker["pid"]
