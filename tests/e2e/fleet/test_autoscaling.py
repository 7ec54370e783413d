"""A service that adapts the number of its replicas to its load (--max-replicas)."""

import pytest

from service import DEMO, eventually

PROMPT = "Once upon a time"
LONG = dict(max_tokens=120, seed=4, ignore_eos=True)


def n_serving(s):
    return sum(r["state"] == "serving" for r in s.status()["replicas"])


def test_replicas_follow_the_load_and_no_job_is_lost(start):
    # A step takes at least 10 ms, so that the load lasts on any machine.
    s = start(DEMO, "--max-replicas", 4, "--scale-at", 3, "--scale-period", 1, "--scale-down-after", 1, "--max-seqs", 4,
              "--threads", 1, step_ms=8)
    with s.client() as c:
        assert n_serving(s) == 1
        jobs = [c.submit(PROMPT, stream=False, **LONG) for _ in range(20)]

        def second():
            """The load lasts until the second replica serves, however slowly it starts."""
            if s.status()["waiting"] < 8:
                jobs.append(c.submit(PROMPT, stream=False, **LONG))
            return n_serving(s) > 1
        eventually(second, 60, "a second replica")
        ended = [j.done().tokens for j in jobs]
        eventually(lambda: n_serving(s) == 1 and len(s.workers()) == 1, 60, "one replica and no more")
        assert ended == [c.generate(PROMPT, **LONG).tokens] * len(jobs)
    assert "autoscale from=1" in s.log()
    assert s.end() == 0


def test_a_scale_by_hand_is_refused(start, run):
    s = start(DEMO, "--replicas", 1, "--max-replicas", 2)
    r = run("scale", "2", "--to", s.jobs)
    assert r.returncode == 1 and "1 to 2 replicas" in r.stderr and "--max-replicas" in r.stderr


@pytest.mark.parametrize("options, words", [
    (("--replicas", "3", "--max-replicas", "2"), ("--max-replicas 2", "--replicas 3")),
    (("--max-replicas", "40", "--tp", "2"), ("--max-replicas 40", "64 workers")),
    (("--device", "cpu,cpu,cpu", "--max-replicas", "2"), ("--device", "--max-replicas 2")),
    (("--scale-at", "3"), ("--scale-at", "--max-replicas")),
    (("--scale-at", "0", "--max-replicas", "2"), ("--scale-at",))], ids=str)
def test_what_cannot_be_is_named(run, options, words):
    r = run("serve", DEMO, *options)
    assert r.returncode == 2
    for word in words:
        assert word in r.stderr, r.stderr
