"""quern._protocol without a service: the requests that a call sends, for any replies and any loss of the connection.
The peer is defined below, and the test sets the clock."""

import itertools
import random

import msgpack
import pytest

import quern
from quern import _protocol
from quern._protocol import Accepted, Call, JobCall, Session

TOKENS = list(range(10, 17))


class Peer:
    """A job socket: jobs of two outputs with TOKENS. Unless kept, the jobs are lost with the connection."""

    def __init__(self, kept):
        self.kept, self.jobs, self.keys, self.params = kept, {}, {}, {}
        self.numbers = itertools.count(1)

    def disconnect(self):
        if not self.kept:
            self.jobs = {k: "abort" for k in self.jobs}

    def answer(self, r):
        if r["op"] == "submit":
            job = self.keys.get(r["key"])
            if job is None:
                job = self.keys[r["key"]] = f"{next(self.numbers):032x}"
                self.jobs[job], self.params[job] = "runs", r["params"]
            yield {"op": "accepted", "job": job, "prompt_tokens": 4}
            yield from self.rest(job, [0, 0], r["stream"])
        elif r["op"] == "attach":
            if r["job"] not in self.jobs:
                yield {"op": "error", "code": "E_NO_SUCH_JOB", "message": "no such job"}
                return
            start = r["from"] if isinstance(r["from"], list) else [r["from"]] * 2
            yield from self.rest(r["job"], start, True)
        else:
            yield {"op": "ok", "job": r["job"]}

    def rest(self, job, start, stream):
        reason = "abort" if self.jobs[job] == "abort" else "length"
        n = 3 if reason == "abort" else len(TOKENS)
        for i in range(n if stream else 0):
            for index in (0, 1):
                if i >= start[index]:
                    yield {"op": "delta", "job": job, "index": index, "offset": i, "text": chr(97 + i), "tokens": [TOKENS[i]]}
        yield {"op": "done", "job": job, "usage": {"prompt_tokens": 4, "completion_tokens": 2 * n, "cached_tokens": 0},
               "outputs": [{"index": k, "text": "".join(chr(97 + i) for i in range(n)), "tokens": TOKENS[:n],
                            "finish_reason": reason} for k in (0, 1)]}


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def session(**limits):
    clock = Time()
    return Session("tcp://peer", clock=clock, **{"connect_timeout": 10, "reconnect_timeout": 120, **limits}), clock


def reply(s, request, **fields):
    s.receive(msgpack.packb({"id": request["id"], **fields}))


def sent(s):
    out = [msgpack.unpackb(frame) for frame in s.outbox]
    s.outbox.clear()
    return out


def pump(s, clock, peer, budget):
    """Answer until nothing is left to do, or until budget replies were received: then the connection is lost."""
    while s.outbox or s.next_at is not None and s.up and s._open:
        if not s.outbox:
            clock.now = max(clock.now, s.next_at)
            s.tick()
            continue
        for r in sent(s):
            for fields in peer.answer(r):
                if budget == 0:
                    peer.disconnect()
                    s.went_down()
                    return None
                budget -= 1
                reply(s, r, **fields)
    return budget


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "cancelled"])
def test_a_connection_that_is_lost_at_every_reply_and_again(kept, stream):
    whole = pump(*session(), Peer(kept), 0)
    assert whole == 0
    for first in range(17):
        for second in (1, 2, 7, 16, 30):
            s, clock = session()
            events, peer = [], Peer(kept)
            call = JobCall({"op": "submit", "prompt": "x", "stream": stream, "params": {"n": 2}}, events.append)
            s.start(call)
            for budget in (first, second, 1000):
                s.came_up()
                if pump(s, clock, peer, budget) is not None:
                    break
            assert isinstance(events[0], Accepted) and sum(isinstance(e, Accepted) for e in events) == 1
            result = events[-1]
            assert [o.tokens for o in result.outputs] == [TOKENS] * 2, (first, second)
            for index in (0, 1):
                mine = [e for e in events if isinstance(e, quern.Delta) and e.index == index]
                assert [(e.offset, e.tokens) for e in mine] == ([(i, [t]) for i, t in enumerate(TOKENS)] if stream else [])
            assert len({p["seed"] for p in peer.params.values()}) == 1 and not s._open
            assert kept <= (len(peer.jobs) == 1)


GOOD_DONE = {"op": "done", "job": "a", "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0},
             "outputs": [{"index": 0, "text": "x", "tokens": [7], "finish_reason": "stop"}]}


def done(**changes):
    first = {**GOOD_DONE["outputs"][0], **changes.pop("first", {})}
    return {**GOOD_DONE, "outputs": [first], **changes}


@pytest.mark.parametrize("bad", [
    {"op": "done"}, done(outputs=[]), done(outputs=[7]), done(outputs={"a": 1}), done(outputs=[None]), done(outputs=None),
    done(usage=[]), done(usage={}), done(job=7), done(first={"tokens": ["x"]}), done(first={"tokens": 7}), done(timing=[1]),
    done(first={"index": -1}), done(first={"index": "0"}), done(first={"text": None}), done(first={"logprobs": [3]}),
    done(first={"logprobs": [{"token": "a", "logprob": 1}]}), done(first={"finish_reason": 4}), done(timing={"a": "x"}),
    done(first={"stop_reason": [1]}), done(first={"cumulative_logprob": "1"}), done(prompt_logprobs=7),
    done(first={"logprobs": [{"token": 1, "logprob": 1.0, "top": [5]}]}), done(usage={"prompt_tokens": True}),
    {"op": "delta"}, {"op": "delta", "index": 1 << 62, "offset": 0, "text": "", "tokens": []}, {"op": "delta", "index": 0, "offset": 0, "tokens": [1]}, {"op": "delta", "index": [], "offset": 0},
    {"op": "accepted"}, {"op": "accepted", "job": ["a"], "prompt_tokens": 1}, {"op": "accepted", "job": "a", "prompt_tokens": "x"},
    {"op": "nonsense"}, {"op": 7}, {"op": None}, {"op": [1]},
])
@pytest.mark.parametrize("request_", [{"op": "submit", "prompt": "x"}, {"op": "attach", "job": "a", "from": 0}, {"op": "result"}])
def test_a_malformed_reply_ends_its_call_alone(request_, bad):
    s, _ = session()
    events, other = [], []
    s.came_up()
    s.start((Call if request_["op"] == "result" else JobCall)(request_, events.append))
    s.start(Call({"op": "ping"}, other.append))
    first, ping = sent(s)
    reply(s, first, **bad)
    assert len(events) == 1 and isinstance(events[0], quern.ProtocolError) and "malformed" in str(events[0])
    reply(s, first, **GOOD_DONE)
    reply(s, ping, op="ok", ready=True)
    assert len(events) == 1 and other[0]["ready"] is True and not s._open


def test_replies_with_any_bytes_changed_never_raise():
    """An exception would end the connection's thread."""
    rng = random.Random(5)
    first = {**GOOD_DONE["outputs"][0], "logprobs": [{"token": 7, "logprob": -1.5, "rank": 1, "top": [{"token": 7, "logprob": -1.5}]}]}
    good = [done(first=first, prompt_logprobs=[None, first["logprobs"][0]], timing={"queued_us": 1}),
            {"op": "delta", "job": "a", "index": 0, "offset": 0, "text": "x", "tokens": [7], "logprobs": first["logprobs"]},
            {"op": "accepted", "job": "a", "prompt_tokens": 1}, {"op": "ok", "jobs": [{"job": "a", "n": 2}]},
            {"op": "error", "code": "E_NOT_READY", "message": "x", "field": "y", "job": "a"}]
    odd = [None, True, -1, 1 << 63, 0.5, "", "x", b"\xff", [], [None], [[]], {}, {"a": None}]

    def mutated(value):
        """Replace one value in it."""
        if rng.random() < 0.2 or not isinstance(value, (dict, list)) or not value:
            return rng.choice(odd)
        at = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        out = dict(value) if isinstance(value, dict) else list(value)
        out[at] = mutated(value[at])
        return out
    for _ in range(20000):
        s, clock = session()
        events = []
        s.came_up()
        call = JobCall(rng.choice([{"op": "submit", "prompt": "x", "stream": True}, {"op": "attach", "job": "a", "from": [0, 3]},
                                   {"op": "attach", "job": "a", "from": 5}]), events.append)
        s.start(call)
        number = sent(s)[0]["id"]
        for _ in range(3):
            reply_ = {**rng.choice(good), "id": number}
            frame = msgpack.packb(mutated(reply_) if rng.random() < 0.7 else reply_)
            if rng.random() < 0.2:
                at = rng.randrange(len(frame))
                frame = frame[:at] + bytes([rng.randrange(256)]) + frame[at + rng.randrange(2):]
            s.receive(frame)
        s.went_down()
        s.came_up()
        for r in sent(s):
            assert isinstance(r["id"], int)


def test_an_error_reply_of_odd_types_is_an_error():
    s, _ = session()
    events = []
    s.came_up()
    s.start(Call({"op": "ping"}, events.append))
    reply(s, sent(s)[0], op="error", code=[1], message=None, field=7, job={})
    assert isinstance(events[0], quern.ServiceError) and events[0].field is None and events[0].job is None


def test_a_request_that_ends_each_connection_fails_in_time():
    s, clock = session(reconnect_timeout=5)
    events = []
    s.start(Call({"op": "ping"}, events.append))
    for _ in range(100):
        s.came_up()
        sent(s)
        clock.now += 0.2
        s.went_down()
        if events:
            break
    assert isinstance(events[0], quern.ConnectionLost) and "whenever ping is sent" in str(events[0])
    assert 105 <= clock.now <= 105.5


def test_a_job_that_gets_on_may_lose_any_number_of_connections():
    s, clock = session(reconnect_timeout=5)
    events = []
    s.start(JobCall({"op": "submit", "prompt": "x", "stream": True}, events.append))
    s.came_up()
    reply(s, sent(s)[0], op="accepted", job="a", prompt_tokens=1)
    for i in range(50):
        clock.now += 1
        s.went_down()
        s.came_up()
        (attach,) = sent(s)
        assert (attach["op"], attach["from"]) == ("attach", [i] if i else 0)
        reply(s, attach, op="delta", job="a", index=0, offset=i, text="", tokens=[i])
    assert len(events) == 51


@pytest.mark.parametrize("when, message", [(None, "no service answers at tcp://peer"), ("up", "did not come back within 120 s")])
def test_a_call_waits_for_a_connection_for_a_time(when, message):
    s, clock = session()
    events = []
    if when:
        s.came_up()
        s.went_down()
    s.start(Call({"op": "ping"}, events.append))
    clock.now = s.next_at - 0.1
    s.tick()
    assert not events
    clock.now = s.next_at
    s.tick()
    assert isinstance(events[0], quern.ConnectionLost) and message in str(events[0])
    assert clock.now == (220 if when else 110)


def test_a_job_that_the_end_of_the_service_cut_is_run_again():
    s, clock = session()
    events = []
    s.came_up()
    s.start(JobCall({"op": "submit", "prompt": "x", "stream": True}, events.append))
    (first,) = sent(s)
    reply(s, first, op="accepted", job="a", prompt_tokens=1)
    reply(s, first, op="delta", job="a", index=0, offset=0, text="x", tokens=[7])
    reply(s, first, **done(first={"finish_reason": "abort"}, service_ended=True))
    assert len(events) == 2 and not s.outbox
    clock.now = s.next_at
    s.tick()
    (again,) = sent(s)
    assert again["op"] == "submit" and again["key"] != first["key"] and again["params"] == first["params"]
    reply(s, again, op="error", code="E_NOT_READY", message="the service is ending")
    s.went_down()
    s.came_up()
    (again,) = sent(s)
    reply(s, again, op="accepted", job="b", prompt_tokens=1)
    (attach,) = sent(s)
    assert attach["from"] == [1]
    reply(s, attach, **{**GOOD_DONE, "job": "b"})
    assert len(events) == 3 and events[2].job == "b" and events[2].finish_reason == "stop"


@pytest.mark.parametrize("request_", [{"op": "submit", "prompt": "x", "key": "mine"}, {"op": "attach", "job": "a", "from": 0}])
def test_a_job_that_cannot_be_run_again_says_that_the_service_ended(request_):
    s, _ = session()
    events = []
    s.came_up()
    s.start(JobCall(request_, events.append))
    reply(s, sent(s)[0], **done(first={"finish_reason": "abort"}, service_ended=True))
    assert isinstance(events[0], quern.NotReady) and events[0].job == "a" and "the service ended" in str(events[0])
    s.start(call := JobCall({"op": "submit", "prompt": "x"}, events.append))
    s.cancel(call)
    reply(s, sent(s)[0], **done(first={"finish_reason": "abort"}, service_ended=True))
    assert events[1].finish_reason == "abort"   # as the caller wanted


def test_what_belongs_to_no_call_is_ignored():
    s, _ = session()
    s.came_up()
    for frame in ({"id": 7, "op": "done"}, {"id": "x", "op": "ok"}):
        s.receive(msgpack.packb(frame))
    assert not s.outbox and not s._open and _protocol.REQUEST_MAX == 16 << 20
