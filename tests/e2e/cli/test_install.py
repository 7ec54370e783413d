"""`make install` and `make uninstall` with a temporary DESTDIR, and the installed programs and manual pages."""

import os
import re
import shutil
import subprocess
import uuid

import pytest

from service import BIN, BUILD, DEMO, QUERN, ROOT, no_processes_left, spawn

PREFIX = "/opt/quern"
PROGRAMS = ["quern", "quern-bench", "quern-controller", "quern-quantize", "quern-worker"]
OPTION = re.compile(r"^ +(?:-., )?(--[a-z-]+)", re.M)


def make(target, destdir, *variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    return subprocess.run(["make", "-C", ROOT, target, f"BUILD={os.path.relpath(BUILD, ROOT)}", f"DESTDIR={destdir}", f"PREFIX={PREFIX}",
                           *variables], env=env, capture_output=True, text=True, timeout=180)


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def rows(*arguments):
    """Return the names in a command's table of commands."""
    out = subprocess.run([QUERN, *arguments, "--help"], capture_output=True, text=True, timeout=30).stdout
    return re.findall(r"^  ([a-z]+) ", out.split(":\n", 1)[1].split("\n\n")[0], re.M)


def command_of(page):
    """quern-bench-serve.1: return the command that the page is made from."""
    name = page.removesuffix(".1")
    if name in PROGRAMS and name != "quern-quantize":  # its commands are those of quern
        return [BIN / name]
    if name.startswith("quern-bench-"):
        return [BIN / "quern-bench", name.removeprefix("quern-bench-")]
    return [QUERN, name.removeprefix("quern-")]


@pytest.fixture(scope="module")
def destdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("destination with a blank")
    r = make("install", folder)
    assert r.returncode == 0, r.stdout + r.stderr
    return folder


@pytest.fixture
def prefix(destdir):
    return destdir / PREFIX[1:]


def test_install_copies_programs_pages_and_completion(destdir, prefix):
    assert rows() and rows("bench")
    pages = {"quern", *PROGRAMS, *(f"quern-{c}" for c in rows()), *(f"quern-bench-{m}" for m in rows("bench"))}
    expected = {f"bin/{p}" for p in PROGRAMS} | {f"share/man/man1/{p}.1" for p in pages} | {
        "share/bash-completion/completions/quern", "share/zsh/site-functions/_quern"}
    if (BUILD / "lib" / "libquern-cuda.so").exists():
        expected.add("lib/libquern-cuda.so")
    assert files(destdir) == {f"{PREFIX[1:]}/{f}" for f in expected}
    assert all(os.access(prefix / "bin" / p, os.X_OK) for p in PROGRAMS)


def test_installed_programs_find_each_other(prefix):
    mark = uuid.uuid4().hex
    p = spawn([prefix / "bin" / "quern", "run", DEMO, "Once upon a time", "--seed", "7", "-m", "8"], mark, cwd="/",
              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = p.communicate(timeout=90)
    assert p.returncode == 0 and out.strip(), err
    no_processes_left(mark)
    for arguments in (["inspect", "cpu"], ["bench", "--help"]):
        r = subprocess.run([prefix / "bin" / "quern", *arguments], cwd="/", capture_output=True, text=True, timeout=60)
        assert (r.returncode, r.stderr) == (0, "")


def test_an_installed_program_is_found_through_a_link(prefix, tmp_path):
    (tmp_path / "quern").symlink_to(prefix / "bin" / "quern")
    r = subprocess.run([tmp_path / "quern", "bench", "--help"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stderr) == (0, "")


def test_installed_workers_look_for_the_cuda_kernels_below_the_prefix(tmp_path):
    built = tmp_path / "built" / "libquern-cuda.so"
    built.parent.mkdir()
    built.write_bytes(b"not a shared object")
    assert make("install", tmp_path / "to", f"CUDA_BUILT={built}").returncode == 0
    prefix = tmp_path / "to" / PREFIX[1:]
    assert (prefix / "lib" / "libquern-cuda.so").read_bytes() == built.read_bytes()
    env = {k: v for k, v in os.environ.items() if k != "QUERN_CUDA_LIBRARY"}
    r = subprocess.run([prefix / "bin" / "quern", "inspect", "gpu"], env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 1
    assert "cannot be loaded" in r.stderr and str(prefix) in r.stderr
    assert make("uninstall", tmp_path / "to", f"CUDA_BUILT={built}").returncode == 0
    assert files(tmp_path / "to") == set()


def test_uninstall_removes_what_install_copied_and_nothing_else(tmp_path):
    foreign = {f"{PREFIX[1:]}/{f}" for f in ("bin/quern-other", "lib/libother.so", "share/man/man1/quern-other.1",
                                            "share/bash-completion/completions/other")}
    for f in foreign:
        (tmp_path / f).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f).write_text("")
    assert make("install", tmp_path).returncode == 0
    assert files(tmp_path) > foreign
    for _ in range(2):  # the second time there is nothing to remove
        r = make("uninstall", tmp_path)
        assert r.returncode == 0, r.stderr
        assert files(tmp_path) == foreign


# --- manual pages ---

def test_a_page_has_every_option_of_its_program(prefix):
    for page in sorted((prefix / "share" / "man" / "man1").iterdir()):
        help_text = subprocess.run([*command_of(page.name), "--help"], capture_output=True, text=True, timeout=30).stdout
        text = page.read_text().replace("\\-", "-")
        options = set(OPTION.findall(help_text))
        assert options == {f"--{o}" for o in re.findall(r"^(?:\\fB-.\\fR, )?\\fB--([a-z-]+)", text, re.M)}, page.name
        for section in ("NAME", "SYNOPSIS", "EXIT STATUS", "SEE ALSO", *(["OPTIONS"] if options else [])):
            assert text.count(f"\n.SH {section}\n") == 1, (page.name, section)


def test_pages_refer_to_pages_that_are_there(prefix):
    folder = prefix / "share" / "man" / "man1"
    for page in folder.iterdir():
        for name in re.findall(r"(?:\\fB|\.BR )(quern[a-z\\-]*)(?:\\fR| )\(1\)", page.read_text()):
            assert (folder / (name.replace("\\-", "-") + ".1")).exists(), (page.name, name)


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_pages_are_formatted_without_a_warning(prefix):
    pages = sorted((prefix / "share" / "man" / "man1").iterdir())
    r = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", "-K", "utf8", *pages], capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stderr) == (0, "")
