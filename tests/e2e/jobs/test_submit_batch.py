"""quern submit --batch: a file of requests, its results file, interrupted and resumed."""

import json
import os
import signal
import subprocess
import time

import pytest

from service import DEMO, QUERN, Service, eventually, free_port, served

PROMPT = "Once upon a time"


def line(i, url="/v1/completions", **body):
    what = {"prompt": f"{PROMPT} {i}"} if url == "/v1/completions" else \
        {"messages": [{"role": "user", "content": f"{PROMPT} {i}"}]}
    return {"custom_id": f"line-{i}", "method": "POST", "url": url, "body": {"max_tokens": 10, "seed": i, **what, **body}}


@pytest.fixture
def batch(tmp_path):
    """Write the lines; return the command's arguments and the path of its results."""
    def write(lines):
        path = tmp_path / "in.jsonl"
        path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
        return path, tmp_path / "in.out.jsonl"
    return write


def run(service, path, *options, **kwargs):
    return subprocess.run([QUERN, "submit", "--batch", path, "--to", service.jobs, *options], capture_output=True,
                          text=True, timeout=120, **kwargs)


def read(path):
    return [json.loads(x) for x in path.read_text().splitlines()]


def test_results_are_beside_the_input_in_its_order(service, client, batch):
    path, out = batch([line(i) for i in range(30)] + [line(30, "/v1/chat/completions", n=2)])
    r = run(service, path)
    assert (r.returncode, r.stdout.strip(), r.stderr) == (0, str(out), "")
    got = read(out)
    assert [g["custom_id"] for g in got] == [f"line-{i}" for i in range(31)]
    for i in (0, 17):
        body = got[i]["response"]["body"]
        direct = client.generate(f"{PROMPT} {i}", max_tokens=10, seed=i)
        assert got[i]["response"]["status_code"] == 200 and got[i]["error"] is None
        assert body["object"] == "text_completion" and body["choices"][0]["text"] == direct.text
        assert body["usage"]["completion_tokens"] == 10
    chat = got[30]["response"]["body"]
    assert chat["object"] == "chat.completion"
    assert [c["message"]["role"] for c in chat["choices"]] == ["assistant"] * 2
    assert not out.with_name(out.name + ".part").exists()


def test_a_model_that_is_not_served_is_not_found(service, client, batch):
    served = client.ping()["model"]
    path, out = batch([line(0), line(1, model="some/name"), line(2, "/v1/chat/completions", model=served)])
    assert run(service, path).returncode == 1
    got = [(g["response"]["status_code"], g["response"]["body"].get("model")) for g in read(out)]
    assert served and got == [(200, served), (404, None), (200, served)]


def test_lines_that_fail_are_named_and_the_status_is_1(service, batch):
    path, out = batch([line(0), line(1, temperature=-1), line(2, stream=True), line(3, logprobs=1)])
    r = run(service, path)
    assert r.returncode == 1 and "2 of 4 lines have failed" in r.stderr and str(out) in r.stderr
    got = read(out)
    assert [g["response"]["status_code"] for g in got] == [200, 400, 400, 200]
    assert "temperature" in got[1]["response"]["body"]["error"]["message"]
    assert len(got[3]["response"]["body"]["choices"][0]["logprobs"]["tokens"]) == 10


@pytest.mark.parametrize("lines, word", [
    ([line(0), "{nonsense"], "line 2"), ([line(0), line(0)], "custom_id"), ([], "no lines"),
])
def test_a_wrong_file_is_refused_before_anything_is_submitted(service, batch, lines, word):
    path, out = batch(lines)
    r = run(service, path)
    assert r.returncode == 1 and word in r.stderr and not out.exists()


def test_results_are_not_overwritten(service, batch):
    path, out = batch([line(0)])
    out.write_text("precious")
    r = run(service, path)
    assert r.returncode == 1 and "already exists" in r.stderr and out.read_text() == "precious"
    other = out.with_name("other.jsonl")
    assert run(service, path, "--output", other).returncode == 0 and len(read(other)) == 1


def test_durable_needs_a_journal(service, batch):
    path, _ = batch([line(0)])
    r = run(service, path, "--durable")
    assert r.returncode == 1 and "--journal" in r.stderr


def test_a_batch_and_a_prompt_are_wrong_usage(service, batch):
    path, _ = batch([line(0)])
    r = subprocess.run([QUERN, "submit", "hello", "--batch", path, "--to", service.jobs], capture_output=True, text=True)
    assert r.returncode == 2


@pytest.mark.parametrize("option", [("-m", "5"), ("--detach",), ("--user", "u"), ("--chat",), ("--json",)])
def test_options_without_effect_on_a_batch_are_refused_by_name(service, batch, option):
    path, out = batch([line(0)])
    r = run(service, path, *option)
    assert r.returncode == 2 and "is not for --batch" in r.stderr
    assert not out.exists()


def test_options_of_a_batch_are_refused_without_one(service):
    r = subprocess.run([QUERN, "submit", "--to", service.jobs, "--output", "x", PROMPT], capture_output=True, text=True,
                       timeout=60)
    assert r.returncode == 2 and "--output is for --batch only" in r.stderr


def test_an_idempotency_key_makes_two_submits_one_job(service):
    key = ("--idempotency-key", "once-only")
    jobs = [subprocess.run([QUERN, "submit", "--to", service.jobs, *key, "--detach", "-m", "3", PROMPT], capture_output=True,
                           text=True, timeout=60) for _ in range(2)]
    assert [j.returncode for j in jobs] == [0, 0], jobs
    assert jobs[0].stdout == jobs[1].stdout != ""


@pytest.fixture(scope="module")
def slow():
    """Workers sleep between steps: a line of 300 tokens takes at least 6 s on any machine."""
    yield from served(DEMO, (), step_ms=20)


def begun(slow, path, part, n):
    """Start a command and wait for n results, far from its end: lines after n are long, and 8 run at a time."""
    p = subprocess.Popen([QUERN, "submit", "--batch", path, "--to", slow.jobs, "--concurrency", "8"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    eventually(lambda: part.exists() and part.read_text().count("custom_id") >= n, what="some results")
    return p


def test_an_interrupted_batch_continues(service, slow, client, batch):
    n = 60
    path, out = batch([line(i, max_tokens=300 if i >= 5 else 5, ignore_eos=True, temperature=1.0) for i in range(n)])
    part = out.with_name(out.name + ".part")
    p = begun(slow, path, part, 5)
    p.send_signal(signal.SIGINT)
    _, output = p.communicate(timeout=30)
    assert p.returncode == 1 and "the same command continues" in output, output
    have = part.read_text().count("custom_id")
    with open(part, "a") as f:
        f.write("57 0 400\n{half a re")     # left by a command that was killed while it wrote
    r = run(service, path)
    assert r.returncode == 0, r.stderr
    got = read(out)
    assert [g["custom_id"] for g in got] == [f"line-{i}" for i in range(n)]
    assert 5 <= have < n
    direct = client.generate(f"{PROMPT} 59", max_tokens=300, ignore_eos=True, temperature=1.0, seed=59)
    assert got[59]["response"]["body"]["choices"][0]["text"] == direct.text


def test_a_changed_input_does_not_keep_old_results(service, slow, batch):
    lines = lambda t: [line(i, max_tokens=300 if i else 5, ignore_eos=True, temperature=t) for i in range(60)]
    path, out = batch(lines(0.7))
    part = out.with_name(out.name + ".part")
    p = begun(slow, path, part, 1)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    size = path.stat().st_size
    batch(lines(0.8))
    assert path.stat().st_size == size
    r = run(service, path)
    assert r.returncode == 1 and "other contents of the input file" in r.stderr and str(part) in r.stderr
    head, _, rest = part.read_text().partition("\n")
    part.write_text(" ".join(head.split()[:4]) + "\n" + rest)
    r = run(service, path)
    assert r.returncode == 1 and "older quern" in r.stderr and not out.exists()
    part.unlink()
    assert run(service, path).returncode == 0 and len(read(out)) == 60


def test_more_lines_than_the_service_queues_are_all_done(tmp_path, batch):
    s = Service(DEMO, "--max-queued-jobs", "16")
    try:
        path, out = batch([line(i) for i in range(300)])
        r = run(s, path, "--concurrency", "300")
        assert r.returncode == 0, r.stderr
        assert [g["custom_id"] for g in read(out)] == [f"line-{i}" for i in range(300)]
    finally:
        s.stop()


def test_with_a_journal_a_batch_survives_killing_every_process(tmp_path, batch):
    n = 40
    path, out = batch([line(i, max_tokens=200, ignore_eos=True, temperature=1.0) for i in range(n)])
    address = f"tcp://127.0.0.1:{free_port()}"
    start = lambda: Service(DEMO, "--journal", tmp_path / "j", "--jobs", address)
    s = start()
    try:
        reference = {}
        with s.client() as c:
            for i in range(n):
                reference[f"line-{i}"] = c.submit(f"{PROMPT} {i}", stream=False, max_tokens=200, ignore_eos=True,
                                                  temperature=1.0, seed=i)
            reference = {k: v.done().text for k, v in reference.items()}
        p = subprocess.Popen([QUERN, "submit", "--batch", path, "--to", s.jobs, "--durable"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)
        s.kill()
        s.stop()
        s = start()
        output, error = p.communicate(timeout=90)
        assert p.returncode == 0, error
        assert {g["custom_id"]: g["response"]["body"]["choices"][0]["text"] for g in read(out)} == reference
        keys = [row["key"] for row in s.client().call("jobs")["jobs"] if row.get("key")]
        assert len(set(keys)) == len(keys) == n
    finally:
        s.stop()


def test_a_batch_goes_on_after_the_service_has_ended_and_is_back(tmp_path, batch):
    """Lines that the end of the service cut have no result."""
    n = 12
    lines = [line(i, max_tokens=200, ignore_eos=True) for i in range(n)]
    address = "--jobs", f"tcp://127.0.0.1:{free_port()}"
    s = Service(DEMO, *address)
    try:
        path, out = batch(lines)
        assert run(s, path).returncode == 0
        reference = {g["custom_id"]: g["response"]["body"]["choices"] for g in read(out)}
        out.unlink()
        os.kill(s.workers()[0]["pid"], signal.SIGSTOP)      # no line may end before the service does
        p = subprocess.Popen([QUERN, "submit", "--batch", path, "--to", s.jobs], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        with s.client() as c:
            eventually(lambda: len(c.jobs()) == 2 * n)
        s.stop()
        s = Service(DEMO, *address)
        _, error = p.communicate(timeout=90)
        assert p.returncode == 0, error
        assert {g["custom_id"]: g["response"]["body"]["choices"] for g in read(out)} == reference
    finally:
        s.stop()
