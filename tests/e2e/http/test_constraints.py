"""Structured outputs through every API: their text, streamed and whole, and refused constraints.

The demo model writes stories: without a constraint none of these outputs would validate."""

import json
import re
from enum import Enum
from typing import Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from jobclient import JobError
from test_openai_client import raw

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Tell me a story."}]
ENOUGH = 300

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 12},
        "pages": {"type": "integer", "minimum": 3, "maximum": 40},
        "ends": {"enum": ["well", "badly", None]},
        "heroes": {"type": "array", "maxItems": 2, "items": {
            "type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"}},
            "required": ["name"], "additionalProperties": False}},
    },
    "required": ["title", "pages", "ends", "heroes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "story", "strict": True, "schema": SCHEMA}}


def is_story(text):
    jsonschema.validate(json.loads(text), SCHEMA)


def is_json_object(text):
    assert isinstance(json.loads(text), dict)


def is_spaced_story(text):
    """Return true if all whitespace between JSON tokens is a newline, perhaps with a tab."""
    is_story(text)
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert re.fullmatch(r'\{(\n\t?(""|[][{}:,]|null|\d+))*\n\t?\}', outside), text


def matches(pattern):
    def check(text):
        assert re.fullmatch(pattern, text), text
    return check


FORMS = [
    ({"response_format": FORMAT}, is_story),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, is_story),
    ({"guided_json": SCHEMA}, is_story),
    ({"guided_json": json.dumps(SCHEMA)}, is_story),
    ({"structured_outputs": {"json": SCHEMA}}, is_story),
    ({"json_schema": SCHEMA}, is_story),
    ({"response_format": FORMAT, "guided_whitespace_pattern": r"\n\t?"}, is_spaced_story),
    ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": r"\n\t?"}}, is_spaced_story),
    ({"guided_regex": "(cat|dog)( and (cat|dog)){2}!"}, matches("(cat|dog)( and (cat|dog)){2}!")),
    ({"structured_outputs": {"choice": ["yes", "no", "perhaps"]}}, matches("yes|no|perhaps")),
    ({"guided_grammar": 'start: "(" WORD ("," WORD)~2 ")"\nWORD: /[a-z]{1,5}/'}, matches(r"\([a-z]{1,5}(,[a-z]{1,5}){2}\)")),
    ({"grammar": 'root ::= "<" inner ">"\ninner ::= [a-z] | "<" inner ">"'}, matches("<+[a-z]>+")),
]
IDS = [f"{i} {next(iter(f))}" for i, (f, _) in enumerate(FORMS)]


@pytest.fixture
def api(service):
    with openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=100) as c:
        yield c


def complete(service, path, body):
    status, _, reply = raw(service, path, {"max_tokens": ENOUGH, "seed": 5, **body})
    assert status == 200, reply
    return [(c.get("text", c.get("message", {}).get("content")), c["finish_reason"]) for c in reply["choices"]]


@pytest.mark.parametrize("form, check", FORMS, ids=IDS)
def test_every_output_has_its_form(service, form, check):
    for path, body in (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", {"messages": MESSAGES})):
        outputs = complete(service, path, {**body, **form, "n": 4})
        assert len(outputs) == 4 and sum(reason == "stop" for _, reason in outputs) >= 3, outputs
        for text, reason in outputs:
            if reason == "stop":
                check(text)


def test_different_forms_run_beside_each_other(client):
    forms = [({"response_format": FORMAT}, is_story), ({"guided_regex": "[ab]{5}"}, matches("[ab]{5}")),
             ({"guided_choice": ["one", "two"]}, matches("one|two")), ({}, str)]
    jobs = [client.submit(PROMPT, max_tokens=ENOUGH, seed=i, **forms[i % 4][0]) for i in range(16)]
    for i, job in enumerate(jobs):
        done = job.done()
        if done.finish_reason == "stop":
            forms[i % 4][1](done.text)


def test_any_json_object(service):
    texts = complete(service, "/v1/chat/completions", {"messages": MESSAGES, "n": 8, "max_tokens": 100,
                                                       "response_format": {"type": "json_object"}})
    for text, reason in texts:
        assert text.startswith("{")
        if reason == "stop":
            is_json_object(text)


def test_a_beam_search_keeps_the_form(service):
    body = {"prompt": PROMPT, "use_beam_search": True, "n": 3, "temperature": 0, "guided_regex": "The [a-z]{3,9} (ran|sat)"}
    for text, reason in complete(service, "/v1/completions", body):
        assert reason == "stop"
        matches("The [a-z]{3,9} (ran|sat)")(text)


def test_a_structural_tag_leaves_the_text_free_until_a_trigger(service):
    tag = {"structures": [{"begin": "The ", "schema": {"type": "integer", "maximum": 99}, "end": "!"}], "triggers": ["The"]}
    outputs = complete(service, "/v1/completions", {"prompt": PROMPT, "n": 4, "max_tokens": 150,
                                                    "response_format": {"type": "structural_tag", **tag}})
    assert any(re.search("[a-z]{3}", text) for text, _ in outputs)
    for text, reason in outputs:
        after = text.split("The")[1:]
        for part in after if reason == "stop" else after[:-1]:     # the last line may be cut
            assert re.match(r" -?\d+!", part), text


def test_min_tokens_and_bans_give_way_to_the_form(service):
    outputs = complete(service, "/v1/completions", {"prompt": PROMPT, "guided_choice": ["yes"], "min_tokens": 50,
                                                    "bad_words": ["yes"]})
    assert outputs[0][0].startswith("yes")


@pytest.mark.parametrize("form, place", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/none"}}}}, "$ref"),
    ({"guided_regex": "a{2,1}"}, "regex"), ({"guided_grammar": "root ::= x"}, "x"),
    ({"guided_json": {"type": "string"}, "guided_regex": "a"}, "only one"),
])
def test_a_form_that_cannot_be_is_refused_at_once(service, form, place):
    for path, body in (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", {"messages": MESSAGES})):
        status, _, reply = raw(service, path, {**body, **form})
        assert status == 400 and place in reply["error"]["message"] and reply["error"]["param"] in form, reply


def test_refused_on_the_job_socket_too(client):
    with pytest.raises(JobError, match="guided_regex"):
        client.generate(PROMPT, guided_regex="(")


# --- the official client ---

class Mood(Enum):
    GLAD = "glad"
    SAD = "sad"


class Hero(BaseModel):
    name: str = Field(pattern="^[A-Z][a-z]{1,7}$")
    age: int = Field(ge=1, le=99)
    mood: Mood


class Story(BaseModel):
    """A story."""
    kind: Literal["tale", "fable"]
    heroes: list[Hero] = Field(min_length=1, max_length=2)
    moral: str | None = Field(max_length=20)


def test_openai_s_parse_returns_an_object(api):
    reply = api.chat.completions.parse(model="demo", messages=MESSAGES, response_format=Story, max_tokens=ENOUGH, seed=3)
    story = reply.choices[0].message.parsed
    assert reply.choices[0].finish_reason == "stop"
    assert isinstance(story, Story) and 1 <= len(story.heroes) <= 2


def test_openai_s_stream_returns_the_same_object(api):
    with api.chat.completions.stream(model="demo", messages=MESSAGES, response_format=Story, max_tokens=ENOUGH,
                                     seed=3) as stream:
        pieces = [e.delta for e in stream if e.type == "content.delta"]
        final = stream.get_final_completion()
    whole = api.chat.completions.parse(model="demo", messages=MESSAGES, response_format=Story, max_tokens=ENOUGH, seed=3)
    assert "".join(pieces) == final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
