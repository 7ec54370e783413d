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


@pytest.fixture
def model(service):
    langchain = pytest.importorskip("langchain_openai")
    return langchain.ChatOpenAI(base_url=service.http + "/v1", api_key="none", model="demo", max_tokens=300, seed=3,
                                max_retries=0)


@pytest.mark.parametrize("strict", [None, True, False])
def test_langchain_s_with_structured_output(model, strict):
    hero = model.with_structured_output(Hero, method="json_schema", strict=strict).invoke("A hero.")
    assert isinstance(hero, Hero)


def test_instructor_s_json_schema_mode(service):
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=service.http + "/v1", api_key="none", max_retries=0, timeout=60) as api:
        client = instructor.from_openai(api, mode=instructor.Mode.JSON_SCHEMA)
        hero = client.chat.completions.create(model="demo", messages=MESSAGES, response_model=Hero, max_tokens=300,
                                              max_retries=0, seed=3)
    assert isinstance(hero, Hero)
