"""A rolling upgrade of two services at one address, under load: controllers first, then workers."""

import sys
import uuid

from service import BIN, ROOT, no_processes_left, spawn

sys.path.insert(0, str(ROOT / "deploy" / "check" / "lib"))
import rolling  # noqa: E402


def test_an_upgrade_loses_no_job_and_no_event(tmp_path):
    mark = uuid.uuid4().hex
    new = rolling.other_version(BIN, tmp_path / "new")
    figures = rolling.roll(BIN, new, tmp_path, popen=lambda argv, **how: spawn(argv, mark, **how))
    assert figures["upgrades"] == 2 and figures["durable_jobs"] == 4
    assert figures["streams_resumed"] >= 1 and figures["requests"] >= 2, figures
    assert len(figures["versions"]) == 2, figures
    no_processes_left(mark)
