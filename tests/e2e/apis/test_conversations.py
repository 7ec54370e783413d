"""OpenAI's conversations with the official client: on a service with keys, and after every process was killed."""

import os
import signal
import sys

import openai
import pytest

from service import DEMO, ROOT, Service, eventually

sys.path.insert(0, str(ROOT / "tests" / "e2e" / "http"))
from test_http import ask  # noqa: E402
from test_openai_description import described  # noqa: E402, F401
from test_responses_stored import SEEDED, client_of, done, kill_all, named  # noqa: E402

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789abc"
PATH = "/v1/conversations"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    d = tmp_path_factory.mktemp("conversations")
    (d / "keys").write_text(f"{ALICE} name=alice\n{BOB} name=bob\n")
    (d / "keys").chmod(0o600)
    s = Service(DEMO, "--journal", d / "j", "--api-key-file", d / "keys")
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture
def api(stored):
    with client_of(stored, ALICE) as c:
        yield c


def said(text, role="user"):
    return {"type": "message", "role": role, "content": text}


def texts(items):
    return [i.content[0].text for i in items]


def in_order(api, id):
    return list(api.conversations.items.list(id, order="asc", limit=100))


def test_a_conversation_is_made_changed_and_deleted(api):
    c = api.conversations.create(metadata={"topic": "demo"}, items=[said("Hello!")])
    assert c.id.startswith("conv_") and c.object == "conversation" and c.metadata == {"topic": "demo"}
    assert api.conversations.retrieve(c.id).model_dump() == c.model_dump()
    changed = api.conversations.update(c.id, metadata={"topic": "other"})
    assert changed.metadata == {"topic": "other"} and changed.created_at == c.created_at
    assert api.conversations.retrieve(c.id).metadata == {"topic": "other"}
    assert texts(in_order(api, c.id)) == ["Hello!"]
    gone = api.conversations.delete(c.id)
    assert gone.id == c.id and gone.deleted is True and gone.object == "conversation.deleted"
    for call in (api.conversations.retrieve, api.conversations.items.list, api.conversations.delete):
        with pytest.raises(openai.NotFoundError):
            call(c.id)
    with pytest.raises(openai.NotFoundError, match="no such conversation"):
        api.responses.create(model="demo", input="a", conversation=c.id)


def test_items_are_added_listed_and_deleted(api):
    c = api.conversations.create()
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    added = api.conversations.items.create(c.id, items=[
        said("a"), said("b", "assistant"), call, {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}])
    kinds = ["message", "message", "function_call", "function_call_output", "reasoning"]
    assert [i.type for i in added.data] == kinds and not added.has_more
    assert len({i.id for i in added.data}) == 5 and added.first_id == added.data[0].id
    assert [i.type for i in api.conversations.items.list(c.id)] == kinds[::-1]
    page = api.conversations.items.list(c.id, order="asc", limit=2)
    assert texts(page.data) == ["a", "b"] and page.has_more and page.last_id == page.data[1].id
    assert [i.id for i in page] == [i.id for i in added.data]       # the client requests the other pages
    one = api.conversations.items.retrieve(added.data[2].id, conversation_id=c.id)
    assert one.type == "function_call" and one.call_id == "c1"
    left = api.conversations.items.delete(added.data[0].id, conversation_id=c.id)
    assert left.id == c.id and left.object == "conversation"
    assert [i.id for i in in_order(api, c.id)] == [i.id for i in added.data[1:]]
    for call in (api.conversations.items.retrieve, api.conversations.items.delete):
        with pytest.raises(openai.NotFoundError):
            call(added.data[0].id, conversation_id=c.id)


def test_lists_are_as_described(stored, api, described):  # noqa: F811
    c = api.conversations.create(items=[said("a"), said("b", "assistant")])
    api.responses.create(model="demo", input="c", conversation=c.id, max_output_tokens=2)
    head = {"Authorization": "Bearer " + ALICE}
    described.validate(ask(stored, f"{PATH}/{c.id}", headers=head)[2], "ConversationResource")
    raw = ask(stored, f"{PATH}/{c.id}/items", headers=head)[2]
    described.validate(raw, "ConversationItemList")
    assert len(raw["data"]) == 4


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [True, False])
def test_a_response_goes_on_and_adds_its_items(api, stream, store):
    c = api.conversations.create(items=[said("Be brief.", "developer")])

    def respond(text):
        more = {"model": "demo", "input": text, "conversation": c.id, "max_output_tokens": 8, "temperature": 0,
                "store": store}
        if not stream:
            return api.responses.create(**more)
        with api.responses.create(**more, stream=True) as s:
            return list(s)[-1].response
    first = respond("Tell me a story.")
    assert first.conversation.id == c.id and first.previous_response_id is None
    # Immediately: writes still in flight to the disk count.
    second = respond("And then?")
    by_hand = api.chat.completions.create(model="demo", max_tokens=8, temperature=0, messages=[
        {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Tell me a story."},
        {"role": "assistant", "content": first.output_text}, {"role": "user", "content": "And then?"}])
    assert second.output_text == by_hand.choices[0].message.content
    assert second.usage.input_tokens == by_hand.usage.prompt_tokens
    items = in_order(api, c.id)
    assert texts(items) == ["Be brief.", "Tell me a story.", first.output_text, "And then?", second.output_text]
    assert items[2].id == first.output[0].id and len({i.id for i in items}) == 5
    if store:
        assert [i.id for i in api.responses.input_items.list(second.id)] == [items[3].id]


def test_the_background_adds_its_items_once(api):
    c = api.conversations.create()
    b = api.responses.create(model="demo", input="Go.", conversation={"id": c.id}, background=True,
                             max_output_tokens=20, **SEEDED)
    end = done(api, b.id)
    assert end.conversation.id == c.id
    for _ in range(2):      # a second look adds nothing
        list(api.responses.retrieve(b.id, stream=True))
        assert texts(in_order(api, c.id)) == ["Go.", end.output_text]
    cancelled = api.responses.create(model="demo", input="No.", conversation=c.id, background=True,
                                     max_output_tokens=1500, **SEEDED)
    api.responses.cancel(cancelled.id)
    if done(api, cancelled.id).status == "cancelled":
        assert texts(in_order(api, c.id)) == ["Go.", end.output_text]


def test_conversations_belong_to_their_key(stored, api):
    c = api.conversations.create(items=[said("secret")])
    item = in_order(api, c.id)[0].id
    with client_of(stored, BOB) as bob:
        for call in (bob.conversations.retrieve, bob.conversations.delete, bob.conversations.items.list,
                     lambda id: bob.conversations.update(id, metadata={}),
                     lambda id: bob.conversations.items.create(id, items=[said("x")]),
                     lambda id: bob.conversations.items.retrieve(item, conversation_id=id),
                     lambda id: bob.conversations.items.delete(item, conversation_id=id),
                     lambda id: bob.responses.create(model="demo", input="a", conversation=id)):
            with pytest.raises(openai.NotFoundError):
                call(c.id)
    assert texts(in_order(api, c.id)) == ["secret"] and api.conversations.retrieve(c.id).metadata == {}


@pytest.mark.parametrize("path, body, param, says", [
    ("", {"items": [{"type": "computer_call"}]}, "items[0].type", "computer_call"),
    ("", {"items": [said("a"), {"role": "king", "content": "a"}]}, "items[1].role", "must be"),
    ("", {"items": [said("a")] * 21}, "items", "at most 20"),
    ("", {"items": "a"}, "items", "array"),
    ("", {"metadata": {"a": 1}}, "metadata", "metadata"),
    ("", {"metadata": {str(i): "v" for i in range(17)}}, "metadata", "16"),
    ("/ID", {"metadata": {"k": "v" * 513}}, "metadata", "512"),
    ("/ID/items", {}, "items", "missing"),
    ("/ID/items", {"items": []}, "items", "none"),
    ("/ID/items", {"items": [3]}, "items[0]", "map"),
])
def test_what_is_refused_names_the_field(stored, api, path, body, param, says):
    id = api.conversations.create().id
    head = {"Authorization": "Bearer " + ALICE}
    status, _, r = ask(stored, PATH + path.replace("ID", id), body, headers=head)
    assert status == 400 and r["error"]["param"] == param and says in r["error"]["message"], r
    assert in_order(api, id) == []


def test_what_precedes_is_one_of_two(api):
    c = api.conversations.create()
    r = api.responses.create(model="demo", input="a", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="only one"):
        api.responses.create(model="demo", input="a", conversation=c.id, previous_response_id=r.id)
    for odd in ({}, {"id": 3}):
        with pytest.raises(openai.BadRequestError, match="conversation"):
            api.responses.create(model="demo", input="a", conversation=odd)


@pytest.mark.parametrize("method, path", [("PUT", "/ID"), ("GET", ""), ("DELETE", "/ID/items"), ("POST", "/ID/items/x"),
                                          ("GET", "/ID/items/x/y"), ("GET", "/ID/other")])
def test_other_paths_are_not_there(stored, api, method, path):
    id = api.conversations.create().id
    status, _, _ = ask(stored, PATH + path.replace("ID", id), {} if method == "POST" else None, method=method,
                       headers={"Authorization": "Bearer " + ALICE})
    assert status in (404, 405)


def test_without_a_journal_there_are_none(service):
    for path in ("", "/conv_1", "/conv_1/items"):
        status, _, r = ask(service, PATH + path, {})
        assert status == 501 and "--journal" in r["error"]["message"]
    status, _, r = ask(service, "/v1/responses", {"input": "a", "conversation": "conv_1"})
    assert status == 400 and r["error"]["param"] == "conversation" and "--journal" in r["error"]["message"]


def test_items_are_added_once_through_the_death_of_everything(tmp_path):
    s = Service(DEMO, "--journal", tmp_path / "j")
    long = {"model": "demo", "input": "Tell me a story.", "max_output_tokens": 400, "background": True, **SEEDED}
    try:
        with client_of(s) as c:
            expected = done(c, c.responses.create(**long).id).output_text
            talk = c.conversations.create(items=[said("a")])
            c.conversations.items.delete(in_order(c, talk.id)[0].id, conversation_id=talk.id)
            for pid in named(s, "quern-worke"):     # no response may finish before the service ends
                os.kill(pid, signal.SIGSTOP)
            with c.responses.create(**long, stream=True, conversation=talk.id) as stream:
                got = [e for _, e in zip(range(2), stream)]
        id = got[0].response.id
        kill_all(s)
        s = Service(DEMO, "--journal", tmp_path / "j")
        with client_of(s) as c:
            # A read of the conversation resumes its unfinished responses.
            eventually(lambda: len(in_order(c, talk.id)) == 2, 60, "the items of the response")
            assert texts(in_order(c, talk.id)) == ["Tell me a story.", expected]
            with c.responses.retrieve(id, stream=True, starting_after=1) as stream:
                got += list(stream)
            assert [e.sequence_number for e in got] == list(range(len(got)))
            assert got[-1].response.output_text == expected
        (pid,) = named(s, "quern-contr")        # and again, killing only the controller
        os.kill(pid, signal.SIGKILL)

        def look():
            try:
                with client_of(s) as c:
                    return done(c, id).output_text, texts(in_order(c, talk.id))
            except (openai.APIConnectionError, openai.InternalServerError):
                return None
        assert eventually(look, 90, "the controller") == (expected, ["Tell me a story.", expected])
    finally:
        s.stop()
