"""skips.py - compares the tests that were skipped with tests/skips.toml, which lists every allowed reason.

A skip is right if a row names its file and its reason, and the machine lacks one of the row's needs.  `faults` returns
a sentence for every other skip: a reason that nobody listed, or a listed one although everything it needs is here.
"""
import ctypes
import importlib.util
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import tomllib
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/skips.toml"


def rows(path=LIST):
    return tomllib.loads(path.read_text())["skip"]


def listed(all_rows, file, reason):
    """The row of a skip of a test in FILE (below tests/), with the named groups of its reason; None, {}: unlisted."""
    for row in all_rows:
        if any(fnmatch(file, pattern) for pattern in row["tests"]):
            if m := re.fullmatch(row["says"], reason, re.S):
                return row, m.groupdict()
    return None, {}


@lru_cache(None)
def succeeds(*words):
    """Whether a command ends with status 0."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=60, check=False).returncode == 0
    except OSError:
        return False


@lru_cache(None)
def ptrace():
    """Whether a process may seize another of the same user."""
    seize = 0x4206
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long
    with subprocess.Popen(["sleep", "60"]) as p:
        try:
            return libc.ptrace(seize, p.pid, None, None) == 0
        finally:
            p.kill()


def ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def descriptors(n):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard == resource.RLIM_INFINITY or hard >= n


class Machine:
    """What is here, during a run of the tests of BUILD in the environment ENV."""

    def __init__(self, build, env=()):
        self.build, self.env = Path(build), {**os.environ, **dict(env)}

    def has(self, need):
        """Whether a need of skips.toml is met.  "gpu", "program zsh": the word, then its arguments."""
        word, *args = need.split()
        return getattr(self, f"has_{word.replace('-', '_')}")(*args)

    # --- how the tests run ---

    def has_device(self, kind):
        return self.env.get("QUERN_TEST_DEVICE", "cpu").split(":")[0] == kind

    def has_gpu(self):
        library = self.env.get("QUERN_CUDA_LIBRARY", "")
        return self.has_device("cuda") and "cudasim" not in library and "cudarace" not in library

    def has_plain_build(self):
        """One without sanitizers."""
        worker = self.build / "bin/quern-worker"
        return not worker.exists() or not re.search(rb"__[at]san_init", worker.read_bytes())

    def has_no_cuda_library(self):
        return not (self.build / "lib/libquern-cuda.so").exists()

    def has_variable(self, name):
        return bool(self.env.get(name))

    # --- what is installed ---

    def has_data(self, path):
        folder = Path(self.env.get("QUERN_SHARED_DATA") or ROOT.parent / "shared/data")
        return (folder / path).exists()

    def has_file(self, path):
        return (ROOT / path).exists()

    def has_checkout(self):
        return (ROOT / ".git").exists()

    def has_program(self, *names):
        return any(shutil.which(n) for n in names)

    def has_module(self, name):
        pythons = [str(ROOT / "build/venv/bin/python"), "python3"]
        return importlib.util.find_spec(name) is not None or any(succeeds(p, "-c", f"import {name}") for p in pythons)

    def has_nvcc_of_bounds(self):
        """The nvcc that made tests/sass/bounds.json."""
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.access(nvcc, os.X_OK):
            return False
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
        return f"release {json.loads((ROOT / 'tests/sass/bounds.json').read_text())['nvcc']}," in said

    def has_nvdisasm(self):
        nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve()
        return bool(shutil.which("nvdisasm") or (nvcc.parent / "nvdisasm").exists() or [
            *(ROOT / "build").glob("venv-sass/lib/*/site-packages/nvidia/*/bin/nvdisasm")])

    def has_package_index(self):
        python = ROOT / "build/venv/bin/python"
        return succeeds(str(python if python.exists() else "python3"), "-m", "pip", "index", "versions", "hatchling")

    # --- what the machine and its kernel can do ---

    def has_root(self):
        return os.geteuid() == 0

    def has_cpu(self, flag):
        return re.search(rf"^flags\s*:.*\b{flag}\b", Path("/proc/cpuinfo").read_text(), re.M) is not None

    def has_processors(self, n):
        return len(os.sched_getaffinity(0)) >= int(n)

    def has_ipv6(self):
        return ipv6()

    def has_descriptors(self, n):
        return descriptors(int(n))

    def has_ptrace(self):
        return ptrace()

    def has_mounts(self):
        return succeeds("unshare", "-m", "mount", "-t", "tmpfs", "quern-test", "/mnt")

    def has_mounts_of_users(self):
        return succeeds("unshare", "-rm", "mount", "-t", "tmpfs", "quern-test", "/mnt")

    def has_network_namespaces(self):
        return succeeds("unshare", "-n", "ip", "link", "add", "quern-a", "type", "veth", "peer", "name", "quern-b")

    def has_netem(self):
        return succeeds("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")

    def has_systemd_analyze_of_files(self):
        return succeeds("systemd-analyze", "security", "--offline=true", "--no-pager", str(ROOT / "deploy/debian/quern.service"))


def fault(all_rows, machine, file, test, reason):
    """What is wrong with this skip, in a sentence; None: nothing."""
    row, groups = listed(all_rows, file, reason)
    if not row:
        return (f"{test} is skipped for a reason that tests/skips.toml does not list ({reason!r}): make it run here, or list "
                "the reason with what the test needs")
    needs = [need.format(**groups) for need in row["needs"]]
    if not all(machine.has(need) for need in needs):
        return None
    here = f"although this is here: {', '.join(needs)}" if needs else "which no machine may skip"
    return f"{test} is skipped ({reason!r}), {here}: {row['remedy'].format(**groups)}"
