"""Stored responses: read again, followed, run in the background, and kept when every process is killed."""

import json
import os
import signal
import sys

import openai
import pytest

from service import DEMO, ROOT, Service, eventually, marked

sys.path.insert(0, str(ROOT / "tests" / "e2e" / "http"))
from test_http import ask  # noqa: E402
from test_openai_description import described  # noqa: E402, F401

PATH = "/v1/responses"
STORY = {"model": "demo", "input": "Tell me a story."}
SEEDED = {"extra_body": {"seed": 7, "ignore_eos": True}}


def client_of(service, key="none"):
    return openai.OpenAI(base_url=service.http + "/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    d = tmp_path_factory.mktemp("responses")
    (d / "keys").write_text("sk-alice-0123456789 name=alice max-jobs=2\nsk-bob-0123456789abc name=bob\n")
    (d / "keys").chmod(0o600)
    s = Service(DEMO, "--journal", d / "j", "--api-key-file", d / "keys")
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture
def api(stored):
    with client_of(stored, "sk-alice-0123456789") as c:
        yield c


def done(api, id, timeout=60):
    def look():
        r = api.responses.retrieve(id)
        return r if r.status not in ("queued", "in_progress") else None
    return eventually(look, timeout, "the end of the response")


def named(service, name):
    return [pid for pid, is_name in marked(service.mark).items() if is_name.startswith(name)]


def comparable(events):
    """The response without its end time and cached token count."""
    rows = [e.model_dump() for e in events]
    for e in rows:
        if r := e.get("response"):
            r["completed_at"] = None
            r["usage"] = r["usage"] and r["usage"]["output_tokens"]
    return rows


def test_a_response_is_retrieved_followed_and_deleted(api):
    first = api.responses.create(**STORY, max_output_tokens=8, temperature=0)
    assert first.store is True and api.responses.retrieve(first.id).model_dump() == first.model_dump()
    second = api.responses.create(model="demo", input="And then?", previous_response_id=first.id,
                                  max_output_tokens=8, temperature=0)
    by_hand = api.chat.completions.create(model="demo", max_tokens=8, temperature=0, messages=[
        {"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And then?"}])
    assert second.output_text == by_hand.choices[0].message.content and second.previous_response_id == first.id
    assert second.usage.input_tokens == by_hand.usage.prompt_tokens
    third = api.responses.create(model="demo", input="?", previous_response_id=second.id, max_output_tokens=1)
    assert third.usage.input_tokens > second.usage.input_tokens
    api.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="no such response"):
        api.responses.create(model="demo", input="?", previous_response_id=first.id)


def test_what_is_not_to_be_stored_is_not(api):
    r = api.responses.create(**STORY, max_output_tokens=1, store=False)
    assert r.store is False
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve(r.id)
    with pytest.raises(openai.BadRequestError, match="store"):
        api.responses.create(**STORY, background=True, store=False)


def test_a_stream_is_stored_too(api):
    with api.responses.stream(**STORY, max_output_tokens=6) as s:
        last = list(s)[-1].response
    assert api.responses.retrieve(last.id).output_text == last.output_text


def test_responses_belong_to_their_key(stored, api):
    r = api.responses.create(**STORY, max_output_tokens=1)
    b = api.responses.create(**STORY, max_output_tokens=1500, background=True, **SEEDED)
    with client_of(stored, "sk-bob-0123456789abc") as bob:
        for call in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel,
                     bob.responses.input_items.list):
            for id in (r.id, b.id):
                with pytest.raises(openai.NotFoundError):
                    call(id)
        with pytest.raises(openai.BadRequestError):
            bob.responses.create(model="demo", input="?", previous_response_id=r.id)
    assert done(api, b.id).status == "incomplete"   # the other key's requests did not end it


def test_input_items_are_listed(api, stored, described):  # noqa: F811
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
             {"role": "user", "content": [{"type": "input_text", "text": "c"}]}]
    r = api.responses.create(model="demo", input=items, max_output_tokens=1)
    texts = lambda page: [i.content[0].text for i in page.data]
    assert texts(api.responses.input_items.list(r.id)) == ["c", "b", "a"]
    page = api.responses.input_items.list(r.id, order="asc", limit=2)
    assert texts(page) == ["a", "b"] and page.has_more
    assert [i.content[0].text for i in page] == ["a", "b", "c"]     # the client requests the other pages
    raw = ask(stored, f"{PATH}/{r.id}/input_items", headers={"Authorization": "Bearer sk-alice-0123456789"})[2]
    described.validate(raw, "ResponseItemList")


def test_items_of_odd_types_are_listed(api, stored):
    items = [{"type": 3, "id": 5, "role": "user", "content": "a"}, {"type": None, "role": "user", "content": "b"}]
    head = {"Authorization": "Bearer sk-alice-0123456789"}
    status, _, r = ask(stored, PATH, {"input": items, "max_output_tokens": 1}, headers=head)
    assert status == 200, r
    path = f"{PATH}/{r['id']}/input_items?order=asc"
    data = ask(stored, path, headers=head)[2]["data"]
    assert [i["type"] for i in data] == ["message"] * 2 and all(isinstance(i["id"], str) for i in data)
    assert ask(stored, f"{path}&after={data[0]['id']}", headers=head)[2]["data"] == data[1:]


def test_texts_with_nul_are_stored_as_others(api, stored):
    """NUL is sent as an escape: JSON allows NUL, but the JSON reader accepts it only on request."""
    head = {"Authorization": "Bearer sk-alice-0123456789"}
    body = {"input": [{"role": "user", "content": "a", "name": "\0"}], "metadata": {"a": "b\0c"}, "max_output_tokens": 2}
    status, _, first = ask(stored, PATH, body, headers=head)
    assert status == 200 and first["metadata"] == body["metadata"], first
    assert len(ask(stored, f"{PATH}/{first['id']}/input_items", headers=head)[2]["data"]) == 1
    tokens = lambda **more: ask(stored, PATH, {"input": "b", "max_output_tokens": 1, **more}, headers=head)[2]["usage"]
    assert tokens(previous_response_id=first["id"])["input_tokens"] > tokens()["input_tokens"]
    _, _, b = ask(stored, PATH, {**body, "background": True}, headers=head)
    assert done(api, b["id"]).status == "incomplete"
    _, _, again = ask(stored, f"{PATH}/{b['id']}?stream=true", headers=head)
    last = json.loads(again.split("data: ")[-1])
    assert last["type"] == "response.incomplete" and last["response"]["metadata"] == body["metadata"]
    with stored.paused():       # must not finish before it is cancelled
        long = {**body, **SEEDED["extra_body"], "background": True, "max_output_tokens": 1500}
        _, _, b = ask(stored, PATH, long, headers=head)
        _, _, r = ask(stored, f"{PATH}/{b['id']}/cancel", {}, headers=head)
    assert r and r["status"] == "cancelled" and r["metadata"] == body["metadata"]
    assert done(api, b["id"]).status == "cancelled"


def test_the_background_counts_for_the_key_until_it_ends(stored, api):
    with stored.paused():       # neither may finish before the third arrives
        both = [api.responses.create(**STORY, max_output_tokens=1500, background=True, **SEEDED) for _ in range(2)]
        assert both[0].status == "in_progress" and both[0].background is True
        with pytest.raises(openai.RateLimitError):
            api.responses.create(**STORY, max_output_tokens=1)
        for b in both:
            assert api.responses.cancel(b.id).status == "cancelled"
    for b in both:
        assert done(api, b.id).status == "cancelled"
    assert eventually(lambda: can(api), 30, "room for the key's jobs")
    with pytest.raises(openai.BadRequestError):
        api.responses.cancel(api.responses.create(**STORY, max_output_tokens=1).id)


def can(api):
    try:
        return api.responses.create(**STORY, max_output_tokens=1).status
    except openai.RateLimitError:
        return None


def test_a_stream_is_cut_and_resumed_at_every_event(api):
    with api.responses.create(**STORY, max_output_tokens=12, background=True, stream=True, **SEEDED) as s:
        events = list(s)
    id = events[0].response.id
    assert [e.sequence_number for e in events] == list(range(len(events))) and len(events) > 12
    done(api, id)
    all_of_it = comparable(events)
    assert comparable(api.responses.retrieve(id, stream=True)) == all_of_it
    for i in range(len(events)):
        assert comparable(api.responses.retrieve(id, stream=True, starting_after=i)) == all_of_it[i + 1:], i


def test_a_running_stream_goes_on_where_it_was_cut(api):
    got = []
    with api.responses.create(**STORY, max_output_tokens=300, background=True, stream=True, **SEEDED) as s:
        for e in s:
            got.append(e)
            if len(got) == 20:
                break
    id = got[0].response.id
    while got[-1].type not in ("response.incomplete", "response.completed"):
        with api.responses.retrieve(id, stream=True, starting_after=got[-1].sequence_number) as s:
            for _, e in zip(range(40), s):
                got.append(e)
    assert [e.sequence_number for e in got] == list(range(len(got)))
    text = "".join(e.delta for e in got if e.type == "response.output_text.delta")
    assert text == done(api, id).output_text == got[-1].response.output_text


def test_only_the_background_streams_again(api):
    r = api.responses.create(**STORY, max_output_tokens=1)
    with pytest.raises(openai.BadRequestError) as e:
        api.responses.retrieve(r.id, stream=True)
    assert e.value.body["param"] == "stream"


def kill_all(service):
    service.kill()
    service.stop()


def test_a_response_survives_the_death_of_everything(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j")
    long = {**STORY, "max_output_tokens": 600, "background": True, "stream": True, **SEEDED}
    try:
        with client_of(s) as c:
            with c.responses.create(**long) as stream:
                expected = list(stream)
            got = []
            with c.responses.create(**long) as stream:
                for e in stream:
                    got.append(e)
                    if len(got) == 60:
                        break
            unread = c.responses.create(**{**long, "stream": False})
            id = got[0].response.id
        kill_all(s)
        s = Service(DEMO, "--journal", tmp_path / "j")
        with client_of(s) as c:
            with c.responses.retrieve(id, stream=True, starting_after=59) as stream:
                got += list(stream)
            text = lambda events: [e.delta for e in events if e.type == "response.output_text.delta"]
            assert [e.sequence_number for e in got] == list(range(len(expected)))
            assert text(got) == text(expected)
            assert done(c, unread.id).output_text == expected[-1].response.output_text
        # Kill only the controller, in the middle of a response.
        with client_of(s) as c:
            b = c.responses.create(**{**long, "stream": False})
        (pid,) = [p for p, name in marked(s.mark).items() if name.startswith("quern-contr")]
        os.kill(pid, signal.SIGKILL)

        def look():
            try:
                with client_of(s) as c:
                    return done(c, b.id)
            except (openai.APIConnectionError, openai.InternalServerError):
                return None
        assert eventually(look, 90, "the response").output_text == expected[-1].response.output_text
    finally:
        s.stop()


def test_the_end_of_the_service_is_no_event_of_a_response_that_goes_on(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j")
    long = {**STORY, "max_output_tokens": 600, "background": True, "stream": True, **SEEDED}
    try:
        with client_of(s) as c:
            with c.responses.create(**long) as stream:
                expected = list(stream)
            # No token may come before the controller's end: the supervisor would start or continue a worker.
            s.process.send_signal(signal.SIGSTOP)
            for pid in named(s, "quern-worke"):
                os.kill(pid, signal.SIGSTOP)
            (controller,) = named(s, "quern-contr")
            stream, got = c.responses.create(**long), []
            for e in stream:
                got.append(e)
                if len(got) == 2:
                    os.kill(controller, signal.SIGTERM)
        kill_all(s)
        assert len(got) == 2
        s = Service(DEMO, "--journal", tmp_path / "j")
        with client_of(s) as c:
            with c.responses.retrieve(got[0].response.id, stream=True,
                                      starting_after=got[-1].sequence_number) as stream:
                got += list(stream)
        assert [(e.sequence_number, e.type) for e in got] == [(e.sequence_number, e.type) for e in expected]
    finally:
        s.stop()


def test_what_expired_is_not_there(tmp_path):
    import sqlite3
    s = Service(DEMO, "--journal", tmp_path / "j")
    try:
        with client_of(s) as c:
            r = c.responses.create(**STORY, max_output_tokens=1)
            db = sqlite3.connect(tmp_path / "j")

            def expired():
                with db:
                    return db.execute("UPDATE responses SET expires_at = 1000000000").rowcount == 1
            eventually(expired, what="a stored response")
            with pytest.raises(openai.NotFoundError):
                c.responses.retrieve(r.id)
            c.responses.create(**STORY, max_output_tokens=1)
            there = lambda: [id for (id,) in db.execute("SELECT id FROM responses")]
            eventually(lambda: r.id not in there(), 30, "the sweep")
            db.close()
    finally:
        s.stop()


def test_without_a_journal_nothing_is_stored(service):
    status, _, r = ask(service, PATH + "/resp_1")
    assert status == 501 and "--journal" in r["error"]["message"]
    for name, value in (("background", True), ("previous_response_id", "resp_1")):
        status, _, r = ask(service, PATH, {"input": "a", name: value})
        assert status == 400 and r["error"]["param"] == name and "--journal" in r["error"]["message"]
    assert json.dumps(ask(service, PATH, {"input": "a", "max_output_tokens": 1})[2]["store"]) == "false"


# --- a reply is a promise ---

PROMISES = 200 if os.environ.get("QUERN_TEST_LONG") == "1" else 8


def test_what_a_reply_says_is_stored_outlives_a_kill_right_after_it(tmp_path_factory):
    """make check-full runs this 200 times."""
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("kills") / "j")

    def request(method, path, body=None):
        def reply():
            try:
                status, _, o = ask(s, path, body, method=method)
            except OSError:
                return None
            return None if status == 503 else (status, o)
        return eventually(reply, what="a controller that answers")
    try:
        made = []
        for i in range(PROMISES):
            conversation = request("POST", "/v1/conversations", {})[1]["id"]
            body = {"input": f"turn {i}", "conversation": conversation, "max_output_tokens": 4, "store": i % 3 != 2}
            pid, = named(s, "quern-controlle")
            if i % 2:
                status, _, response = ask(s, PATH, body)
                assert status == 200
            else:
                with client_of(s) as c:
                    last = list(c.responses.create(model="demo", stream=True, **body))[-1]
                assert last.type in ("response.completed", "response.incomplete")
                response = last.response.model_dump()
            os.kill(pid, signal.SIGKILL)
            made.append((conversation, response["id"], body["store"]))
            eventually(lambda: pid not in named(s, "quern-controlle"), what="the end of the controller")
        for i, (conversation, response, stored) in enumerate(made):
            status, items = request("GET", f"/v1/conversations/{conversation}/items")
            assert status == 200 and len(items["data"]) == 2, (i, items)
            assert request("GET", f"{PATH}/{response}")[0] == (200 if stored else 404), i
    finally:
        s.stop()
        Service.used.remove(s)
