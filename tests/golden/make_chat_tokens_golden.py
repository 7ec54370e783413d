#!/usr/bin/env python3
"""Writes tests/golden/chat_tokens.json: the ids of transformers' apply_chat_template.

    make_chat_tokens_golden.py DATA > tests/golden/chat_tokens.json

DATA holds tokenizers/.  Needs transformers (the file was made by 5.23).  requests: {name:
request}; models: {folder under DATA, or "demo": {name of a request: ids, or null if the template refuses}}."""
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers import PreTrainedTokenizerFast  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_chat_golden import CONVERSATIONS, fitted  # noqa: E402

DEMO = Path(__file__).resolve().parent.parent.parent / "models" / "demo"
MODELS = ["demo", "tokenizers/llama3", "tokenizers/minimind-6400", "tokenizers/mistral", "tokenizers/phi-3-mini",
          "tokenizers/qwen3"]
TOKENS = ["bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens"]
DATE = {"date_string": "26 Jul 2024"}  # Llama 3 says today's otherwise


def m(role, content, **more):
    return {"role": role, "content": content, **more}


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\" at a place,\nin a few words.", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "description": "A town: Z\u00fcrich"},
                                         "days": {"type": "integer", "default": 1}}, "required": ["place"]}}}
CALL = {"id": "call00001", "type": "function",
        "function": {"name": "weather", "arguments": {"place": "Z\u00fcrich", "days": 2}}}
CALLED = [m("user", "How is the weather?"), m("assistant", "", tool_calls=[CALL]),
          m("tool", "{\"sky\": \"blue\", \"n\": [1, 2.5]}", name="weather", tool_call_id="call00001")]

REQUESTS = {name: {"messages": messages} for name, messages in CONVERSATIONS.items() if name != "forged"}
REQUESTS.update({
    "world": {"messages": [m("user", "Gr\u00fc\u00dfe, \u4e16\u754c! \U0001f917 e\u0301 \u0939\u093f 12345 don't  x\n\n y \t z ")]},
    "code": {"messages": [m("user", "```c\nint main(void)\n{\n\treturn 0;\n}\n```"), m("assistant", "  ok\n"),
                          m("user", "\n<b>&amp;</b> {{ x }} {% y %}")]},
    "no_prompt": {"messages": [m("user", "Hi"), m("assistant", "Hello!")], "add_generation_prompt": False},
    "continued": {"messages": [m("user", "Hi"), m("assistant", "Hello, I am")], "continue_final_message": True},
    "tools": {"messages": [m("system", "Be brief."), m("user", "How is the weather?")], "tools": [TOOL]},
    "tool_calls": {"messages": CALLED, "tools": [TOOL]},
    "tool_calls_told": {"messages": CALLED + [m("assistant", "Blue."), m("user", "Thanks")], "tools": [TOOL]},
    "no_thinking": {"messages": [m("user", "Hi")], "chat_template_kwargs": {"enable_thinking": False}},
    "reasoning": {"messages": [m("user", "Hi"), m("assistant", "Hello!", reasoning_content="A greeting.")],
                  "add_generation_prompt": False},
    "many": {"messages": [m("user" if i % 2 == 0 else "assistant", f"Line {i}.\n" * (i % 3 + 1)) for i in range(21)]},
})


def load(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    path = folder / "tokenizer.json"
    text = path.read_bytes() if path.exists() else gzip.decompress((folder / "tokenizer.json.gz").read_bytes())
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(text)
        file.flush()
        special = {k: v["content"] if isinstance(v, dict) else v for k in TOKENS if (v := config.get(k)) is not None}
        # By the file, not by a class of transformers for this model.
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=file.name, **special)
    tokenizer.chat_template = config["chat_template"]
    return tokenizer


def ids(tokenizer, request):
    request = dict(request)
    more = request.pop("chat_template_kwargs", {})

    def render(messages):
        try:
            return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **DATE)
        except Exception:
            return None
    request["messages"] = fitted(render, request["messages"])
    request.setdefault("add_generation_prompt", not request.get("continue_final_message", False))
    try:
        out = tokenizer.apply_chat_template(request.pop("messages"), tokenize=True, return_dict=False, **request, **DATE,
                                            **more)
    except Exception:  # the template refuses, in Python's words
        return None
    return list(out)


def main():
    data = Path(sys.argv[1])
    models = {}
    for name in MODELS:
        tokenizer = load(DEMO if name == "demo" else data / name)
        models[name] = {title: ids(tokenizer, request) for title, request in REQUESTS.items()}
    print("{\"requests\": " + json.dumps(REQUESTS, ensure_ascii=False, indent=1) + ",\n\"models\": {")
    print(",\n".join(f" {json.dumps(name)}: {{\n" + ",\n".join(f"  {json.dumps(t)}: {json.dumps(v)}" for t, v in r.items())
                     + "}" for name, r in models.items()))
    print("}}")


if __name__ == "__main__":
    main()
