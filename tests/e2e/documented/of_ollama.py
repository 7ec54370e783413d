"""The examples in Ollama's documentation (docs/api.md and the capability pages) that concern text: see
documented.py."""

from outcomes import RUNS, ignores, refuses

ASKS = [{"role": "user", "content": "Why is the sky blue?"}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
AGE = {"type": "object", "properties": {"age": {"type": "integer"}, "free": {"type": "boolean"}}, "required": ["age", "free"]}
PICTURE = ["AAAA"]
# Every option, with the documentation's example values.
OF_MODEL = {"seed": 42, "num_predict": 20, "top_k": 20, "top_p": 0.9, "min_p": 0.0, "typical_p": 0.7, "temperature": 0.8,
            "repeat_penalty": 1.2, "presence_penalty": 1.5, "frequency_penalty": 1.0, "stop": ["\n", "user:"]}
OF_MACHINE = {"num_keep": 5, "draft_num_predict": 4, "repeat_last_n": 33, "penalize_newline": True, "numa": False,
              "num_ctx": 1024, "num_batch": 2, "num_gpu": 1, "main_gpu": 0, "use_mmap": True, "num_thread": 8}


def generate(title, outcome=RUNS, **fields):
    return title, "/api/generate", {"model": "gpt", "prompt": "Why is the sky blue?", **fields}, outcome


def chat(title, outcome=RUNS, messages=ASKS, **fields):
    return title, "/api/chat", {"model": "gpt", "messages": messages, **fields}, outcome


def called(*results, **more):
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}, **more}}
    return [*ASKS, {"role": "assistant", "content": "", "tool_calls": [call]}, *results]


def changes(title, path, body):
    return title, path, body, refuses(path.split()[-1], 501)


EXAMPLES = [
    generate("A prompt, answered as a stream"),
    generate("A prompt, answered at once", stream=False),
    generate("Text between a prompt and a suffix", refuses("suffix"), prompt="def gcd(a, b):", suffix="    return x",
             options={"temperature": 0}, stream=False),
    generate("A prompt with a form", stream=False, format=AGE),
    generate("A prompt, answered as JSON", stream=False, format="json"),
    generate("A prompt with images", refuses("images"), stream=False, images=PICTURE),
    generate("A raw prompt", prompt="[INST] why is the sky blue? [/INST]", raw=True, stream=False),
    generate("A prompt with a seed", options={"seed": 123}),
    generate("A prompt with every option", ignores(*(f"options.{o}" for o in OF_MACHINE)), stream=False,
             options={**OF_MACHINE, **OF_MODEL}),
    generate("A system message", system="You are a pirate.", stream=False),
    generate("A template", refuses("template"), template="{{ .Prompt }}"),
    generate("The context of an earlier answer", refuses("context"), context=[1, 2, 3]),
    generate("A prompt with thinking", think=True, stream=False),
    generate("Log probabilities", logprobs=True, top_logprobs=3, stream=False),
    ("The model is loaded by a prompt", "/api/generate", {"model": "gpt"}, RUNS),
    ("The model is unloaded by a prompt", "/api/generate", {"model": "gpt", "keep_alive": 0}, ignores("keep_alive")),
    chat("A chat, answered as a stream"),
    chat("A chat, answered at once", stream=False),
    chat("A chat with tools, as a stream", tools=[WEATHER], stream=True),
    chat("A chat with tools, at once", tools=[WEATHER], stream=False),
    chat("A chat with a form", stream=False, format=AGE, options={"temperature": 0}),
    chat("A chat, answered as JSON", stream=False, format="json"),
    chat("A chat of several turns", messages=[*ASKS, {"role": "assistant", "content": "Rayleigh."}, *ASKS]),
    chat("A chat with the result of a tool", messages=called({"role": "tool", "content": "11", "tool_name": "get_weather"}),
         tools=[WEATHER], stream=False),
    chat("A chat with the result of a numbered call",
         messages=called({"role": "tool", "content": "11", "tool_name": "get_weather"}, index=0), stream=False),
    chat("A chat with the result of a call by its id", ignores("messages.tool_call_id"),
         called({"role": "tool", "content": "11", "tool_call_id": "call_0"}), tools=[WEATHER], stream=False),
    chat("A chat with images", refuses("images"), [{**ASKS[0], "images": PICTURE}]),
    chat("A chat with a seed", options={"seed": 101, "temperature": 0}),
    chat("A chat with thinking", think=True, stream=False),
    chat("A chat with thinking, as a stream", think=True, stream=True),
    chat("A chat without thinking", think=False, stream=False),
    chat("A chat with a level of thinking", ignores("think"), think="low", stream=False),
    chat("How long the model stays loaded", ignores("keep_alive"), keep_alive="10m", stream=False),
    chat("The model is loaded by a chat", messages=[]),
    chat("The model is unloaded by a chat", ignores("keep_alive"), [], keep_alive=0),
    changes("A model is made of another", "/api/create", {"model": "mario", "from": "gpt", "system": "You are Mario."}),
    changes("A model is quantized", "/api/create", {"model": "gpt:q", "from": "gpt", "quantize": "q4_K_M"}),
    changes("A model is made of a GGUF file", "/api/create", {"model": "my", "files": {"a.gguf": "sha256:0"}}),
    changes("A model is made of Safetensors", "/api/create", {"model": "my", "files": {"model.safetensors": "sha256:0"}}),
    changes("A blob is sent", "/api/blobs/sha256:0", {}),
    changes("A model is copied", "/api/copy", {"source": "gpt", "destination": "backup"}),
    changes("A model is deleted", "DELETE /api/delete", {"model": "gpt"}),
    changes("A model is pulled", "/api/pull", {"model": "llama3.2"}),
    changes("A model is pushed", "/api/push", {"model": "me/gpt:latest"}),
    ("The models", "GET /api/tags", None, RUNS),
    ("What is known of a model", "/api/show", {"model": "gpt"}, RUNS),
    ("What is known of a model, in full", "/api/show", {"model": "gpt", "verbose": True}, ignores("verbose")),
    ("The models that are loaded", "GET /api/ps", None, RUNS),
    ("The version", "GET /api/version", None, RUNS),
    ("A vector", "/api/embed", {"model": "gpt", "input": "Why is the sky blue?"}, RUNS),
    ("Vectors", "/api/embed", {"model": "gpt", "input": ["Why is the sky blue?", "Why is the grass green?"]}, RUNS),
    ("Vectors of fewer values", "/api/embed", {"model": "gpt", "input": "a", "truncate": True, "dimensions": 8}, RUNS),
    ("A vector, by the older path", "/api/embeddings", {"model": "gpt", "prompt": "About llamas"}, RUNS),
    ("OpenAI's chat", "/v1/chat/completions", {"model": "gpt", "messages": ASKS}, RUNS),
    ("OpenAI's Responses", "/v1/responses", {"model": "gpt", "input": "A poem on blue"}, RUNS),
    ("Anthropic's messages", "/v1/messages", {"model": "gpt", "max_tokens": 20, "messages": ASKS}, RUNS),
]
