"""Other clients that ask for objects, as they are published: LangChain and instructor.  Each is tried where it is
installed; `pip install langchain-openai instructor` into a copy of the tests' environment."""

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

MESSAGES = [{"role": "user", "content": "Tell me a story."}]


class Hero(BaseModel, extra="forbid"):
    """A hero of a story."""
    name: str = Field(pattern="^[A-Z][a-z]{1,7}$")
    age: int = Field(ge=1, le=99)
    friends: list[Annotated[str, Field(max_length=9)]] = Field(max_length=2)


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_s_with_structured_output(service, method):
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(base_url=service.http + "/v1", api_key="none", model="demo", max_tokens=300, seed=3,
                                 max_retries=0)
    if method == "json_mode":       # any object
        found = model.with_structured_output(None, method=method, include_raw=True).invoke("A hero, as JSON.")
        assert found["raw"].content.startswith("{")
        return
    hero = model.with_structured_output(Hero, method=method).invoke("A hero.")
    assert isinstance(hero, Hero)
    strict = model.with_structured_output(Hero, method=method, strict=True).invoke("A hero.")
    assert isinstance(strict, Hero)


def test_instructor_s_json_schema_mode(service):
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=60) as api:
        client = instructor.from_openai(api, mode=instructor.Mode.JSON_SCHEMA)
        hero = client.chat.completions.create(model="demo", messages=MESSAGES, response_model=Hero, max_tokens=300,
                                              max_retries=0, seed=3)
    assert isinstance(hero, Hero)
