"""What only HTTP has: embeddings and scores."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Dict, Optional

from .errors import ConnectionLost, ServiceError, error_from

# OpenAI's codes and statuses as those of the job socket.
_BY_CODE = {"context_length_exceeded": "E_TOO_LONG", "not_ready": "E_NOT_READY", "worker_lost": "E_WORKER_LOST",
            "deadline_exceeded": "E_DEADLINE", "service_stopping": "E_NOT_READY", "overloaded": "E_OVERLOADED"}
_BY_STATUS = {401: "E_AUTH", 403: "E_AUTH", 429: "E_OVERLOADED", 503: "E_NOT_READY", 504: "E_DEADLINE"}


class Http:
    """Requests to a service's HTTP address.

    Args:
        base: "http://HOST:PORT", without /v1.
        api_key: sent as Authorization: Bearer.
        timeout: seconds of a request; None: no limit.
    """

    def __init__(self, base: str, api_key: Optional[str], timeout: Optional[float] = None) -> None:
        base = base.rstrip("/")
        self._base = base[:-3] if base.endswith("/v1") else base
        self._api_key = api_key
        self._timeout = timeout
        # Not through a proxy of the environment: the service is on this host, or in its network.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to a request of JSON."""
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(self._base + path, json.dumps(body).encode(), headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as e:
            raise _error(e.code, e.read()) from None
        except (OSError, ValueError) as e:
            raise ConnectionLost(f"{self._base}{path}: {e}") from None
        if not isinstance(answer, dict):
            raise ConnectionLost(f"{self._base}{path}: the reply is not an object")
        return answer


def _error(status: int, body: bytes) -> ServiceError:
    try:
        e = json.loads(body)["error"]
        message, param, code = str(e["message"]), e.get("param"), e.get("code")
    except (ValueError, KeyError, TypeError):
        message, param, code = body[:500].decode(errors="replace"), None, None
    named = _BY_CODE.get(code) or _BY_STATUS.get(status) or ("E_BAD_REQUEST" if status < 500 else "E_INTERNAL")
    return error_from({"code": named, "message": message, "field": param})
