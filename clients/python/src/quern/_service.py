"""A private service: `quern serve` in a process group of its own, for as long as this process lives."""

from __future__ import annotations

import json
import logging
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _vllm
from .errors import StartError, Unsupported

_LOG = logging.getLogger("quern")
PROGRAMS = Path(__file__).resolve().parent / "programs"     # in a wheel of `make wheel`
STOP_S = 30.0
SOCKET_DIR_MAX = 80
LOG_SHOWN = 4000    # bytes of the service's log in an error

# vLLM's names, and the options of `quern serve`.
_VLLM: Dict[str, str] = {
    "tensor_parallel_size": "tp", "max_model_len": "context", "gpu_memory_utilization": "memory_fraction",
    "max_num_seqs": "max_seqs", "max_num_batched_tokens": "max_batch_tokens", "served_model_name": "name",
    "data_parallel_size": "replicas", "long_prefill_token_threshold": "chunk", "enforce_eager": "no_graphs",
    "enable_expert_parallel": "ep",
    "max_num_queued_reqs": "max_queued_jobs", "max_num_queued_tokens": "max_queued_tokens",
}
_MODES = {"auto": None, "half": None, "float16": None, "float32": "f32", "float": "f32", "bfloat16": "bf16", "f32": "f32", "bf16": "bf16", "int16": "int16",
          "int8": "int8"}
_GIB = 1 << 30
# Those that change no output, and that the service has no option for.
_NO_EFFECT = ("disable_log_stats", "use_tqdm_on_load", "async_scheduling", "disable_custom_all_reduce",
              "aggregate_engine_logging", "disable_cascade_attn", "shutdown_timeout")
# vLLM's of earlier releases: values that ask for nothing.
_NEUTRAL: Dict[str, Tuple[Any, ...]] = {"task": ("auto", "generate", "embed", "score"), "override_pooler_config": (None,),
                                        "disable_async_output_proc": (True, False), "rope_scaling": (None,)}
_RESERVED = ("http", "host", "port", "jobs", "api_key_file", "json", "drain_timeout", "config", "curve_key", "allow", "insecure", "tls_cert",
             "tls_key")


def find_program(bin: Optional[str] = None) -> str:
    """The `quern` program: bin or $QUERN_BIN (the program, or its directory), then the one inside the package (`make wheel`),
    then PATH, then build/bin of the repository that the package is in."""
    given = bin or os.environ.get("QUERN_BIN")
    if given:
        path = Path(given)
        path = path / "quern" if path.is_dir() else path
        if not os.access(path, os.X_OK) or path.is_dir():
            raise StartError(f"{path} is not a program; it was named by {'bin' if bin else 'QUERN_BIN'}")
        return str(path)
    if os.access(PROGRAMS / "quern", os.X_OK):
        return str(PROGRAMS / "quern")
    found = shutil.which("quern")
    if found:
        return found
    for directory in Path(__file__).resolve().parents:
        for path in (directory / "bin" / "quern", directory / "build" / "bin" / "quern"):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    raise StartError("this package has no programs inside and quern is not on PATH: install a wheel that `make wheel` builds "
                     "in quern's repository, or set QUERN_BIN to its build/bin, or run make install there")


def _type_name(value: Any) -> str:
    return str(value).replace("torch.", "")


def _mode(name: str, value: Any) -> Optional[str]:
    """A compute mode, or the type of keys and values."""
    mode = _type_name(value)
    if mode not in _MODES or (name != "dtype" and mode in ("half", "float16")):
        raise Unsupported(name, f"{mode} is not a compute mode; there are f32, bf16, int16 and int8")
    return _MODES[mode]


def _option(name: str, value: Any) -> Tuple[str, Any]:
    """The option of `quern serve`, and its value; None or False: it is not given."""
    if value is None:
        return name, None
    if name == "enable_prefix_caching":
        return "no_prefix_cache", not value
    if name == "swap_space":
        return "swap_bytes", int(value * _GIB)
    if name == "kv_cache_memory_bytes":
        return "kv_bytes", int(value)
    if name in ("dtype", "kv_cache_dtype"):
        return "compute" if name == "dtype" else name, _mode(name, value)
    if name == "long_prefill_token_threshold" and value == 0:
        return name, None
    return _VLLM.get(name, name), value


def _refused(options: Mapping[str, Any]) -> Dict[str, str]:
    """The reasons, by name, why options are refused."""
    refused: Dict[str, str] = {}
    try:
        _vllm.check("EngineArgs", options)
    except Unsupported as e:
        refused = dict(e.fields)
    for name, value in options.items():
        if name in _NEUTRAL and value not in _NEUTRAL[name]:
            refused[name] = f"{value!r} is not supported"
        elif name in _RESERVED:
            refused[name] = ("a private service sets it itself; start one with quern serve, and join it with "
                             "LLM(address=...)")
        elif name in ("dtype", "kv_cache_dtype") and value is not None:
            try:
                _mode(name, value)
            except Unsupported as e:
                refused[name] = e.reason
    return {name: refused[name] for name in options if name in refused}


def _note_done(options: Mapping[str, Any]) -> None:
    """One line of the log for all options that have no effect."""
    given = {n: _type_name(v) if n == "dtype" else v for n, v in options.items()}
    done = _vllm.done_anyway("EngineArgs", given)
    if done:
        _LOG.warning("without effect: %s", "; ".join(f"{n}={given[n]!r}: {why}" for n, why in done.items()))


def serve_options(options: Mapping[str, Any]) -> List[str]:
    """Keyword arguments, with vLLM's names or those of `quern serve`, as arguments of the command."""
    out: List[str] = []
    refused = _refused(options)
    if refused:
        raise Unsupported(*next(iter(refused.items())), refused)
    _note_done(options)
    for name, value in options.items():
        row = _vllm.TABLE["EngineArgs"].get(name)
        if name in _NO_EFFECT or name in _NEUTRAL or row is not None and not row.honoured:
            continue
        name, value = _option(name, value)
        if value is None or value is False:
            continue
        out.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            value = ",".join(str(v) for v in value)
        if value is not True:
            out.append(str(value))
    return out


class PrivateService:
    """A running service.

    Attributes:
        address: of its job socket, a path that only this user reaches.
        http: base of its HTTP address, "http://127.0.0.1:PORT".
        api_key: the key that HTTP requires.
        model: its name.
        max_context: tokens.
    """

    def __init__(self, model: str, options: Mapping[str, Any], bin: Optional[str] = None,
                 start_timeout: float = 1800.0, log_file: Optional[str] = None) -> None:
        arguments = serve_options(options)
        program = find_program(bin)
        self._dir = tempfile.mkdtemp(prefix="quern-", dir=_short_tmp())     # mode 0700
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._finalizer: Any = weakref.finalize(self, _remove, self._dir, os.getpid())
        self.log_path = log_file or os.path.join(self._dir, "log")
        self.api_key = secrets.token_hex(24)
        key_file = os.path.join(self._dir, "key")
        with open(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as f:
            f.write(self.api_key + " name=python\n")
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_guard.py")), str(os.getpid()),
                   self._dir, program, "serve", model, "--json", "--http", "127.0.0.1:0", "--api-key-file", key_file,
                   "--jobs", f"ipc://{self._dir}/jobs", "--drain-timeout", "0", *arguments]
        try:
            self._start(command)
            self._wait_ready(start_timeout)
        except BaseException:
            self.close()
            raise

    def _start(self, command: List[str]) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("QUERN_MODEL", "QUERN_CONFIG", "QUERN_CURVE_KEY")}
        with open(self.log_path, "ab") as log:
            p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env,
                                 start_new_session=True)
        self._process = p
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, p, self._dir, os.getpid())

    def _wait_ready(self, timeout: float) -> None:
        p = self._process
        assert p is not None and p.stdout is not None
        end, line = time.monotonic() + timeout, b""
        with selectors.DefaultSelector() as s:
            s.register(p.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not s.select(max(0.0, end - time.monotonic())):
                    raise StartError(f"the service was not ready within {timeout:g} s{self._log()}")
                data = os.read(p.stdout.fileno(), 4096)
                if not data:
                    raise StartError(f"the service did not start{self._log()}")
                line += data
        try:
            ready: Dict[str, Any] = json.loads(line)
            self.address = str(ready["jobs"])
            self.http = f"http://{ready['http']}"
            self.model = str(ready["model"])
            self.max_context = int(ready["max_context"])
        except (ValueError, KeyError, TypeError) as e:
            raise StartError(f"the service's announcement was not understood ({e!r}): {line[:200]!r}") from None

    def _log(self) -> str:
        try:
            with open(self.log_path, "rb") as f:
                f.seek(max(0, os.path.getsize(self.log_path) - LOG_SHOWN))
                text = f.read().decode(errors="replace").strip()
        except OSError:
            return ""
        return f":\n{text}" if text else ""

    @property
    def pid(self) -> int:
        """Of the process that guards the service."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Ends the service, and waits for it."""
        self._finalizer()


def _short_tmp() -> Optional[str]:
    """Where directories of sockets go: the paths of these are at most 107 bytes long."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= SOCKET_DIR_MAX else "/tmp"


def _remove(directory: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def _end(p: "subprocess.Popen[bytes]", directory: str, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child, in which exit() or a with block ends: the service is its parent's
    if p.stdin is not None:
        try:
            os.write(p.stdin.fileno(), b"x")    # not a death: _guard.py leaves the directory
        except OSError:
            pass    # it has ended
        p.stdin.close()
    try:
        p.wait(STOP_S)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
    if p.stdout is not None:
        p.stdout.close()
    _remove(directory, owner)
