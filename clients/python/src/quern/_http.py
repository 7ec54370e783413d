"""What only HTTP has: embeddings and scores."""

from __future__ import annotations

import functools
import http.client
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Optional, Sequence

from .errors import ConnectionLost, InternalError, NotReady, Overloaded, ServiceError, WorkerLost, error_from

AT_ONCE = 4     # requests
RETRY_S, RETRY_MAX_S = 0.05, 2.0

# OpenAI's codes and statuses as those of the job socket.
_BY_CODE = {"context_length_exceeded": "E_TOO_LONG", "not_ready": "E_NOT_READY", "worker_lost": "E_WORKER_LOST",
            "deadline_exceeded": "E_DEADLINE", "service_stopping": "E_NOT_READY", "overloaded": "E_OVERLOADED"}
_BY_STATUS = {401: "E_AUTH", 403: "E_AUTH", 429: "E_OVERLOADED", 503: "E_NOT_READY", 504: "E_DEADLINE"}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, host: str, path: str, **kwargs: Any) -> None:
        super().__init__(host, **kwargs)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixHandler(urllib.request.HTTPHandler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_UnixConnection, path=self._path), req)


class Http:
    """Requests to a service's HTTP address.

    Args:
        base: "http://HOST:PORT", "HOST:PORT" or "unix:PATH", with or without /v1.
        api_key: sent as Authorization: Bearer.
        timeout: seconds of a request; None: no limit.
    """

    def __init__(self, base: str, api_key: Optional[str], timeout: Optional[float] = None) -> None:
        path = base[len("unix:"):] if base.startswith("unix:") else None
        base = "http://localhost" if path is not None else base if "://" in base else f"http://{base}"
        self._base = re.sub("/+(v1/*)?$", "", base)
        self._name = f"unix:{path} " if path is not None else self._base
        self._api_key = api_key
        self._timeout = timeout
        # Not through a proxy of the environment: the service is on this host, or in its network.
        handlers: List[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if path is not None:
            handlers.append(_UnixHandler(path))
        self._opener = urllib.request.build_opener(*handlers)

    def _ask(self, path: str, body: Optional[bytes], headers: Dict[str, str]) -> bytes:
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            with self._opener.open(urllib.request.Request(self._base + path, body, headers), timeout=self._timeout) as reply:
                answer: bytes = reply.read()
                return answer
        except urllib.error.HTTPError as e:
            raise _error(e.code, e.read()) from None
        except (OSError, http.client.HTTPException) as e:
            raise ConnectionLost(f"{self._name}{path}: {e}") from None

    def get(self, path: str) -> str:
        """The text of a resource."""
        return self._ask(path, None, {}).decode(errors="replace")

    def post(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to a request of JSON."""
        text = self._ask(path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            answer = json.loads(text)
        except ValueError as e:
            raise ConnectionLost(f"{self._name}{path}: {e}") from None
        if not isinstance(answer, dict):
            raise ConnectionLost(f"{self._name}{path}: the reply is not an object")
        return answer

    def post_all(self, path: str, bodies: Sequence[Dict[str, Any]], patience: float) -> Iterator[Dict[str, Any]]:
        """The replies, in order, of requests that may be sent again: some at a time, so that the service always has
        work; a full queue is waited for, a service that is away for patience seconds."""
        pool, over = ThreadPoolExecutor(AT_ONCE, "quern-http"), threading.Event()
        try:
            yield from pool.map(lambda body: self._patiently(path, body, patience, over), bodies)
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)

    def _patiently(self, path: str, body: Dict[str, Any], patience: float, over: threading.Event
                   ) -> Dict[str, Any]:
        wait_s = RETRY_S
        away_since: Optional[float] = None
        while True:
            try:
                return self.post(path, body)
            except Overloaded:
                away_since = None
            except (ConnectionLost, NotReady, WorkerLost, InternalError):
                now = time.monotonic()
                away_since = away_since or now
                if now - away_since >= patience:
                    raise
            if over.wait(wait_s):
                raise ConnectionLost(f"{self._name}{path}: given up")
            wait_s = min(2 * wait_s, RETRY_MAX_S)


def _error(status: int, body: bytes) -> ServiceError:
    try:
        e = json.loads(body)["error"]
        message, param, code = str(e["message"]), e.get("param"), e.get("code")
    except (ValueError, KeyError, TypeError):
        message, param, code = body[:500].decode(errors="replace"), None, None
    named = _BY_CODE.get(code) or _BY_STATUS.get(status) or ("E_BAD_REQUEST" if status < 500 else "E_INTERNAL")
    return error_from({"code": named, "message": message, "field": param})
