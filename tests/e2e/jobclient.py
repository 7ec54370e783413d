"""jobclient.py - a small client of quern's job socket. Every wait has a time limit."""

import itertools
import os
import time
from collections import deque

import msgpack
import zmq

SLOW = float(os.environ.get("QUERN_TEST_SLOW", "1"))   # factor for all time limits: sanitizers are slow
TIMEOUT_S = 90 * SLOW
JOB_KEYS = {"prompt", "tokens", "messages", "stream", "durable", "priority", "deadline_ms", "user",
            "cache_salt", "key", "on_disconnect"}


class JobError(Exception):
    """An `error` reply."""

    def __init__(self, reply):
        super().__init__(f"{reply['code']}: {reply['message']}")
        self.code, self.message, self.reply = reply["code"], reply["message"], reply


class Done:
    """A `done` reply. text, tokens etc. are those of the first output."""

    def __init__(self, reply):
        self.reply = reply
        self.job, self.outputs = reply["job"], reply["outputs"]
        self.usage, self.timing = reply["usage"], reply["timing"]
        first = self.outputs[0]
        self.text, self.tokens, self.finish_reason = first["text"], first["tokens"], first["finish_reason"]
        self.logprobs, self.cumulative_logprob = first.get("logprobs"), first["cumulative_logprob"]


class Job:
    """A job in flight; its replies have this request id."""

    def __init__(self, client, request_id):
        self.client, self.request_id = client, request_id
        self.job = self.prompt_tokens = None
        self.deltas = []

    def accepted(self):
        if self.job is None:
            reply = self.client.recv(self.request_id)
            assert reply["op"] == "accepted", reply
            self.job, self.prompt_tokens = reply["job"], reply["prompt_tokens"]
        return self

    def event(self, timeout=TIMEOUT_S):
        """Return the next delta or done."""
        reply = self.client.recv(self.request_id, timeout)
        if reply["op"] == "delta":
            self.deltas.append(reply)
        return reply

    def first_delta(self):
        self.accepted()
        reply = self.event()
        assert reply["op"] == "delta", reply
        return reply

    def done(self, timeout=TIMEOUT_S):
        while True:
            reply = self.event(timeout)
            if reply["op"] == "done":
                return Done(reply)
            if reply["op"] == "accepted":
                self.job, self.prompt_tokens = reply["job"], reply["prompt_tokens"]

    def cancel(self):
        return self.client.cancel(self.job)

    def unfinished(self):
        """True if the service has no result of the job yet."""
        try:
            self.accepted().client.result(self.job)
            return False
        except JobError as e:
            assert e.code == "E_NOT_READY", e
            return True


# One context for all clients: a context that the garbage collector finds before its socket waits for that socket
# forever.
CONTEXT = zmq.Context()


class JobClient:
    def __init__(self, endpoint):
        self.socket = CONTEXT.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self.ids = itertools.count(1)
        self.waiting = {}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Close the connection; the service notices."""
        self.socket.close(linger=0)

    # --- frames ---

    def send_frames(self, *frames):
        self.socket.send_multipart(frames)

    def recv_frames(self, timeout=TIMEOUT_S):
        if not self.socket.poll(timeout * 1000):
            raise TimeoutError(f"no reply within {timeout} s")
        return self.socket.recv_multipart()

    # --- requests and replies ---

    def send(self, request):
        """Send a request, with a new id unless it has one; return the id."""
        request = {"id": next(self.ids), **request}
        self.send_frames(msgpack.packb(request))
        return request["id"]

    def recv(self, request_id, timeout=TIMEOUT_S):
        """Return the next reply to that request. Raise if it is an `error`."""
        queue = self.waiting.setdefault(request_id, deque())
        end = time.monotonic() + timeout
        while not queue:
            reply = msgpack.unpackb(self.recv_frames(max(0, end - time.monotonic()))[-1])
            self.waiting.setdefault(reply["id"], deque()).append(reply)
        reply = queue.popleft()
        if reply["op"] == "error":
            raise JobError(reply)
        return reply

    def call(self, op, **keys):
        reply = self.recv(self.send({"op": op, **keys}))
        assert reply["op"] in ("ok", "done"), reply
        return reply

    # --- operations ---

    def submit(self, prompt=None, **keys):
        """Submit a job without waiting. Keys other than JOB_KEYS become params."""
        request = {"op": "submit", "stream": True}
        if prompt is not None:
            request["prompt"] = prompt
        request |= {k: v for k, v in keys.items() if k in JOB_KEYS}
        params = {k: v for k, v in keys.items() if k not in JOB_KEYS}
        if params:
            request["params"] = params
        return Job(self, self.send(request))

    def generate(self, prompt=None, **keys):
        """Run a job to its end."""
        return self.submit(prompt, **{"stream": False, **keys}).done()

    def attach(self, job, **keys):
        return Job(self, self.send({"op": "attach", "job": job, **keys}))

    def cancel(self, job):
        return self.call("cancel", job=job)

    def result(self, job):
        return Done(self.call("result", job=job))

    def tokenize(self, text, **keys):
        return self.call("tokenize", text=text, **keys)["tokens"]

    def detokenize(self, tokens):
        return self.call("detokenize", tokens=tokens)["text"]

    def ping(self):
        return self.call("ping")

    def status(self):
        return self.call("status")

    def jobs(self):
        return self.call("jobs")["jobs"]

    def workers(self):
        return self.call("workers")["workers"]
