"""Journals of earlier formats (written by tests/golden/journal/make_format.py with the last build of each format) are
opened and migrated once, with all their contents."""

import json
import sqlite3
import urllib.request

import pytest

from service import DEMO, ROOT, Service

GOLDEN = ROOT / "tests" / "golden" / "journal"
FORMATS = sorted(p.stem for p in GOLDEN.glob("format-*.sql"))
CURRENT = 4


def columns(journal):
    db = sqlite3.connect(journal)
    try:
        return {t: [c[1] for c in db.execute(f"PRAGMA table_info({t})")]
                for (t,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    finally:
        db.close()


def query(journal, sql):
    db = sqlite3.connect(journal)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def serve(journal, *options):
    return Service(DEMO, "--journal", journal, "--compute", "f32", "--keep-durable", str(366 * 86400), *options)


@pytest.mark.parametrize("name", FORMATS)
def test_an_old_journal_is_migrated_with_its_jobs_and_files(tmp_path, name):
    journal, want = tmp_path / "journal", json.loads((GOLDEN / f"{name}.json").read_text())
    db = sqlite3.connect(journal)
    db.executescript((GOLDEN / f"{name}.sql").read_text())
    db.close()
    had = query(journal, "PRAGMA user_version")[0][0]
    assert f"format-{had}" == name

    s = serve(journal, "--name", "teller,other", "--allow-class-change")  # of grammars, which are newer by now
    try:
        client = s.client()
        done = client.call("result", job=want["done"]["job"])["outputs"][0]
        assert (done["text"], done["tokens"]) == (want["done"]["text"], want["done"]["tokens"])
        for kind in ("unfinished", "sampled", "mirostat"):
            if kind in want:
                rest = client.attach(want[kind]["job"]).done()
                assert (rest.text, rest.tokens) == (want[kind]["text"], want[kind]["tokens"]), kind
        with urllib.request.urlopen(f"{s.http}/v1/files/{want['file']}/content", timeout=30) as reply:
            assert reply.read() == b'{"a": 1}\n'
        new = client.generate("The dog", durable=True, max_tokens=2).job
        assert f"format={CURRENT} old_format={had}" in s.log()
    finally:
        s.stop()
    assert query(journal, "PRAGMA user_version") == [(CURRENT,)]
    assert query(journal, f"SELECT model FROM jobs WHERE id = '{new}'") == [("teller",)]
    assert query(journal, f"SELECT model FROM jobs WHERE id = '{want['done']['job']}'") == [(None if had < 3 else "demo",)]

    fresh = tmp_path / "fresh"
    s = serve(fresh)
    s.stop()
    assert columns(journal) == columns(fresh)
    s = serve(journal)    # a second start migrates nothing
    try:
        assert s.client().call("result", job=new)["outputs"][0]["tokens"]
        assert "journal converted" not in s.log()
    finally:
        s.stop()


def test_the_current_format_has_no_golden_yet_and_all_others_have():
    assert FORMATS == [f"format-{n}" for n in range(2, CURRENT)]
