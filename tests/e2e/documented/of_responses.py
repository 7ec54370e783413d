"""The examples in OpenAI's documentation of its Responses and Conversations (reference and guides) that concern text:
see documented.py. RESPONSE, CONVERSATION and ITEM stand for ids of existing objects."""

from outcomes import RUNS, ignores, refuses

PLACE = {"type": "object", "properties": {"location": {"type": "string"}, "unit": {"type": ["string", "null"]}},
         "required": ["location", "unit"], "additionalProperties": False}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a place", "parameters": PLACE,
           "strict": True}
STEPS = {"type": "json_schema", "name": "steps", "strict": True, "schema": {
    "type": "object", "properties": {"steps": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                                     "answer": {"type": "string", "maxLength": 20}},
    "required": ["steps", "answer"], "additionalProperties": False}}
CALL = [{"role": "user", "content": "What is the weather in Paris?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{\"location\": \"Paris\"}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "15 degrees"}]


def says(title, outcome=RUNS, text="Tell me a story of three sentences.", **fields):
    return title, "/v1/responses", {"model": "gpt", "input": text, "max_output_tokens": 60, **fields}, outcome


def user(*parts):
    return [{"role": "user", "content": [{"type": "input_text", "text": "What is in this?"}, *parts]}]


def own_tool(title, kind, **more):
    return says(title, refuses("tools"), tools=[{"type": kind, **more}])


def at(title, path, outcome=RUNS, body=None):
    return title, path, body, outcome


ITEMS = {"items": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello!"}]},
                   {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}]}

EXAMPLES = [
    says("A text"),
    says("Instructions", instructions="Talk like a pirate."),
    says("Messages of roles", text=[{"role": "developer", "content": "Talk like a pirate."},
                                    {"role": "user", "content": "Are semicolons optional?"}]),
    says("Several turns as input", text=[{"role": "user", "content": "knock knock."},
                                         {"role": "assistant", "content": "Who is there?"},
                                         {"role": "user", "content": "Orange."}]),
    says("Items with parts of text", text=[{"type": "message", "role": "user",
                                            "content": [{"type": "input_text", "text": "Hello!"}]}]),
    says("A stream", stream=True),
    says("A stream without padding", ignores("stream_options"), stream=True, stream_options={"include_obfuscation": False}),
    says("A temperature and a share", temperature=0.7, top_p=0.9),
    says("Log probabilities", refuses("top_logprobs"), top_logprobs=2, include=["message.output_text.logprobs"]),
    says("Pairs of metadata", metadata={"topic": "story"}),
    says("A response that is not stored", store=False),
    says("A response in the background", background=True),
    says("A background response as a stream", background=True, stream=True),
    says("The turn after a response", text="And what then?", previous_response_id="RESPONSE"),
    says("A turn of a conversation", text="And what then?", conversation="CONVERSATION"),
    says("A turn of a conversation by an object", text="And what then?", conversation={"id": "CONVERSATION"}),
    says("A conversation and a response before", refuses("previous_response_id"), previous_response_id="RESPONSE",
         conversation="CONVERSATION"),
    says("A function", tools=[WEATHER]),
    says("A function, as a stream", tools=[WEATHER], stream=True),
    says("The result of a function", ignores("input.call_id"), text=CALL, tools=[WEATHER]),
    says("A function that must be called", tools=[WEATHER], tool_choice="required"),
    says("A function by its name", tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"}),
    says("Functions of which some are allowed", tools=[WEATHER], tool_choice={
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]}),
    says("No function", tools=[WEATHER], tool_choice="none"),
    says("One call at a time", tools=[WEATHER], parallel_tool_calls=False),
    says("A bound on the calls of tools", ignores("max_tool_calls"), tools=[WEATHER], max_tool_calls=1),
    ("JSON by a schema", "/v1/responses", {"model": "gpt", "input": "Solve 8x + 7 = -23", "max_output_tokens": 200,
                                           "text": {"format": STEPS}}, RUNS),
    ("Any JSON object", "/v1/responses", {"model": "gpt", "input": "Solve it as JSON", "max_output_tokens": 60,
                                          "text": {"format": {"type": "json_object"}}}, RUNS),
    ("Verbosity", "/v1/responses", {"model": "gpt", "input": "Hello!", "text": {"verbosity": "low"}}, ignores("text.verbosity")),
    says("Effort of reasoning", ignores("reasoning.effort"), reasoning={"effort": "low"}),
    says("A summary of the reasoning", ignores("reasoning.summary", "reasoning.effort"), reasoning={"effort": "medium", "summary": "auto"}),
    says("Thoughts that are encrypted", store=False, include=["reasoning.encrypted_content"]),
    says("A context that is cut", refuses("truncation"), truncation="auto"),
    says("A tier of service", ignores("service_tier"), service_tier="flex"),
    says("A key for cached prompts", ignores("prompt_cache_key"), prompt_cache_key="k"),
    says("An id of the user", ignores("safety_identifier"), safety_identifier="u1"),
    says("A prompt that is kept", refuses("prompt"), prompt={"id": "pmpt_1", "variables": {"city": "Paris"}}),
    says("An image", refuses("input"), text=user({"type": "input_image", "image_url": "https://example.com/a.png"})),
    says("A file by its id", refuses("input"), text=user({"type": "input_file", "file_id": "file-1"})),
    says("A file by its address", refuses("input"), text=user({"type": "input_file", "file_url": "https://example.com/a.pdf"})),
    own_tool("A search of the web", "web_search"),
    own_tool("A search of files", "file_search", vector_store_ids=["vs_1"]),
    own_tool("An interpreter of code", "code_interpreter", container={"type": "auto"}),
    own_tool("A server of tools", "mcp", server_label="s", server_url="https://example.com", require_approval="never"),
    own_tool("Pictures that are made", "image_generation"),
    own_tool("The use of a computer", "computer_use_preview", display_width=1024, display_height=768, environment="linux"),
    own_tool("A shell", "local_shell"),
    own_tool("A custom tool", "custom", name="code_exec", description="Runs code"),
    at("A response that is stored", "GET /v1/responses/RESPONSE"),
    at("A response that is stored, as a stream", "GET /v1/responses/RESPONSE?stream=true&starting_after=0",
       refuses("stream")),
    at("The items that a response began with", "GET /v1/responses/RESPONSE/input_items?order=asc&limit=5"),
    at("The end of a response that is done", "POST /v1/responses/RESPONSE/cancel", refuses("background")),
    at("A response that is deleted", "DELETE /v1/responses/RESPONSE"),
    at("The number of tokens of an input", "/v1/responses/input_tokens", refuses("/v1/responses/input_tokens", 404),
       {"model": "gpt", "input": "Hello!"}),
    at("A context that is made smaller", "/v1/responses/compact", refuses("/v1/responses/compact", 404),
       {"model": "gpt", "input": "Hello!"}),
    at("A conversation", "/v1/conversations", RUNS, {"metadata": {"topic": "demo"}, **ITEMS}),
    at("A conversation that is read", "GET /v1/conversations/CONVERSATION"),
    at("A conversation of another topic", "/v1/conversations/CONVERSATION", RUNS, {"metadata": {"topic": "other"}}),
    at("The items of a conversation", "GET /v1/conversations/CONVERSATION/items?limit=10"),
    at("Items for a conversation", "/v1/conversations/CONVERSATION/items", RUNS, ITEMS),
    at("An item of a conversation", "GET /v1/conversations/CONVERSATION/items/ITEM"),
    at("An item that is deleted", "DELETE /v1/conversations/CONVERSATION/items/ITEM"),
    at("A conversation that is deleted", "DELETE /v1/conversations/CONVERSATION"),
]
