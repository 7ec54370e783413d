"""Other published clients that request objects and calls: LangChain and instructor."""

import shutil
from typing import Annotated

import instructor
import langchain_openai
import openai
import pytest
from pydantic import BaseModel, Field

from service import DEMO, ROOT, Service

MESSAGES = [{"role": "user", "content": "Tell me a story."}]


class Hero(BaseModel, extra="forbid"):
    """A hero of a story."""
    name: str = Field(pattern="^[A-Z][a-z]{1,7}$")
    age: int = Field(ge=1, le=99)
    friends: list[Annotated[str, Field(max_length=9)]] = Field(max_length=2)


def of(service):
    return langchain_openai.ChatOpenAI(base_url=service.http + "/v1", api_key="none", model="demo", max_tokens=300,
                                       seed=3, max_retries=0, extra_body={"enable_thinking": False})


@pytest.fixture
def model(service):
    return of(service)


@pytest.fixture(scope="module")
def hermes(tmp_path_factory):
    """The demo model with a template that supports tools."""
    model = tmp_path_factory.mktemp("hermes") / "demo"
    shutil.copytree(DEMO, model, symlinks=True)
    shutil.copy(ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja", model)
    s = Service(model)
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.mark.parametrize("strict", [None, True, False])
def test_langchain_s_with_structured_output(model, strict):
    hero = model.with_structured_output(Hero, method="json_schema", strict=strict).invoke("A hero.")
    assert isinstance(hero, Hero)


def test_instructor_s_json_schema_mode(service):
    with openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=60) as api:
        client = instructor.from_openai(api, mode=instructor.Mode.JSON_SCHEMA)
        hero = client.chat.completions.create(model="demo", messages=MESSAGES, response_model=Hero, max_tokens=300,
                                              max_retries=0, seed=3)
    assert isinstance(hero, Hero)


def test_langchain_s_bind_tools_any(hermes):
    message = of(hermes).bind_tools([Hero], tool_choice="any").invoke("A hero.")
    assert [c["name"] for c in message.tool_calls] == ["Hero"]
    assert isinstance(Hero(**message.tool_calls[0]["args"]), Hero)


def test_instructor_s_tools_mode(hermes):
    with openai.OpenAI(base_url=hermes.http + "/v1", api_key="none", max_retries=0, timeout=60) as api:
        client = instructor.from_openai(api, mode=instructor.Mode.TOOLS)
        hero = client.chat.completions.create(model="demo", messages=MESSAGES, response_model=Hero, max_tokens=300,
                                              max_retries=0, seed=3)
    assert isinstance(hero, Hero)
