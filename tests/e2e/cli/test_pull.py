"""`quern pull`, list and rm with a faulty hub on loopback, and the commands that find pulled models."""

import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hub import COMMIT, Hub
from service import DEMO, QUERN, ROOT, SLOW, spawn
from terminal import Terminal

MIB = 1 << 20


def random_bytes(n, seed=1):
    return random.Random(seed).randbytes(n)


BIG = random_bytes(9 * MIB + 12345)
FILES = {
    "config.json": b'{"model_type": "none"}', ".gitattributes": b"*.bin filter=lfs", "README.md": b"hello",
    "model.safetensors": BIG, "tokenizer.json": random_bytes(5000, 2), "pytorch_model.bin": b"x" * 2000,
    "onnx/model.onnx": b"y" * 3000, "original/consolidated.00.pth": b"z" * 10, "generation_config.json": b"",
}
SERVED = {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "QUERN_TOKEN", "HF_ENDPOINT", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QUERN_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "models"


@pytest.fixture
def hub(monkeypatch):
    made = []

    def make(files=FILES, **kwargs):
        made.append(Hub(files, **kwargs))
        monkeypatch.setenv("HF_ENDPOINT", made[-1].url)
        return made[-1]
    yield make
    for h in made:
        h.close()


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and p.name != ".quern-model.json"}


def pulled(cache, files=FILES, names=SERVED, commit=COMMIT):
    assert contents(cache / "org" / "name" / commit) == {n: files[n] for n in names}
    assert not list((cache / "org" / "name").glob("*.part"))


# --- files to fetch ---

def test_pull_fetches_what_serving_needs_and_list_shows_it(hub, cache, run):
    h = hub()
    r = run("pull", "org/name")
    assert r.returncode == 0, r.stderr
    assert COMMIT[:12] in r.stdout and str(cache) in r.stdout
    pulled(cache)
    assert sum("Range" in q[3] for q in h.of_files()) >= 9    # the large file in chunks
    (m,) = json.loads(run("list", "--json").stdout)
    assert m["name"] == "org/name" and m["revision"] == "main" and m["commit"] == COMMIT and not m["partial"]
    assert m["kind"] == "safetensors" and m["bytes"] >= len(BIG) and abs(m["date"] - time.time()) < 600
    assert "org/name" in run("list").stdout
    again = run("pull", "org/name")
    assert again.returncode == 0 and "fetched" not in again.stdout
    removed = run("rm", "org/name")
    assert removed.returncode == 0 and "MiB" in removed.stdout
    assert not any(cache.iterdir())
    assert run("rm", "org/name").returncode == 1


def test_a_dry_run_lists_files_and_fetches_none(hub, cache, run):
    h = hub()
    r = run("pull", "org/name", "--dry-run")
    assert r.returncode == 0 and "model.safetensors" in r.stdout and "onnx" not in r.stdout
    assert not h.of_files() and not cache.exists()


def test_a_revision_is_kept_beside_another(hub, cache, run):
    h = hub()
    assert run("pull", "org/name").returncode == 0
    sent = h.sent
    h.commit = "f" * 40
    h.files["tokenizer.json"] = random_bytes(4000, 5)
    assert run("pull", "org/name@v1/x").returncode == 0
    pulled(cache)
    pulled(cache, h.files, commit=h.commit)
    assert h.sent - sent < 10000            # unchanged files were not fetched again
    assert "v1%2Fx" in [q[2] for q in h.requests if "/api/" in q[2]][-1]
    names = [(m["name"], m["revision"]) for m in json.loads(run("list", "--json").stdout)]
    assert sorted(names) == [("org/name", "main"), ("org/name", "v1/x")]
    assert run("rm", "name@" + COMMIT[:8]).returncode == 0
    assert run("rm", "org/name@v1/x").returncode == 0
    assert json.loads(run("list", "--json").stdout) == []


def test_include_and_exclude_choose_files(hub, cache, run):
    hub()
    assert run("pull", "org/name", "--include", "*.json", "--include", "onnx/*", "--exclude", "tok*").returncode == 0
    pulled(cache, names={"config.json", "generation_config.json", "onnx/model.onnx"})
    assert run("pull", "org/name", "--include", "README*").returncode == 0      # added to the existing files
    pulled(cache, names={"config.json", "generation_config.json", "onnx/model.onnx", "README.md"})
    r = run("pull", "org/name", "--include", "nothing*")
    assert r.returncode == 1 and "--include" in r.stderr


def test_one_of_several_gguf_files_is_chosen_by_the_user(hub, cache, run):
    hub({"m-Q4_0.gguf": b"4" * 2000, "m-Q8_0-00001-of-00002.gguf": b"8" * 2000, "m-Q8_0-00002-of-00002.gguf": b"9" * 2000,
         "mmproj-x.gguf": b"p"})
    r = run("pull", "org/name")
    assert r.returncode == 1 and "2 models" in r.stderr and "m-Q4_0.gguf" in r.stderr and "--include" in r.stderr
    assert run("pull", "org/name", "--exclude", "*Q4_0*").returncode == 0
    assert set(contents(cache / "org" / "name" / COMMIT)) == {"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"}


def test_weights_in_pytorch_format_only_are_refused(hub, run):
    hub({"config.json": b"{}", "pytorch_model.bin": b"x"})
    r = run("pull", "org/name")
    assert r.returncode == 1 and "PyTorch" in r.stderr


@pytest.mark.parametrize("page", [None, 2])
def test_a_hub_without_sizes_has_a_tree(hub, cache, run, page):
    h = hub(sized=False)
    h.page = page
    assert run("pull", "org/name").returncode == 0
    pulled(cache)


def test_a_directory_of_a_web_server_is_a_model(hub, cache, run):
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(), "model-1.safetensors": BIG,
             "model-2.safetensors": b"2" * 100, "tokenizer.json": b"{}", "other": b"o"}
    h = hub(files)
    r = run("pull", h.url + "/files", "--as", "me/it")
    assert r.returncode == 0, r.stderr
    assert "no checksums" in r.stderr
    (folder,) = (cache / "me" / "it").glob("[0-9a-f]*")
    assert contents(folder) == {n: files[n] for n in files if n != "other"}


def test_a_file_of_a_web_server_is_a_model(hub, cache, run):
    h = hub({"x.gguf": BIG})
    assert run("pull", h.url + "/files/x.gguf?signature=secret").returncode == 0
    (m,) = json.loads(run("list", "--json").stdout)
    assert m["name"].startswith("localhost-") and m["name"].endswith("/x.gguf") and m["kind"] == "GGUF"
    assert "secret" not in json.dumps(m) and not any(b"secret" in p.read_bytes() for p in cache.rglob(".quern-model.json"))


# --- names that serve, run, inspect, tokenize find ---

def test_commands_find_what_was_pulled(hub, run):
    h = hub({f.name: f.read_bytes() for f in DEMO.iterdir() if f.suffix in (".json", ".safetensors", ".jinja")})
    assert run("pull", h.url + "/org/name/tree/main").returncode == 0
    for word in ("org/name", "name", "org/name@main", "name@" + COMMIT[:7]):
        assert "parameters" in run("inspect", word, "--no-probe").stdout
    assert run("tokenize", "name", input="Once upon").returncode == 0
    ours = run("run", "org/name", "--raw", "Once upon a time", "--max-tokens", "8", "--temperature", "0")
    assert ours.stdout == run("run", DEMO, "--raw", "Once upon a time", "--max-tokens", "8", "--temperature", "0").stdout != ""
    r = run("inspect", "org/other")
    assert r.returncode == 1 and "quern pull org/other" in r.stderr


def test_convert_and_quantize_find_what_was_pulled(hub, run, tmp_path):
    folder = ROOT / "models" / "demo-bf16"
    hub({p.name: p.read_bytes() for p in folder.iterdir()})
    assert run("pull", "org/name").returncode == 0
    for i, word in enumerate(("org/name", "name", f"name@{COMMIT[:8]}")):
        r = run("quantize", word, tmp_path / f"int8-{i}", "--type", "int8")
        assert r.returncode == 0, r.stderr
    r = run("convert", "name", tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0, r.stderr
    (tmp_path / "text.txt").write_text("Once upon a time there was a little girl.\n" * 20)
    r = run("quantize", "--compare", "name", tmp_path / "int8-0", tmp_path / "text.txt", "--json", "--eval-tokens", "64")
    assert r.returncode == 0, r.stderr


def test_a_service_is_named_after_the_model(hub, run, start):
    hub({f.name: f.read_bytes() for f in DEMO.iterdir() if f.suffix in (".json", ".safetensors", ".jinja")})
    assert run("pull", "org/name").returncode == 0
    with start("org/name").client() as c:
        assert c.call("ping")["model"] == "org/name"


# --- faults ---

def faulty(times, answer, when=lambda handler: True):
    """A fault that occurs n times."""
    left = [times]

    def fault(handler, hub):
        if left[0] <= 0 or not when(handler):
            return False
        left[0] -= 1
        answer(handler, hub)
        return True
    return fault


def large(handler):
    return handler.role == "cdn" and "model.safetensors" in handler.path


def test_cut_connections_go_on_where_they_were(hub, cache, run):
    h = hub()
    h.faults.append(faulty(6, lambda a, hub: a.send(BIG, cut=300000), large))
    assert run("pull", "org/name", "--connections", "3").returncode == 0
    pulled(cache)
    assert h.sent < len(BIG) + 2 * MIB       # received bytes were not requested again
    assert any(int(q[3]["Range"][6:].split("-")[0]) % MIB for q in h.of_files() if q[0] == "cdn")


def test_a_wrong_range_is_not_taken(hub, cache, run):
    h = hub()
    h.faults.append(faulty(3, lambda a, hub: a.send(BIG, shift=1000), large))
    r = run("pull", "org/name")
    assert r.returncode == 0 and "checksum" not in r.stderr
    pulled(cache)


def test_a_server_that_only_sends_wrong_ranges_is_named(hub, cache, run):
    h = hub()
    h.faults.append(lambda a, hub: large(a) and a.send(BIG, shift=1000))
    r = run("pull", "org/name", "--connections", "2")
    assert r.returncode == 1 and "model.safetensors" in r.stderr and "another range" in r.stderr


def test_a_server_without_ranges_sends_whole_files(hub, cache, run):
    h = hub(ranges=False)
    h.faults.append(faulty(1, lambda a, hub: a.send(BIG, cut=3 * MIB), large))
    assert run("pull", "org/name").returncode == 0
    pulled(cache)


@pytest.mark.parametrize("path, kind", [("model.safetensors", "SHA-256"), ("tokenizer.json", "SHA-256"), ("config.json", "Git's SHA-1")])
def test_a_wrong_checksum_is_fetched_again_then_refused(hub, cache, run, path, kind):
    h = hub()
    h.digests[path] = ("1" * 64, "2" * 40)
    r = run("pull", "org/name")
    assert r.returncode == 1 and path in r.stderr and kind in r.stderr and "fetched again" in r.stderr
    assert not (cache / "org" / "name" / COMMIT).exists()
    h.digests.clear()
    assert run("pull", "org/name").returncode == 0
    pulled(cache)


def test_a_corrupt_answer_is_fetched_again(hub, cache, run):
    h = hub()
    broken = bytes(1000) + BIG[1000:]
    h.faults.append(faulty(1, lambda a, hub: a.send(broken), lambda a: large(a) and "bytes=0-" in a.headers["Range"]))
    r = run("pull", "org/name")
    assert r.returncode == 0 and "fetched again" in r.stderr
    pulled(cache)


def test_too_many_requests_waits_as_long_as_the_server_says(hub, cache, run):
    h = hub()
    times = []

    def busy(a, hub):
        times.append(time.monotonic())
        a.reply(429, b"slow down", Retry_After=1)
    h.faults.append(faulty(1, busy, large))
    h.faults.append(lambda a, hub: times.append(time.monotonic()) if large(a) else None)
    assert run("pull", "org/name", "--connections", "1").returncode == 0
    pulled(cache)
    assert times[1] - times[0] >= 0.9


def test_a_server_that_is_ill_is_tried_again(hub, cache, run):
    h = hub()
    h.faults.append(faulty(4, lambda a, hub: a.reply(503, b"later")))
    assert run("pull", "org/name").returncode == 0
    pulled(cache)


def test_a_size_that_the_list_has_not_is_refused(hub, cache, run):
    h = hub()
    h.faults.append(lambda a, hub: large(a) and a.send(BIG + b"more"))
    r = run("pull", "org/name")
    assert r.returncode == 1 and "model.safetensors" in r.stderr and str(len(BIG)) in r.stderr


def saved(state):
    """Return the bytes that the state file lists as complete."""
    try:
        return sum(json.loads(state.read_text())["done"])
    except (OSError, ValueError):
        return 0


def pull_until(h, sent, end, *arguments):
    """Start a pull and end it after this many bytes were sent: (returncode, stderr)."""
    slow = threading.Event()
    h.faults.append(lambda a, hub: large(a) and a.send(hub.files["model.safetensors"],
                                                       pace=lambda: time.sleep(0.001 if h.sent < sent else 0.5)))
    p = spawn([QUERN, "pull", "org/name", *arguments], "pull-until", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60 * SLOW
    while h.sent < sent and p.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    # The state on disk is at most a second old.
    while p.poll() is None and time.monotonic() < until and not any(saved(s) >= sent // 2 for s in h.cache.rglob("*.state")):
        time.sleep(0.01)
    end(p)
    out, err = p.communicate(timeout=60 * SLOW)
    slow.set()
    h.faults.pop()
    return p.returncode, err


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_a_pull_that_was_ended_goes_on(hub, cache, run, sig):
    h = hub()
    h.cache = cache
    rc, err = pull_until(h, 4 * MIB, lambda p: p.send_signal(sig), "--connections", "4")
    assert rc == (1 if sig == signal.SIGINT else -sig)
    if sig == signal.SIGINT:
        assert "interrupted" in err and "resumes" in err
    (m,) = json.loads(run("list", "--json").stdout)
    assert m["partial"] and m["kind"] == "partial"
    assert "no such model" in run("inspect", "org/name").stderr     # not yet
    sent, n = h.sent, len(h.requests)
    assert run("pull", "org/name").returncode == 0
    pulled(cache)
    assert h.sent - sent < len(BIG) - (MIB if sig == signal.SIGINT else 0)
    assert not any("config.json" in q[2] for q in h.requests[n:] if "/resolve/" in q[2] and "generation" not in q[2])


def test_partial_pulls_can_be_removed(hub, cache, run):
    h = hub()
    h.cache = cache
    pull_until(h, 2 * MIB, lambda p: p.kill())
    r = run("rm", "--partial")
    assert r.returncode == 0 and "partial" in r.stdout
    assert json.loads(run("list", "--json").stdout) == []


def test_a_damaged_state_costs_a_new_fetch_only(hub, cache, run):
    h = hub()
    h.cache = cache
    pull_until(h, 4 * MIB, lambda p: p.send_signal(signal.SIGINT))
    (state,) = cache.rglob(".model.safetensors.state")
    tree = json.loads(state.read_text())
    tree["done"] = [2**40, -5, "x"] + [MIB] * (len(tree["done"]) - 3)       # more than exists
    state.write_text(json.dumps(tree))
    r = run("pull", "org/name")
    assert r.returncode == 0 and "fetched again" in r.stderr
    pulled(cache)


def test_two_pulls_of_a_model_do_not_meet(hub, cache, run):
    h = hub()
    h.cache = cache
    seen = []
    pull_until(h, MIB, lambda p: (seen.append(run("pull", "org/name")), p.kill()))
    assert seen[0].returncode == 1 and "is running" in seen[0].stderr


@pytest.fixture
def small_disk(cache):
    """A file system of 100 MiB for the cache, in its own namespace: (words before a command, its path from here)."""
    cache.mkdir()
    p = subprocess.Popen(["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=100m x '{cache}' && echo mounted && exec sleep 600"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if p.stdout.readline() != "mounted\n":
            pytest.skip("no file system can be mounted here")
        yield ["nsenter", "-m", "-t", str(p.pid)], Path(f"/proc/{p.pid}/root{cache}")
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def test_a_disk_that_fills_is_named_and_costs_nothing_that_was_fetched(hub, small_disk):
    enter, disk = small_disk
    files = {"config.json": b"{}", "a.safetensors": BIG, "b.safetensors": random_bytes(9 * MIB, 3), "tokenizer.json": b"{}"}
    h = hub(files)

    def fill(a, hub):
        if a.role == "cdn" and hub.sent > 3 * MIB and not (disk / "other").exists():
            with open(disk / "other", "wb", buffering=0) as f, pytest.raises(OSError):
                while True:
                    f.write(bytes(MIB))
            time.sleep(1.5)     # the state of the received data is written meanwhile
    h.faults.append(fill)

    def pull():
        return subprocess.run([*enter, QUERN, "pull", "org/name", "--connections", "1"], capture_output=True, text=True, timeout=60)
    r = pull()
    assert r.returncode == 1
    assert "the disk is full" in r.stderr and ".part" in r.stderr and "QUERN_MODELS" in r.stderr and "resumes" in r.stderr
    sent = h.sent
    h.faults.clear()
    assert sent >= len(BIG)
    (disk / "other").unlink()
    r = pull()
    assert r.returncode == 0, r.stderr
    pulled(disk, files, set(files))
    assert h.sent - sent <= sum(map(len, files.values())) - len(BIG)
    assert not [p for p in disk.rglob("*") if p.name.endswith("~")]


# --- tokens and redirects ---

def test_the_token_goes_to_the_hub_and_to_no_other(hub, cache, run, monkeypatch):
    h = hub(token="hf_secret")
    r = run("pull", "org/name")
    assert r.returncode == 1 and "401" in r.stderr and "HF_TOKEN" in r.stderr and "QUERN_TOKEN" in r.stderr
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    r = run("pull", "org/name")
    assert r.returncode == 1 and "not accepted" in r.stderr and "hf_wrong" not in r.stderr
    h.requests.clear()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert run("pull", "org/name").returncode == 0
    pulled(cache)
    assert all(q[3].get("Authorization") == "Bearer hf_secret" for q in h.requests if q[0] == "hub")
    cdn = [q for q in h.requests if q[0] == "cdn"]
    assert cdn and not any("Authorization" in q[3] for q in cdn)


def test_the_hubs_token_is_not_sent_to_another_server(hub, run, monkeypatch):
    h = hub({"x.gguf": b"x" * 100})
    other = h.cdn_url                       # another origin than HF_ENDPOINT
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    h.requests.clear()
    run("pull", other + "/files/x.gguf")
    assert h.requests and not any("Authorization" in q[3] for q in h.requests)
    monkeypatch.setenv("QUERN_TOKEN", "mine")
    h.requests.clear()
    run("pull", other + "/files/x.gguf")
    assert any(q[3].get("Authorization") == "Bearer mine" for q in h.requests)


def test_redirects_end(hub, run):
    h = hub()
    h.redirect = h.url + "/org/name/resolve/" + COMMIT + "/model.safetensors?"
    r = run("pull", "org/name", "--connections", "1")
    assert r.returncode == 1 and "redirected more than 8 times" in r.stderr


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://localhost/x", "gopher://localhost:1/"])
def test_redirects_to_other_schemes_are_not_followed(hub, run, to):
    h = hub()
    h.redirect = to + "?"
    r = run("pull", "org/name", "--connections", "1")
    assert r.returncode == 1 and "redirected to where it is not followed" in r.stderr


# --- errors that name the cause ---

def test_what_is_not_there_is_named(hub, run):
    hub()
    r = run("pull", "org/name@nothing")
    assert r.returncode == 1 and "404" in r.stderr and "Invalid rev id: nothing" in r.stderr
    r = run("pull", "org/none")
    assert r.returncode == 1 and "401" in r.stderr and "does not exist" in r.stderr


@pytest.mark.parametrize("word", ["name", "../..", "org/..", "a/b/c", "org/name@", "org/na me", "-x/y", "org/name@../x",
                                  "http://", "http://user:secret@host/x/y"])
def test_what_is_not_a_name_is_refused(run, word):
    r = run("pull", "--", word)
    assert r.returncode == 2 and "secret" not in r.stderr.replace(word, "")


def test_a_server_that_is_not_there_is_named(run):
    r = run("pull", "org/name", "--endpoint", "http://127.0.0.1:1", timeout=120)
    assert r.returncode == 1 and "127.0.0.1:1" in r.stderr


def test_a_disk_that_is_too_small_is_found_before(hub, cache, run):
    h = hub()
    h.listing = {"sha": COMMIT, "siblings": [{"rfilename": "model.safetensors", "size": 2**49, "lfs": {"sha256": "0" * 64, "size": 2**49}}]}
    r = run("pull", "org/name")
    assert r.returncode == 1 and "512 TiB" in r.stderr and "quern rm" in r.stderr and "QUERN_MODELS" in r.stderr
    assert not h.of_files()


def test_a_file_that_may_not_grow_so_large_is_named(hub, cache, run):
    hub()
    code = ("import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20)); "
            "os.execv(sys.argv[1], sys.argv[1:])")
    r = subprocess.run([sys.executable, "-c", code, QUERN, "pull", "org/name"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "model.safetensors" in r.stderr and "ulimit -f" in r.stderr, r.stderr
    assert run("list", "--json").returncode == 0 and not list((cache / "org" / "name").glob(COMMIT))
    assert run("pull", "org/name").returncode == 0      # without a limit it continues
    pulled(cache)


def test_a_cache_that_cannot_be_written_is_named(hub, run, monkeypatch, tmp_path):
    hub()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("QUERN_MODELS", str(tmp_path / "file" / "x"))
    r = run("pull", "org/name")
    assert r.returncode == 1 and "QUERN_MODELS" in r.stderr


def listing(*files, sha=COMMIT):
    return {"sha": sha, "siblings": [{"rfilename": f, "size": 3, "blobId": "0" * 40} for f in files]}


@pytest.mark.parametrize("tree, word", [
    (listing("../../evil.safetensors"), "evil"), (listing("/etc/evil.safetensors"), "evil"), (listing("a/../../b"), "a/../../b"),
    (listing("a\\b"), "backslash"), (listing("a\x1bb"), "control"), (listing(""), "name"), (listing("x/" * 20 + "y"), "deep"),
    (listing("a" * 3000), "3000"), (listing("model.safetensors", "model.safetensors"), "twice"),
    (listing("model.safetensors", sha="../../../x"), "commit"), (listing("model.safetensors", sha=None), "commit"),
    (listing(*(f"{i}.json" for i in range(10001))), "10000"),
    ({"sha": COMMIT, "siblings": [{"rfilename": "model.safetensors", "size": 2**62}]}, "size"),
    ({"sha": COMMIT, "siblings": [{"rfilename": "model.safetensors", "size": -1}]}, "size"),
    ({"sha": COMMIT, "siblings": {"x": 1}}, "siblings"), ([], "commit"), (b"<html>", "JSON"), (b"", "JSON"),
    (b"[" * 100000, "JSON"), ({"sha": COMMIT, "siblings": [{"size": 3}]}, "name"),
], ids=range(20))
def test_lists_of_a_server_are_not_trusted(hub, cache, run, tmp_path, tree, word):
    h = hub()
    h.listing = tree
    r = run("pull", "org/name")
    assert r.returncode == 1 and word in r.stderr, r.stderr
    assert "\x1b" not in r.stderr and not h.of_files()
    assert not list(tmp_path.rglob("*evil*")) and not cache.exists()


def test_a_link_in_the_cache_is_not_followed(hub, cache, run, tmp_path):
    hub({"config.json": b"{}", "model.safetensors": b"m" * 50, "1_Pooling/config.json": b"{}"})
    staging = cache / "org" / "name" / f".{COMMIT}.part"
    staging.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (staging / "1_Pooling").symlink_to(outside)
    r = run("pull", "org/name")
    assert r.returncode == 1 and "1_Pooling" in r.stderr
    assert not list(outside.iterdir())
    (staging / "1_Pooling").unlink()
    (staging / ".model.safetensors.part").unlink(missing_ok=True)
    (staging / "model.safetensors").unlink(missing_ok=True)
    (staging / ".model.safetensors.part").symlink_to(outside / "x")
    assert run("pull", "org/name").returncode == 1
    assert not list(outside.iterdir())


# --- TLS ---

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                           "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                          capture_output=True)
    if made.returncode:
        pytest.skip("openssl makes no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_certificates_are_checked(hub, cache, run, certificate):
    context, cert = certificate
    hub(tls=context)
    r = run("pull", "org/name")
    assert r.returncode == 1 and "certificate" in r.stderr and "--ca" in r.stderr
    r = run("pull", "org/name", "--ca", cert)
    assert r.returncode == 0, r.stderr
    pulled(cache)


def test_https_is_not_left_by_a_redirect(hub, run, certificate):
    context, cert = certificate
    plain = Hub(FILES)
    h = hub(tls=context)
    h.redirect = plain.url
    r = run("pull", "org/name", "--ca", cert, "--connections", "1")
    assert r.returncode == 1 and "from https to http" in r.stderr and not plain.requests
    plain.close()


# --- progress ---

def test_progress_is_a_bar_on_a_terminal(hub, cache):
    h = hub()
    h.faults.append(lambda a, hub: large(a) and a.send(BIG, pace=lambda: time.sleep(0.05)))
    t = Terminal("pull", "org/name", **{k: v for k, v in os.environ.items() if k.startswith(("QUERN_", "HF_"))})
    try:
        t.expect("[")
        t.expect("/s, ")
        t.expect("model.safetensors")
        t.expect("fetched in")
    finally:
        t.end()
    pulled(cache)


def test_progress_is_lines_elsewhere(hub, run):
    hub()
    r = run("pull", "org/name")
    assert r.returncode == 0 and "\x1b" not in r.stderr and "% of 9.0 MiB" in r.stderr
