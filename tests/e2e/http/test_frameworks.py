"""Published frameworks that speak OpenAI's API: LiteLLM and LlamaIndex."""

import asyncio
import json
import os
import shutil

import pytest

from service import DEMO, ROOT, Service
from test_http import chat

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # do not ask a server for prices
litellm = pytest.importorskip("litellm")
llama_index = pytest.importorskip("llama_index.llms.openai_like")
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.tools import FunctionTool  # noqa: E402

litellm.telemetry = False
HELLO = [{"role": "user", "content": "Hello!"}]
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city", "strict": True,
                                         "parameters": {"type": "object", "properties": {"city": {"type": "string",
                                                                                                  "maxLength": 9}},
                                                        "required": ["city"], "additionalProperties": False}}}


def lite(service, **more):
    return {"model": "openai/demo", "api_base": service.http + "/v1", "api_key": "none", "max_retries": 0,
            "num_retries": 0, "max_tokens": 20, "temperature": 0, "messages": HELLO, **more}


@pytest.fixture
def expected(service):
    return chat(service, "Hello!", max_tokens=20, temperature=0)["choices"][0]["message"]["content"]


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


# --- LiteLLM ---

def test_litellm_completes(service, expected):
    r = litellm.completion(**lite(service))
    assert r.choices[0].message.content == expected
    assert r.usage.prompt_tokens > 0 and r.usage.completion_tokens > 0
    assert r.choices[0].finish_reason in ("stop", "length")


def test_litellm_streams(service, expected):
    parts = list(litellm.completion(**lite(service, stream=True, stream_options={"include_usage": True})))
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == expected
    assert parts[-1].usage.completion_tokens > 0


def test_litellm_awaits(service, expected):
    async def both():
        return await asyncio.gather(*(litellm.acompletion(**lite(service)) for _ in range(4)))
    assert [r.choices[0].message.content for r in asyncio.run(both())] == [expected] * 4


def test_litellm_calls_a_function(hermes):
    r = litellm.completion(**lite(hermes, tools=[TOOL], tool_choice="required", max_tokens=100,
                                  extra_body={"enable_thinking": False}))
    call = r.choices[0].message.tool_calls[0].function
    assert call.name == "weather" and set(json.loads(call.arguments)) == {"city"}


def test_litellm_s_errors_are_those_of_a_bad_request(service):
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**lite(service, temperature=-1))
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**lite(service, model="openai/another"))


def test_litellm_embeds(service):
    r = litellm.embedding(model="openai/demo", api_base=service.http + "/v1", api_key="none", input=["one", "two"])
    assert len(r.data) == 2 and len(r.data[0]["embedding"]) > 1


# --- LlamaIndex ---

def index(service, **more):
    options = {"max_tokens": 20, "temperature": 0, "max_retries": 0, "timeout": 60, **more}
    return llama_index.OpenAILike(model="demo", api_base=service.http + "/v1", api_key="none", is_chat_model=True,
                                  context_window=2048, **options)


def test_llamaindex_chats(service, expected):
    r = index(service).chat([ChatMessage(role="user", content="Hello!")])
    assert r.message.content == expected


def test_llamaindex_streams(service, expected):
    parts = list(index(service).stream_chat([ChatMessage(role="user", content="Hello!")]))
    assert parts[-1].message.content == expected
    assert "".join(p.delta or "" for p in parts) == expected


def test_llamaindex_completes_text(service):
    llm = llama_index.OpenAILike(model="demo", api_base=service.http + "/v1", api_key="none", is_chat_model=False,
                                 context_window=2048, max_tokens=8, temperature=0, max_retries=0)
    text = llm.complete("Once upon a time").text
    assert text and text == "".join(p.delta for p in llm.stream_complete("Once upon a time"))


def test_llamaindex_calls_a_function(hermes):
    def weather(city: str) -> str:
        """The weather of a city."""
        return "rain in " + city
    tool = FunctionTool.from_defaults(weather)
    llm = index(hermes, is_function_calling_model=True, max_tokens=100,
                additional_kwargs={"extra_body": {"enable_thinking": False}})
    r = llm.chat_with_tools([tool], user_msg="Hello!", tool_required=True)
    calls = llm.get_tool_calls_from_response(r)
    assert [c.tool_name for c in calls] == ["weather"] and set(calls[0].tool_kwargs) == {"city"}
