"""Replicas are added, drained and killed under load: no job is lost, no token changes."""

import os
import signal
import time

from load import Load, specs, undisturbed
from service import DEMO, eventually, marked, no_processes_left


def scale(s, n):
    with s.client() as c:
        c.call("scale", replicas=n)


def drain_one(s, dice):
    with s.client() as c:
        serving = [w["worker"] for w in c.workers() if w["state"] == "serving"]
        if len(serving) > 1:
            c.call("drain", worker=dice.choice(serving))


def workers(s):
    return [pid for pid, name in marked(s.mark).items() if name.startswith("quern-worker")]


def kill_one(s, dice):
    """Kill one and return its pid; None: there was none."""
    pids = workers(s)
    if not pids:
        return None
    pid = dice.choice(pids)
    try:
        os.kill(pid, dice.choice([signal.SIGKILL, signal.SIGSTOP]))
    except ProcessLookupError:
        return None
    return pid


def loop(s, jobs, known, rounds, between):
    load = Load(s.jobs, jobs)
    try:
        for _ in range(rounds):
            between(load)
        eventually(lambda: load.ended >= 12 or load.failures, 200, "some jobs")
    finally:
        load.stop()
    load.check(known)
    s.idle()
    return load


def test_scale_and_drain_in_a_loop(start, dice, long, figures):
    s = start(DEMO)
    jobs = specs(12, 200)
    known = undisturbed(s.jobs, jobs)
    n = 0

    def between(_load):
        nonlocal n
        for what in (1, 4, 2):
            scale(s, what)
            n += 1
        drain_one(s, dice)
    load = loop(s, jobs, known, 40 if long else 2, between)
    figures(f"{n} times scaled, {load.ended} jobs, {load.resubmitted} resubmitted")
    assert s.end() == 0
    no_processes_left(s.mark)


def test_scaling_while_workers_die(start, dice, long, figures):
    s = start(DEMO, "--worker-wait", "120")
    jobs = specs(12, 200)
    known = undisturbed(s.jobs, jobs)

    struck = set()

    def between(load):
        nonlocal struck
        scale(s, dice.choice([2, 3, 4]))
        load.wait_ended(struck)     # jobs of the last loss
        pid = kill_one(s, dice)
        time.sleep(dice.uniform(0, 1))
        eventually(lambda: pid not in [w["pid"] for w in s.workers() if w["state"] == "serving"], 60, "the loss of a worker")
        struck = load.jobs_under_way()
    rounds = 50 if long else 3
    load = loop(s, jobs, known, rounds, between)
    figures(f"{rounds} kills between scalings, {load.ended} jobs, {load.resubmitted} resubmitted")
    assert s.end() == 0
    no_processes_left(s.mark)
