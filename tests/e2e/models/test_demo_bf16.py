"""models/demo-bf16: the demo model with floats, made by models/demo_bf16.py."""

import json
import subprocess
import sys

from service import DEMO, ROOT

BF16 = ROOT / "models" / "demo-bf16"


def test_the_script_makes_what_is_there(tmp_path):
    subprocess.run([sys.executable, ROOT / "models" / "demo_bf16.py", tmp_path / "made"], check=True)
    files = sorted(p.name for p in BF16.iterdir())
    assert files == sorted(p.name for p in (tmp_path / "made").iterdir())
    for name in files:
        assert (tmp_path / "made" / name).read_bytes() == (BF16 / name).read_bytes(), name
    assert sum(p.stat().st_size for p in BF16.iterdir()) <= 8_000_000


def test_it_tells_the_same_stories_as_the_demo_model(start):
    """The likeliest tokens of the checks lead by more than rounding can change."""
    checks = json.loads((DEMO / "checks.json").read_text())
    s = start(BF16)
    cases = (checks["checks"] if isinstance(checks, dict) else checks)[:40]
    with s.client() as c:
        jobs = [c.submit(x["prompt"], max_tokens=len(x["tokens"]), temperature=0, ignore_eos=True) for x in cases]
        same = sum(j.done().tokens == x["tokens"] for j, x in zip(jobs, cases))
    assert same >= 36, same
