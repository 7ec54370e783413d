"""The examples of Anthropic's documentation (its API reference, guides and SDK) that concern text: documented.py."""

from outcomes import RUNS, ignores, refuses

HELLO = [{"role": "user", "content": "Hello!"}]
WEATHER = {"name": "get_weather", "description": "The weather of a place", "input_schema": {
    "type": "object", "properties": {"location": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
    "required": ["location"]}}
TIME = {"name": "get_time", "description": "The time of a place", "input_schema": {
    "type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}}
ORDER = {"type": "json_schema", "schema": {
    "type": "object", "properties": {"product": {"type": "string"}, "quantity": {"type": "integer"}},
    "required": ["product", "quantity"], "additionalProperties": False}}
CACHED = {"cache_control": {"type": "ephemeral"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PAPER = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 16}}


def text(t, **more):
    return {"type": "text", "text": t, **more}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def used(*ids):
    return {"role": "assistant", "content": [text("Let me look."), *(
        {"type": "tool_use", "id": i, "name": "get_weather", "input": {"location": i}} for i in ids)]}


def result(i, content=None, **more):
    return {"type": "tool_result", "tool_use_id": i, **({} if content is None else {"content": content}), **more}


def says(title, outcome=RUNS, messages=HELLO, **fields):
    return title, "/v1/messages", {"model": "gpt", "max_tokens": 60, "messages": messages, **fields}, outcome


def counts(title, outcome=RUNS, messages=HELLO, **fields):
    return title, "/v1/messages/count_tokens", {"model": "gpt", "messages": messages, **fields}, outcome


def results(title, outcome, *blocks):
    """The conversation after calls that these blocks answer."""
    calls = used(*[b["tool_use_id"] for b in blocks if b["type"] == "tool_result"])
    return says(title, outcome, [*HELLO, calls, user(*blocks)], tools=[WEATHER])


def own_tool(title, kind, **more):
    return says(title, refuses(kind), tools=[{"type": kind, "name": kind.rsplit("_", 1)[0], **more}])


# The template of the model shows no ids of results.
NO_IDS = ignores("messages.tool_use_id")

EXAMPLES = [
    says("A request"),
    says("Several turns", messages=[*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And now?"}]),
    says("The beginning of the answer (prefill)", messages=[*HELLO, {"role": "assistant", "content": "The answer is ("}],
         max_tokens=1),
    says("A system prompt", system="You are a poet."),
    says("A system prompt of blocks", system=[text("You are a poet."), text("Be brief.")]),
    says("A message within the turns that is the system's", messages=[*HELLO, {"role": "system", "content": "Be brief."}]),
    says("Temperature, top_p and top_k", temperature=0.7, top_p=0.9, top_k=40),
    says("Stop sequences", stop_sequences=["\n\nHuman:", "END"]),
    says("The user's id", metadata={"user_id": "u-1"}),
    says("A tier of service", ignores("service_tier"), service_tier="auto"),
    says("A stream", stream=True),
    says("A stream with tools", stream=True, tools=[WEATHER]),
    says("A stream with thinking", stream=True, **THINKS),
    says("Tools", tools=[WEATHER]),
    says("Several tools", tools=[WEATHER, TIME]),
    says("Any tool must be called", tools=[WEATHER, TIME], tool_choice={"type": "any"}),
    says("A tool must be called", tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"}),
    says("No tool may be called", tools=[WEATHER], tool_choice={"type": "none"}),
    says("One call at most", tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True}),
    says("A strict tool", tools=[{**WEATHER, "input_schema": {**WEATHER["input_schema"], "additionalProperties": False},
                                  "strict": True}]),
    says("A tool with examples of its input", ignores("tools.input_examples"),
         tools=[{**WEATHER, "input_examples": [{"location": "Paris"}]}]),
    says("A tool whose input streams at once", ignores("tools.eager_input_streaming"), stream=True,
         tools=[{**WEATHER, "eager_input_streaming": True}]),
    says("A tool that is loaded when it is searched for", ignores("tools.defer_loading"),
         tools=[{**WEATHER, "defer_loading": True}]),
    results("A result", NO_IDS, result("Paris", "15 degrees")),
    results("A result of blocks", NO_IDS, result("Paris", [text("15 degrees")])),
    results("A result without content", NO_IDS, result("Paris")),
    results("A result that is an error", ignores("messages.is_error", "messages.tool_use_id"),
            result("Paris", "no connection", is_error=True)),
    results("Results of parallel calls, and a text", NO_IDS, result("Paris", "15"), result("Rome", "20"), text("And now?")),
    results("A result with an image", refuses("image"), result("Paris", [text("see"), PICTURE])),
    results("A result with a document", refuses("document"), result("Paris", [PAPER])),
    says("Thinking with a budget", **THINKS),
    says("Thinking as the model has it", thinking={"type": "adaptive"}),
    says("Thinking that is not shown", thinking={"type": "adaptive", "display": "omitted"}),
    says("No thinking", thinking={"type": "disabled"}),
    says("A thought that is sent back with its call and the result", NO_IDS, [
        *HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"},
                                                  *used("Paris")["content"]]},
        user(result("Paris", "15 degrees"))], tools=[WEATHER], **THINKS),
    says("A redacted thought that is sent back", ignores("messages.redacted_thinking"), [
        *HELLO, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, text("Hi.")]},
        user(text("And now?"))]),
    says("Effort", ignores("output_config.effort"), output_config={"effort": "medium"}),
    says("An output with a form", output_config={"format": ORDER}),
    says("An output with a form, by the older name", output_format=ORDER),
    says("A system prompt that is cached", ignores("system.cache_control"), system=[text("A long text.", **CACHED)]),
    says("Turns that are cached", ignores("messages.cache_control"), [user(text("A long text.", **CACHED))]),
    says("Tools that are cached", ignores("tools.cache_control"), tools=[WEATHER, {**TIME, **CACHED}]),
    says("Caching without a place", ignores("cache_control"), **CACHED),
    says("Old results are cleared from the context", ignores("context_management"),
         context_management={"edits": [{"type": "clear_tool_uses_20250919"}]}),
    says("An image", refuses("image"), [user(text("What is this?"), PICTURE)]),
    says("An image by its address", refuses("image"), [user({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}})]),
    says("A document", refuses("document"), [user(PAPER, text("What is this?"))]),
    says("A text to be cited", refuses("document"), [user({
        "type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grass is green."},
        "citations": {"enabled": True}}, text("What colour is grass?"))]),
    says("Results of a search", refuses("search_result"), [user({
        "type": "search_result", "source": "https://a", "title": "A", "content": [text("B")]}, text("What is A?"))]),
    own_tool("A search of the web by Anthropic", "web_search_20250305", max_uses=5),
    own_tool("A page of the web, fetched by Anthropic", "web_fetch_20250910"),
    own_tool("Code that Anthropic runs", "code_execution_20250825"),
    own_tool("Anthropic's shell", "bash_20250124"),
    own_tool("Anthropic's text editor", "text_editor_20250728"),
    own_tool("Anthropic's computer", "computer_20250124", display_width_px=1024, display_height_px=768),
    own_tool("Anthropic's memory", "memory_20250818"),
    own_tool("Anthropic's search among tools", "tool_search_tool_regex_20251119"),
    says("Servers of tools (MCP)", refuses("mcp_servers"), mcp_servers=[{"type": "url", "url": "https://a", "name": "a"}]),
    says("A container with skills", refuses("container"), container={"skills": [{"type": "anthropic", "skill_id": "pptx"}]}),
    counts("The tokens of a message", system="You are a poet."),
    counts("The tokens of a message with tools", tools=[WEATHER]),
    counts("The tokens of a message with thinking", **THINKS),
    counts("The tokens of a message with an image", refuses("image"), [user(PICTURE, text("What is this?"))]),
    counts("The tokens of a message with a document", refuses("document"), [user(PAPER)]),
    ("The models", "GET /v1/models", None, RUNS),
    ("A model", "GET /v1/models/gpt", None, RUNS),
    ("A batch of messages", "/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {
        "model": "gpt", "max_tokens": 5, "messages": HELLO}}]}, refuses("/v1/messages/batches", 404)),
    ("The batches", "GET /v1/messages/batches", None, refuses("/v1/messages/batches", 404)),
    ("A batch", "GET /v1/messages/batches/msgbatch_1", None, refuses("/v1/messages/batches", 404)),
    ("A batch's results", "GET /v1/messages/batches/msgbatch_1/results", None, refuses("/v1/messages/batches", 404)),
    ("The end of a batch", "/v1/messages/batches/msgbatch_1/cancel", {}, refuses("/v1/messages/batches", 404)),
    ("A batch is deleted", "DELETE /v1/messages/batches/msgbatch_1", None, refuses("/v1/messages/batches", 404)),
    ("A completion, of the API before messages", "/v1/complete", {
        "model": "gpt", "max_tokens_to_sample": 9, "prompt": "\n\nHuman: Hello!\n\nAssistant:"}, refuses("/v1/complete", 404)),
]
