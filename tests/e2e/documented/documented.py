"""The examples of each API's own documentation that concern text, and their outcome on quern.

Each example is rewritten from the documentation: its fields are kept, its texts are not.  (title, path, body,
outcome): a path without a method means POST; outcomes.py defines the outcomes.  docs/apis/examples.md has the list
(`python tests/e2e/documented/documented.py` writes it), test_documented.py runs it."""

import pathlib
import sys

import of_anthropic
import of_llamacpp
import of_ollama
import of_responses
from outcomes import RUNS, ignores, refuses

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "apis" / "examples.md"
HELLO = [{"role": "user", "content": "Hello!"}]
WEATHER = {"type": "object", "properties": {"location": {"type": "string"},
                                            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
           "required": ["location"], "additionalProperties": False}


def function(**more):
    return {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER,
                                             **more}}


def asks(*content):
    return [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, *content]}]


def chat(title, outcome, messages=HELLO, **fields):
    return title, "/v1/chat/completions", {"model": "gpt", "messages": messages, **fields}, outcome


CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"location\": \"Paris\"}"}}

OPENAI = [
    chat("A message with instructions", RUNS,
         [{"role": "developer", "content": "You are a helpful assistant."}, *HELLO]),
    chat("A system message", RUNS, [{"role": "system", "content": "Be brief."}, *HELLO]),
    chat("A conversation of several turns", RUNS,
         [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And the rain?"}]),
    chat("A stream", RUNS, stream=True),
    chat("A stream with its usage", RUNS, stream=True, stream_options={"include_usage": True}),
    chat("Log probabilities", RUNS, logprobs=True, top_logprobs=2),
    chat("Several choices", RUNS, n=3, temperature=0.7),
    chat("Sampling with a seed", RUNS, seed=42, temperature=0, top_p=0.9),
    chat("Stop sequences and penalties", RUNS, stop=["\n"], frequency_penalty=0.5, presence_penalty=0.5),
    chat("Bias of tokens", RUNS, logit_bias={"50": -100}),
    chat("A bound on the tokens", RUNS, max_completion_tokens=20),
    chat("Functions", RUNS, tools=[function()], tool_choice="auto"),
    chat("A strict function", RUNS, tools=[function(strict=True)]),
    chat("A function that must be called", RUNS, tools=[function()], tool_choice="required"),
    chat("A function by its name", RUNS, tools=[function()],
         tool_choice={"type": "function", "function": {"name": "get_weather"}}),
    chat("One call at a time", RUNS, tools=[function()], parallel_tool_calls=False),
    chat("The result of a call", ignores("messages.tool_call_id"),
         [*HELLO, {"role": "assistant", "tool_calls": [CALL]},
          {"role": "tool", "tool_call_id": "call_1", "content": "15 degrees"}], tools=[function()]),
    chat("Functions of which some are allowed", RUNS, tools=[function()],
         tool_choice={"type": "allowed_tools", "allowed_tools": {
             "mode": "auto", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}}),
    chat("A custom tool", refuses("tools"), tools=[{"type": "custom", "custom": {"name": "code_exec"}}]),
    chat("JSON by a schema", RUNS, response_format={
        "type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}),
    chat("Any JSON object", RUNS, response_format={"type": "json_object"}),
    chat("Effort of reasoning", ignores("reasoning_effort"), reasoning_effort="medium"),
    chat("A prediction of the answer", ignores("prediction"), prediction={"type": "content", "content": "class A {}"}),
    chat("A completion that is stored", ignores("store", "metadata"), store=True, metadata={"topic": "test"}),
    chat("A tier of service", ignores("service_tier"), service_tier="flex"),
    chat("A key for cached prompts", ignores("prompt_cache_key"), prompt_cache_key="k"),
    chat("Verbosity", refuses("verbosity"), verbosity="low"),
    chat("An image", refuses("messages"), asks({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})),
    chat("A file", refuses("messages"), asks({"type": "file", "file": {"file_id": "file-1"}})),
    chat("Sound as input", refuses("messages"), asks({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})),
    chat("Sound as output", refuses("modalities"), modalities=["text", "audio"], audio={"voice": "a", "format": "wav"}),
    chat("A search of the web", refuses("web_search_options"), web_search_options={"search_context_size": "low"}),
    ("A completion", "/v1/completions", {"model": "gpt", "prompt": "Say this is a test", "max_tokens": 7,
                                         "temperature": 0}, RUNS),
    ("A completion as a stream", "/v1/completions", {"model": "gpt", "prompt": "Say this is a test", "max_tokens": 7,
                                                     "stream": True}, RUNS),
    ("Text between a prompt and a suffix", "/v1/completions", {"model": "gpt", "prompt": "def f(", "suffix": "return x"},
     refuses("suffix")),
    ("A vector", "/v1/embeddings", {"model": "gpt", "input": "The food was delicious", "encoding_format": "float"}, RUNS),
    ("Vectors of fewer values", "/v1/embeddings", {"model": "gpt", "input": ["a", "b"], "dimensions": 8}, RUNS),
]

APIS = {
    "OpenAI's chat, completions and embeddings": OPENAI,
    "OpenAI's Responses and Conversations": of_responses.EXAMPLES,
    "Anthropic's messages": of_anthropic.EXAMPLES,
    "Ollama": of_ollama.EXAMPLES,
    "llama.cpp's server": of_llamacpp.EXAMPLES,
}


def page():
    lines = ["# Examples of each API's documentation", "",
             "Those that concern text, as requests to a model that generates text, with a template for tools and the vocabulary",
             "to fill gaps and to rank, and what becomes of them. `tests/e2e/documented/test_documented.py` sends each. RESPONSE,",
             "CONVERSATION and ITEM stand for ids of what is there.", "",
             "- **runs**: with all of its fields.",
             "- **runs without**: the fields named have no effect, as the reply's header `x-quern-ignored` says.",
             "- **refused by name**: an error that names the field or the path, 400 unless another status stands there.", ""]
    for api, examples in APIS.items():
        lines += [f"## {api}", "", "| example | path | |", "|---|---|---|"]
        for title, path, _, (what, fields) in examples:
            lines.append(f"| {title} | `{path}` | {what}{' ' if fields else ''}{', '.join(f'`{f}`' for f in fields)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
