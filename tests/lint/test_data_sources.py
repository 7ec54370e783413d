"""tests/data: the list of the data outside the repository, and its program that fetches, makes and checks the files."""
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import threading
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FETCH = ROOT / "tests/data/fetch.py"
sys.path.insert(0, str(FETCH.parent))

import derive  # noqa: E402
import fetch   # noqa: E402

LISTED = fetch.entries()
TOPS = sorted({name.split("/")[0] for name in LISTED})
# Literals that begin like a path of the data and are something else: media types, paths of HTTP APIs.
NO_DATA = re.compile(r"text/(plain|html|css|event-stream|javascript)\b|text/(\*|;|$)|chat/completions\b")


# ---- the list ----

def named(text):
    """Return the paths of data in a test's text, with * for what is computed: literals, and SHARED / "folder" / "file"."""
    found = set()
    for literal in re.findall(rf'"((?:{"|".join(TOPS)})/[^"\s\\]*)"', text):
        if not NO_DATA.match(literal):
            found.add(re.sub(r"%[a-z]|\{[^}]*\}", "*", literal))
    folders = {"SHARED": ""}
    for name, first, rest in re.findall(r'^(\w+) = (\w+)((?: / "[^"]+")+)$', text, re.M):
        if first in folders:
            folders[name] = folders[first] + "".join(f"{p}/" for p in re.findall(r'"([^"]+)"', rest))
    for name, folder in folders.items():
        for rest in re.findall(rf'(?<![\w.]){name}((?: / f?"[^"]+")+)', text):
            found.add(folder + "/".join(re.sub(r"\{[^}]*\}", "*", p) for p in re.findall(r'"([^"]+)"', rest)))
    return found


def is_listed(path):
    return any(fnmatchcase(name, path) or fnmatchcase(name, f"{path.rstrip('/')}/*") for name in LISTED)


def test_every_path_of_data_that_tests_name_is_listed():
    lost = []
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix in {".c", ".h", ".py", ".json", ".toml"} and path.parent not in (FETCH.parent, Path(__file__).parent):
            text = path.read_text(encoding="utf-8")
            if "testdata" in text or "SHARED" in text or path.name in ("chat.json", "chat_tokens.json", "skips.toml"):
                text = re.sub(r'"data ([^"]+)"', r'"\1"', text)       # needs of skips.toml
                lost += [f"{path.relative_to(ROOT)}: {p}" for p in named(text) if not is_listed(p)]
    assert not lost, "not in tests/data/sources.toml:\n" + "\n".join(lost)


def test_a_path_that_is_not_listed_is_found():
    text = ('WEIGHTS = SHARED / "weights"\nx = WEIGHTS / f"no_such_{kind}"\ny = SHARED / "chat" / "none.json"\n'
            'testdata("tokenizers/no_such/tokenizer.json"); snprintf(rel, "weights/%s.no-such"); "text/plain"; "chat/completions"')
    assert {p for p in named(text) if not is_listed(p)} == {
        "weights/no_such_*", "chat/none.json", "tokenizers/no_such/tokenizer.json", "weights/*.no-such"}
    assert is_listed("weights/stories260K-gguf/stories260K-*.gguf") and is_listed("conformance/openai-api-samples")


def test_entries_are_complete():
    for name, entry in LISTED.items():
        assert re.fullmatch("[0-9a-f]{64}", entry["sha256"]), name
        assert entry["licence"] and (entry.get("how") or re.fullmatch("[0-9a-f]{12,40}", entry["commit"])), name


def test_each_made_file_can_be_made():
    """All but those marked as missing are in tests/data/made or come from derive.py, and nothing else is there."""
    kept = {str(p.relative_to(FETCH.parent / "made")) for p in (FETCH.parent / "made").rglob("*") if p.is_file()}
    made = {n for n, e in LISTED.items() if e["kind"] == "made" and not e.get("missing")}
    assert made == {n.removesuffix(".gz") if n.removesuffix(".gz") in made else n for n in kept} | set(derive.MADE)


def test_the_files_of_made_are_right(tmp_path):
    for name, entry in LISTED.items():
        if entry["kind"] == "made" and not entry.get("missing") and name not in derive.MADE:
            assert fetch.store(tmp_path, name, entry) is None and fetch.fault(tmp_path, name, entry) is None


# ---- the program ----

FILES = {"one": b"first\n", "two": b"second\n", "deep": b"third\n"}


def archive():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in (("r-1/yes/a", b"A"), ("r-1/no/b", b"B"), ("r-1/yes/c", b"C")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def of(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def hub():
    """An HTTP server with FILES below /o/r/0123456789ab/sub/, and the archive; .asked has the paths of requests."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            data = server.files.get(self.path)
            self.send_response(200 if data is not None else 404)
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.files = [], {f"/o/r/0123456789ab/sub/{n}": data for n, data in FILES.items()}
    server.files["/archive/o/r/0123456789ab"] = archive()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run(tmp_path, hub):
    """run(arguments...) -> (exit status, stdout, stderr) of fetch.py with a small list and this server."""
    members = hashlib.sha256(b"yes/a\0" + b"1\0A" + b"yes/c\0" + b"1\0C").hexdigest()
    source = '[[source]]\nrepository = "o/r"\ncommit = "0123456789ab"\nlicence = "MIT"\nfrom = "sub"\nto = "d"\n'
    (tmp_path / "list.toml").write_text(
        f'{source}files = [["one", "{of(FILES["one"])}"], ["2.gz", "{of(FILES["two"])}", "two"], ["3", "{of(FILES["deep"])}", "deep"]]\n'
        f'[[archive]]\nrepository = "o/r"\ncommit = "0123456789ab"\nlicence = "MIT"\nfolders = ["yes"]\nto = "e"\n'
        f'files = [["all.tar.gz", "{members}"]]\n'
        f'[[made]]\nhow = "by hand"\nlicence = "MIT"\nmissing = true\nto = "f"\nfiles = [["x", "{of(b"")}"]]\n')

    def call(*args, env=None):
        address = f"http://127.0.0.1:{hub.server_address[1]}"
        r = subprocess.run([sys.executable, FETCH, "--list", tmp_path / "list.toml",
                            "--hub", address + "/{repository}/{commit}/{path}", "--archives", address + "/archive/{repository}/{commit}",
                            *args], capture_output=True, text=True, env=env, check=False)
        return r.returncode, r.stdout, r.stderr
    return call


def test_files_are_fetched_once_and_checked(run, hub, tmp_path):
    folder = tmp_path / "data"
    status, out, err = run("--folder", folder)
    assert (status, err) == (0, "f/x: cannot be had: by hand\n") and "4 files fetched or made" in out
    assert (folder / "d/one").read_bytes() == FILES["one"] and (folder / "d/3").read_bytes() == FILES["deep"]
    assert gzip.decompress((folder / "d/2.gz").read_bytes()) == FILES["two"]
    with tarfile.open(folder / "e/all.tar.gz") as tar:
        assert tar.getnames() == ["yes/a", "yes/c"]
    assert len(hub.asked) == 4
    assert run("--folder", folder)[0] == 0 and len(hub.asked) == 4
    assert not list(folder.rglob("*.part"))


def test_check_needs_no_network_and_names_each_fault(run, hub, tmp_path):
    folder = tmp_path / "data"
    run("--folder", folder)
    hub.asked.clear()
    (folder / "d/one").write_text("other\n")
    (folder / "d/2.gz").write_text("no gzip")
    (folder / "d/3").unlink()
    status, out, err = run("--check", "--folder", folder)
    assert status == 1 and not hub.asked and "1 of 5 files are in" in out
    assert f"d/one: wrong checksum: SHA-256 {of(b'other')[:0]}" in err and "d/2.gz: damaged" in err and "d/3: missing" in err
    assert run("--folder", folder)[0] == 0, "wrong files are fetched again"


def test_a_file_that_differs_or_is_gone_is_named_and_not_stored(run, hub, tmp_path):
    folder = tmp_path / "data"
    hub.files["/o/r/0123456789ab/sub/one"] = b"changed\n"
    del hub.files["/o/r/0123456789ab/sub/deep"]
    status, _, err = run("--folder", folder)
    assert status == 1 and "d/one: wrong checksum" in err and "(from o/r)" in err and "d/3: http://" in err and "HTTP 404" in err
    assert sorted(p.name for p in (folder / "d").iterdir()) == ["2.gz"]


def test_the_folder_and_the_files_can_be_chosen(run, hub, tmp_path):
    env = {"QUERN_SHARED_DATA": str(tmp_path / "named"), "PATH": "/usr/bin:/bin"}
    assert run("d/one", "e", env=env)[0] == 0 and len(hub.asked) == 2
    assert (tmp_path / "named/d/one").exists() and not (tmp_path / "named/d/3").exists()
    status, _, err = run("nothing", env=env)
    assert status == 1 and "nothing: no file or folder of" in err


def test_an_unreachable_server_and_an_unwritable_folder_are_reported(run, hub, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = run("--folder", tmp_path / "file")
    assert status == 1 and "Not a directory" in err
    status, _, err = run("--hub", "http://127.0.0.1:9/{path}", "--folder", tmp_path / "data", "d")
    assert status == 1 and "Connection refused" in err


# ---- made from others ----

def test_derived_weights_are_those_of_their_source(tmp_path):
    """A synthetic checkpoint: rows of q for rotations of halves, and each type's rounding."""
    n = sum((512 * 64, 5 * 64, 5 * 64 * 64, 2 * 5 * 32 * 64, 5 * 64 * 64, 5 * 64, 3 * 5 * 172 * 64, 64))
    values = [((i * 37) % 255 - 127) / 64 for i in range(n)]
    folder = tmp_path / "weights/stories260K"
    folder.mkdir(parents=True)
    (folder / "stories260K.bin").write_bytes(bytes(28) + derive.to_f32(values))
    made = derive.MADE["weights/stories260K-hf-f32/model.safetensors"](tmp_path)
    size = int.from_bytes(made[:8], "little")
    header = json.loads(made[8:8 + size])
    at = header["model.layers.0.self_attn.q_proj.weight"]["data_offsets"][0] + 8 + size
    rows = 512 * 64 + 5 * 64
    assert made[at:at + 512] == derive.to_f32(values[rows:rows + 64] + values[rows + 128:rows + 192]), "rows 0 and 2 of q"
    assert derive.to_bf16([1.0, 1.00390625, 1.01171875]) == bytes.fromhex("803f803f823f")      # ties to even
    assert derive.to_q8_0([127.0, -127.0, 0.5] + [0.0] * 29)[:5] == bytes.fromhex("003c7f8101")
    assert derive.to_q4_0([-8.0, 7.0] + [0.0] * 30)[:4] == bytes.fromhex("003c808f")
