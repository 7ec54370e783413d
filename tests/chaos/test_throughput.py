"""Throughput at ten times the load that fits, and with two replicas.  The figures are reported, not
checked: other programs may use the machine, which affects tokens per second, but not tokens per second
of the workers' processor time.

To use the machine exclusively for a minute, if that does no harm (as root):
    QUERN_CHAOS=long chrt -r 1 build/venv/bin/python -m pytest -s tests/chaos/test_throughput.py"""

import json
import os
import subprocess
from statistics import median

from service import BUILD, DEMO, marked

FLOOD = BUILD / "tests" / "tools" / "flood"
TOKENS = 32     # of each job


def cpu_s(pids):
    """Return the processor time that the processes have used, in seconds."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def pin(pid, cores):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


class Rig:
    """A service with one core per worker, as far as there are cores; controller and load share the last core."""

    def __init__(self, s):
        self.s = s
        names = marked(s.mark)
        self.workers = [pid for pid, name in names.items() if name.startswith("quern-work")]
        self.controllers = [pid for pid, name in names.items() if name.startswith("quern-contr")]
        cores = sorted(os.sched_getaffinity(0))
        for i, pid in enumerate(self.workers):
            pin(pid, [cores[i % len(cores)]])
        self.last = cores[-1:]
        for pid in self.controllers:
            pin(pid, self.last)

    def flood(self, at_once, warm_s, seconds):
        """Return the tool's figures, and the processor time used meanwhile."""
        assert FLOOD.exists(), f"{FLOOD} is not built; run: make tests"
        argv = [FLOOD, self.s.jobs, at_once, TOKENS, warm_s, seconds]
        with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, text=True) as p:
            pin(p.pid, self.last)
            assert p.stdout.readline() == "begin\n"
            before = cpu_s(self.workers), cpu_s(self.controllers)
            r = json.loads(p.stdout.readline())
            r["worker_s"], r["controller_s"] = cpu_s(self.workers) - before[0], cpu_s(self.controllers) - before[1]
        assert p.returncode == 0 and r["done"]
        self.s.idle()
        r["rate"], r["rate_cpu"] = r["tokens"] / r["seconds"], r["tokens"] / max(r["worker_s"], 0.01)
        return r


def test_overload_is_refused_and_accepted_jobs_continue(start, long, figures):
    """Ten times the load that fits, alternating with the load that fits."""
    slots, queued = 16, 16
    rig = Rig(start(DEMO, "--max-seqs", slots, "--max-queued-jobs", queued, "--threads", 1))
    turns, warm_s, seconds = (8, 0.5, 3) if long else (1, 0.3, 1)
    turns = [(rig.flood(slots + queued // 2, warm_s, seconds), rig.flood(10 * (slots + queued), warm_s, seconds))
             for _ in range(turns)]
    assert all(over["refused"] for _, over in turns)
    if not long:
        return
    cpu = [100 * over["rate_cpu"] / peak["rate_cpu"] for peak, over in turns]
    wall = [100 * over["rate"] / peak["rate"] for peak, over in turns]
    cost_us = [1e6 * (over["controller_s"] - peak["controller_s"]) / over["refused"] for peak, over in turns]
    overs = [over for _, over in turns]
    figures(f"{len(turns)} turns of {seconds} s, peak {median([peak['rate'] for peak, _ in turns]):.0f} tokens/s; at ten times the load, "
            f"of the peak before it: {median(wall):.1f}% per second ({min(wall):.1f} to {max(wall):.1f}), {median(cpu):.1f}% per second of "
            f"the worker's processor time ({min(cpu):.1f} to {max(cpu):.1f})")
    figures(f"{sum(o['refused'] for o in overs)} refusals: p50 {median([o['p50_ms'] for o in overs]):.2f} ms, p99 "
            f"{median([o['p99_ms'] for o in overs]):.2f} ms, longest {max(o['max_ms'] for o in overs):.1f} ms; each costs the controller "
            f"{median(cost_us):.0f} us")


def test_two_replicas_do_twice_the_work_of_one(start, long, figures):
    """A second replica must not lower the work per second of a worker's processor time: then two replicas with their
    own cores do twice the work."""
    slots = 16
    turns, warm_s, seconds = (4, 0.5, 4) if long else (1, 0.3, 1)
    of = {}
    for n in (1, 2):
        rig = Rig(start(DEMO, "--replicas", n, "--max-seqs", slots, "--threads", 1))
        assert len(rig.workers) == n
        of[n] = [rig.flood(n * (slots + slots // 2), warm_s, seconds) for _ in range(turns)]
        assert rig.s.end() == 0
    one, two = of[1], of[2]
    cpu = [median([r["rate_cpu"] for r in runs]) for runs in (one, two)]
    wall = [median([r["rate"] for r in runs]) for runs in (one, two)]
    busy = [sum(r["worker_s"] for r in runs) / sum(r["seconds"] for r in runs) for runs in (one, two)]
    figures(f"one replica: {cpu[0]:.0f} tokens per second of a worker's processor time, two: {cpu[1]:.0f} ({100 * cpu[1] / cpu[0]:.1f}%); "
            f"per second {wall[0]:.0f} with {busy[0]:.2f} cores of workers, {wall[1]:.0f} with {busy[1]:.2f}: "
            f"{wall[1] / wall[0] / (busy[1] / busy[0]):.2f} of the work for as much processor time")
