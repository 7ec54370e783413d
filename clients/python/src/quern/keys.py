"""Keys and addresses of a job socket."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Union

DEFAULT_ADDRESS = "tcp://127.0.0.1:7420"
_KEY_LENGTH = 40    # of a CURVE key in Z85


@dataclass(frozen=True)
class Keys:
    """CURVE keys, in Z85 (40 characters each), as `quern keygen` writes them.

    Attributes:
        public: the client's public key.
        secret: its secret half.
        server: the public key of the service.
    """

    public: str
    secret: str
    server: str

    def __post_init__(self) -> None:
        for name in ("public", "secret", "server"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) != _KEY_LENGTH:
                raise ValueError(f"{name} must be a key of {_KEY_LENGTH} characters (Z85)")

    def __repr__(self) -> str:
        return f"Keys(public={self.public!r}, server={self.server!r})"

    @classmethod
    def load(cls, key: Union[str, Path], server_key: Union[str, Path]) -> "Keys":
        """The keys in two files of `quern keygen`: the client's .key and the service's .pub."""
        own, server = _read(key), _read(server_key)
        for path, values, name in ((key, own, "public"), (key, own, "secret"), (server_key, server, "public")):
            if name not in values:
                raise ValueError(f"{path}: no line \"{name} = KEY\"; quern keygen writes such files")
        return cls(own["public"], own["secret"], server["public"])


def _read(path: Union[str, Path]) -> Dict[str, str]:
    values: Dict[str, str] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, sep, value = line.partition("=")
        if sep and not line.lstrip().startswith("#"):
            values[name.strip()] = value.strip()
    return values


def whole_address(given: str) -> str:
    """An address as the socket takes it: HOST:PORT is tcp://, a path ipc://."""
    if "://" not in given:
        given = ("ipc://" if "/" in given else "tcp://") + given
    return given.rstrip("/") if given.startswith("tcp://") else given


def default_address() -> str:
    """Where a service listens that was started without --jobs: this user's own path where one answers, else
    tcp://127.0.0.1:7420."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    for directory in ([f"{base}/quern"] if base.startswith("/") else []) + [f"/tmp/quern-{os.geteuid()}"]:
        path = f"{directory}/jobs"
        try:
            st = os.stat(directory, follow_symlinks=False)
            if not stat.S_ISDIR(st.st_mode) or st.st_uid != os.geteuid() or st.st_mode & 0o077:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.settimeout(1)
                s.connect(path)
            return f"ipc://{path}"
        except OSError:
            continue
    return DEFAULT_ADDRESS
