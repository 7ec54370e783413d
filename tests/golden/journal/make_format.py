#!/usr/bin/env python3
"""Writes a journal of the build's format as SQL: what a later version must be able to open.  It has a durable job that
is done, three that were killed after some tokens, with every sampling parameter between them, and a file.  Run once per format, with the last build that writes it:

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

# No value is neutral: each parameter of a request must come back, or the tokens are others.
SAMPLED = {
    "max_tokens": 300, "min_tokens": 2, "ignore_eos": True, "seed": 9, "temperature": 1.25, "top_k": 40, "top_p": 0.95, "min_p": 0.01,
    "typical_p": 0.9, "top_n_sigma": 3.5, "xtc_probability": 0.25, "xtc_threshold": 0.2, "presence_penalty": 0.25,
    "frequency_penalty": 0.125, "repetition_penalty": 1.1, "dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 3,
    "dry_penalty_last_n": 100, "dry_sequence_breakers": ["\n", "."], "logit_bias": {"269": 2.5, "276": -3}, "bad_words": ["dog", "red boat"],
    "stop_token_ids": [22], "logprobs": 2, "guided_regex": "[A-Za-z ,.\n]*"}
MIROSTAT = {"max_tokens": 300, "ignore_eos": True, "seed": 4, "temperature": 1.5, "mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.25}
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
            cases = {"unfinished": unfinished, "sampled": SAMPLED, "mirostat": MIROSTAT}
            whole = {name: client.generate("Once upon a time", **params) for name, params in cases.items()}
            done = client.generate("The dog", durable=True, max_tokens=20, seed=3)
            stored = upload(service)
            jobs = {name: client.submit("Once upon a time", durable=True, **params).accepted() for name, params in cases.items()}
            for job in jobs.values():
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
        assert db.execute("SELECT count(*) FROM jobs WHERE state = 0").fetchone()[0] == len(jobs), "a job had ended"
        lines = [f"PRAGMA {name} = {value};" for name, value in pragmas.items()]
        # Kept for ever, as far as sweeps by age are concerned: not at the hour of this run.
        db.execute("UPDATE jobs SET finished_at = 4000000000000000 WHERE finished_at IS NOT NULL")
        db.commit()
        out = Path(folder) / f"format-{pragmas['user_version']}"
        out.with_suffix(".sql").write_text("\n".join([*lines, *db.iterdump()]) + "\n")
        out.with_suffix(".json").write_text(json.dumps({
            "done": {"job": done.job, "text": done.text, "tokens": done.tokens},
            **{name: {"job": jobs[name].job, "text": o.text, "tokens": o.tokens} for name, o in whole.items()},
            "file": stored}, indent=1) + "\n")


main(sys.argv[1])
