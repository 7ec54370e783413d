"""The examples in the README of llama.cpp's server that concern text, and the options it shows: see documented.py."""

from outcomes import RUNS, ignores, refuses

HELLO = [{"role": "system", "content": "You are an assistant."}, {"role": "user", "content": "Hello!"}]
NAMES = {"properties": {"name": {"type": "string"}, "date": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}}}
PICTURE = {"content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}]}


def complete(title, outcome=RUNS, prompt="Ten steps to a website:", **fields):
    return title, "/completion", {"prompt": prompt, "n_predict": 16, **fields}, outcome


def chat(title, outcome=RUNS, **fields):
    return title, "/v1/chat/completions", {"model": "gpt", "messages": HELLO, **fields}, outcome


def unserved(title, path, body=None):
    return title, path, body, refuses(path.split()[-1].split("?")[0], 501)


EXAMPLES = [
    ("Whether it serves", "GET /health", None, RUNS),
    ("Whether it serves, by the other path", "GET /v1/health", None, RUNS),
    complete("A completion"),
    complete("A completion as a stream", stream=True),
    complete("Token ids as a prompt", prompt=[12, 34, 56]),
    complete("Several prompts", prompt=["One", "Two"]),
    complete("Several prompts of token ids", prompt=[[12, 34], [56]]),
    complete("Texts and token ids in one prompt", refuses("prompt"), [12, 34, "a", 56]),
    complete("Prompts of texts and of token ids", RUNS, ["One", [12, 34, 56]]),
    complete("A prompt as an object", refuses("prompt"), {"prompt_string": "One"}),
    complete("Temperature, top_k, top_p, min_p, typical_p", temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, typical_p=0.9),
    complete("Penalties", ignores("repeat_last_n"), repeat_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1,
             repeat_last_n=64),
    complete("DRY", dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64,
             dry_sequence_breakers=["\n", ":", "\"", "*"]),
    complete("XTC", xtc_probability=0.5, xtc_threshold=0.1),
    complete("Mirostat", mirostat=2, mirostat_tau=5.0, mirostat_eta=0.1),
    complete("A temperature that changes", refuses("dynatemp_range"), dynatemp_range=0.5, dynatemp_exponent=1.0),
    complete("The order of samplers", ignores("samplers"), samplers=["dry", "top_k", "typ_p", "top_p", "min_p", "xtc",
                                                                     "temperature"]),
    complete("A seed", seed=42),
    complete("Stop strings", stop=["\n", "4."]),
    complete("No end of the text", ignore_eos=True),
    complete("A token that is more likely", logit_bias=[[43, 1.0]]),
    complete("A token that never comes", logit_bias=[[43, False]]),
    complete("Biases as OpenAI has them", logit_bias={"43": -1.0}),
    complete("A text that is less likely", refuses("logit_bias"), logit_bias=[["Hello, World!", -0.5]]),
    complete("Probabilities", n_probs=3),
    complete("Probabilities after sampling", refuses("post_sampling_probs"), n_probs=3, post_sampling_probs=True),
    complete("A grammar", grammar="root ::= \"yes\" | \"no\""),
    complete("A JSON schema", json_schema={"items": {"type": "string"}, "minItems": 1, "maxItems": 2}),
    complete("Any JSON", json_schema={}),
    complete("The tokens of the output", return_tokens=True),
    complete("Some fields of the reply", refuses("response_fields"),
             response_fields=["content", "generation_settings/n_predict"]),
    complete("Several outputs of a prompt", refuses("n_cmpl"), n_cmpl=2),
    complete("The indentation of lines", refuses("n_indent"), n_indent=4),
    complete("A bound on the time", refuses("t_max_predict_ms"), t_max_predict_ms=500),
    complete("Adapters", refuses("lora"), lora=[{"id": 0, "scale": 0.5}]),
    complete("What a prompt has in common with the last one", ignores("cache_prompt", "id_slot", "n_keep", "n_cache_reuse"),
             cache_prompt=True, id_slot=-1, n_keep=0, n_cache_reuse=256),
    complete("Times and progress", ignores("timings_per_token", "return_progress", "sse_ping_interval"), stream=True,
             timings_per_token=True, return_progress=True, sse_ping_interval=30),
    ("Tokens", "/tokenize", {"content": "Hello world!"}, RUNS),
    ("Tokens with those of the beginning", "/tokenize", {"content": "Hello world!", "add_special": True}, RUNS),
    ("Tokens with their texts", "/tokenize", {"content": "\u00e1", "with_pieces": True}, RUNS),
    ("Tokens of a text with special ones as text", "/tokenize", {"content": "Hello", "parse_special": False},
     refuses("parse_special")),
    ("The text of tokens", "/detokenize", {"tokens": [12, 34, 56]}, RUNS),
    ("The prompt of a chat", "/apply-template", {"messages": HELLO}, RUNS),
    ("A vector", "/embedding", {"content": "Hello"}, RUNS),
    ("A vector of another norm", "/embedding", {"content": "Hello", "embd_normalize": 1}, refuses("embd_normalize")),
    ("Vectors, not OpenAI's", "/embeddings", {"input": ["hello", "world"]}, RUNS),
    ("Ranks of documents", "/v1/rerank", {"model": "gpt", "query": "What is a panda?", "top_n": 3,
                                          "documents": ["hi", "it is a bear", "The giant panda is a bear of China."]}, RUNS),
    ("Ranks of documents, by llama.cpp's name", "/reranking", {"query": "panda?", "documents": ["hi", "a bear"]}, RUNS),
    ("What fills a gap", "/infill", {"input_prefix": "def gcd(a, b):\n", "input_suffix": "    return x\n", "prompt": "    ",
                                     "n_predict": 16}, RUNS),
    ("What fills a gap, with other files", "/infill", {
        "input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "a.py", "text": "x = 1\n"}],
        "n_predict": 16}, RUNS),
    ("What it does where a request says nothing", "GET /props", None, RUNS),
    ("Its properties are changed", "/props", {}, refuses("/props", 405)),
    ("Slots", "GET /slots", None, RUNS),
    ("Whether a slot is free", "GET /slots?fail_on_no_slot=1", None, RUNS),
    unserved("A slot's cache is saved", "/slots/0?action=save", {"filename": "a.bin"}),
    unserved("A slot's cache is restored", "/slots/0?action=restore", {"filename": "a.bin"}),
    unserved("A slot's cache is erased", "/slots/0?action=erase", {}),
    ("Metrics", "GET /metrics", None, RUNS),
    unserved("Adapters that are loaded", "GET /lora-adapters"),
    unserved("Scales of adapters", "/lora-adapters", [{"id": 0, "scale": 0.2}]),
    ("The model", "GET /v1/models", None, RUNS),
    ("The model, by the other path", "GET /models", None, RUNS),
    ("A completion as OpenAI has it", "/v1/completions", {"model": "gpt", "prompt": "The meaning of life is", "max_tokens": 8},
     RUNS),
    chat("A chat"),
    chat("A chat as JSON by a schema", response_format={"type": "json_object", "schema": {"type": "string", "minLength": 2}}),
    chat("A chat as JSON by a schema, by the other name", response_format={"type": "json_schema", "schema": NAMES}),
    chat("Variables of the template", chat_template_kwargs={"enable_thinking": False}),
    chat("No thinking", reasoning_effort="none"),
    chat("How thoughts are shown", ignores("reasoning_format"), reasoning_format="deepseek"),
    chat("A thought that can be ended", ignores("reasoning_control"), reasoning_control=True),
    chat("Tools", tools=[WEATHER], parallel_tool_calls=True),
    chat("Mirostat in a chat", mirostat=2),
    unserved("A thought is ended", "/v1/chat/completions/control", {"id": "chatcmpl-1", "action": "reasoning_end"}),
    ("The tokens of a chat", "/v1/chat/completions/input_tokens", {"messages": HELLO}, RUNS),
    ("A response", "/v1/responses", {"model": "gpt", "instructions": "You are an assistant.", "input": "Hello!"}, RUNS),
    ("A vector as OpenAI has it", "/v1/embeddings", {"model": "gpt", "input": "hello", "encoding_format": "float"}, RUNS),
    ("Vectors as OpenAI has them", "/v1/embeddings", {"model": "gpt", "input": ["hello", "world"]}, RUNS),
    ("A vector of an image", "/v1/embeddings", {"input": [PICTURE]}, refuses("input")),
    ("A message as Anthropic has it", "/v1/messages", {"model": "gpt", "max_tokens": 20, "system": "You are an assistant.",
                                                       "messages": HELLO[1:]}, RUNS),
    ("The tokens of a message", "/v1/messages/count_tokens", {"model": "gpt", "messages": HELLO[1:]}, RUNS),
    unserved("Questions to a decision model", "/v1/systemone", {"state": "a", "questions": {}}),
    unserved("A model is loaded", "/models/load", {"model": "gpt"}),
    unserved("A model is unloaded", "/models/unload", {"model": "gpt"}),
    unserved("Events of models", "GET /models/sse"),
    ("A model is downloaded", "/models", {"model": "gpt"}, refuses("/models", 405)),
    ("A model is deleted", "DELETE /models?model=gpt", None, refuses("/models", 405)),
]
