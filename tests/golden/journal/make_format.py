#!/usr/bin/env python3
"""Writes a journal of the build's format as SQL: what a later version must be able to open.  It has a durable job that
is done, one that was killed after some tokens, and a file.  Run once per format, with the last build that writes it:

    QUERN_BUILD=build build/venv/bin/python tests/golden/journal/make_format.py tests/golden/journal"""

import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
from service import DEMO, Service, marked

OPTIONS = ("--compute", "f32", "--keep-durable", str(366 * 86400))   # a class that every machine has


def upload(service):
    boundary = "b0undary"
    form = (f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\n'
            f'content-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n{{"a": 1}}\n\r\n--{boundary}--\r\n')
    request = urllib.request.Request(service.http + "/v1/files", form.encode(),
                                     {"content-type": f"multipart/form-data; boundary={boundary}"})
    return json.load(urllib.request.urlopen(request, timeout=30))["id"]


def main(folder):
    with tempfile.TemporaryDirectory() as tmp:
        journal = Path(tmp) / "journal"
        service = Service(DEMO, "--journal", journal, *OPTIONS)
        try:
            client = service.client()
            unfinished = {"max_tokens": 300, "ignore_eos": True, "seed": 5, "temperature": 1.0}
            whole = client.generate("Once upon a time", **unfinished)
            done = client.generate("The dog", durable=True, max_tokens=20, seed=3)
            stored = upload(service)
            job = client.submit("Once upon a time", durable=True, **unfinished).accepted()
            for _ in range(5):
                job.event()
            time.sleep(0.4)    # tokens are saved every 250 ms
            for pid in marked(service.mark):
                os.kill(pid, signal.SIGKILL)
            service.process.wait(30)
        finally:
            service.stop()
        db = sqlite3.connect(journal)
        pragmas = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")}
        assert db.execute("SELECT count(*) FROM jobs WHERE state = 0").fetchone()[0] == 1, "the job had ended"
        lines = [f"PRAGMA {name} = {value};" for name, value in pragmas.items()]
        # Kept for ever, as far as sweeps by age are concerned: not at the hour of this run.
        db.execute("UPDATE jobs SET finished_at = 4000000000000000 WHERE finished_at IS NOT NULL")
        db.commit()
        out = Path(folder) / f"format-{pragmas['user_version']}"
        out.with_suffix(".sql").write_text("\n".join([*lines, *db.iterdump()]) + "\n")
        out.with_suffix(".json").write_text(json.dumps({
            "done": {"job": done.job, "text": done.text, "tokens": done.tokens},
            "unfinished": {"job": job.job, "text": whole.text, "tokens": whole.tokens},
            "file": stored}, indent=1) + "\n")


main(sys.argv[1])
