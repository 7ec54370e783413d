"""What can go wrong.  Every exception of the package is a QuernError; those that the service reports name the
code, the field and the reason."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class QuernError(Exception):
    """Base of all errors of this package."""


class ConnectionLost(QuernError, ConnectionError):
    """No service answers at the address, or none came back in time."""


class RequestTimeout(QuernError, TimeoutError):
    """The service did not answer within the time limit of the call."""


class ProtocolError(QuernError):
    """The peer answers, but not as a job socket of quern does."""


class StartError(QuernError):
    """A private service could not be started; the message is the service's own."""


class Unsupported(QuernError, ValueError):
    """Arguments ask for something that this package or the service cannot do.

    Attributes:
        field: the name of the first such argument.
        reason: why it is refused.
        fields: the reasons of all of them, by name.
    """

    def __init__(self, field: str, reason: str, others: Optional[Mapping[str, str]] = None) -> None:
        self.fields = {field: reason, **(others or {})}
        super().__init__("; ".join(f"{name}: {why}" for name, why in self.fields.items()))
        self.field = field
        self.reason = reason

    def __reduce__(self) -> Any:
        return type(self), (self.field, self.reason, self.fields)


class ServiceError(QuernError):
    """An error reply of the service.

    Attributes:
        code: the protocol's code, such as "E_BAD_REQUEST".
        reason: the service's message.
        field: the field of the request that was refused; None: none, or the request as a whole.
        job: the id of the job that failed; None: there is none.
        prompt_index: of a call with several prompts, which of them; else None.
    """

    def __init__(self, code: str, reason: str, field: Optional[str] = None, job: Optional[str] = None) -> None:
        super().__init__(f"{code}: {reason}" if field is None or field in reason else f"{code}: {field}: {reason}")
        self.code = code
        self.reason = reason
        self.field = field
        self.job = job
        self.prompt_index: Optional[int] = None

    def __reduce__(self) -> Any:
        return type(self), (self.code, self.reason, self.field, self.job)


class BadRequest(ServiceError, ValueError):
    """E_BAD_REQUEST: a field is wrong, unknown or not supported."""


class TooLong(BadRequest):
    """E_TOO_LONG: prompt and max_tokens exceed the context, or the request 16 MiB."""


class Overloaded(ServiceError):
    """E_OVERLOADED: a bound of the queue, or of listeners; later it may be accepted."""


class NoSuchJob(ServiceError, LookupError):
    """E_NO_SUCH_JOB: the job is unknown or expired."""


class NotReady(ServiceError):
    """E_NOT_READY: the job has not ended, no worker serves, or the service is ending."""


class DeadlineExceeded(ServiceError):
    """E_DEADLINE: deadline_ms has passed."""


class WorkerLost(ServiceError):
    """E_WORKER_LOST: no worker served in time."""


class InternalError(ServiceError):
    """E_INTERNAL: the service is stopping, or failed."""


class AuthError(ServiceError, PermissionError):
    """E_AUTH: the key is not accepted, or may not do this."""


_CLASSES: Dict[str, Type[ServiceError]] = {
    "E_BAD_REQUEST": BadRequest,
    "E_TOO_LONG": TooLong,
    "E_OVERLOADED": Overloaded,
    "E_NO_SUCH_JOB": NoSuchJob,
    "E_NOT_READY": NotReady,
    "E_DEADLINE": DeadlineExceeded,
    "E_WORKER_LOST": WorkerLost,
    "E_INTERNAL": InternalError,
    "E_AUTH": AuthError,
}


def error_from(reply: Mapping[str, Any]) -> ServiceError:
    """The exception for an `error` reply; an unknown code gives a ServiceError."""
    code = str(reply.get("code", ""))
    named = [v if isinstance(v, str) else None for v in (reply.get("field"), reply.get("job"))]
    return _CLASSES.get(code, ServiceError)(code, str(reply.get("message", "")), *named)
