"""Real chat templates rendered by quern's interpreter and by jinja2, set up as transformers does it (see
tests/golden/make_jinja_golden.py)."""

import copy
import json
import subprocess
import sys

import pytest
from service import BIN, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "golden"))
import make_jinja_golden as reference  # noqa: E402

CHAT = SHARED / "chat"
RENDER = BIN.parent / "tests" / "tools" / "render_jinja"
TEMPLATES = sorted([*CHAT.glob("llama.cpp-templates/*.jinja"), *CHAT.glob("chujiezheng-templates/*.jinja")])

pytestmark = pytest.mark.skipif(not TEMPLATES, reason="the templates of the test data are not there")


@pytest.fixture(scope="module")
def ours():
    """ours(template, context) -> (text, why)."""
    with subprocess.Popen([RENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        def render(template, context):
            job = {"template": template, "context": context, "now": reference.NOW, "input": ["messages", "tools"]}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            reply = json.loads(process.stdout.readline())
            return reply.get("text"), reply.get("error")
        yield render
        process.stdin.close()


def contexts():
    """Contexts of minja, those with tool calls also with arguments as objects, and contexts that clients send."""
    for path in sorted(CHAT.glob("minja-contexts/*.json")):
        context = json.loads(path.read_text(encoding="utf-8"))
        yield path.stem, context
        objects = copy.deepcopy(context)
        for message in objects["messages"]:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if objects != context:
            yield path.stem + ", arguments as objects", objects
    special = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}
    turns = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  \u00dcber 'quotes' & \"<b>\"\n"},
             {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes.", "reasoning_content": "hm"},
             {"role": "user", "content": "\U0001f917 and?"}]
    yield "turns", {**special, "messages": turns, "add_generation_prompt": True}
    yield "no generation prompt", {**special, "messages": turns[1:3], "add_generation_prompt": False}
    yield "thinking off", {**special, "messages": turns, "add_generation_prompt": True, "enable_thinking": False}
    yield "parts", {**special, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                                        {"type": "text", "text": "b"}]}],
                    "add_generation_prompt": True}
    tools = [{"type": "function", "function": {
        "name": "get", "description": "Gets \"it\".\nLong.", "parameters": {"type": "object", "properties": {
            "where": {"type": "string", "enum": ["a", "b"], "description": "Place"},
            "n": {"type": ["integer", "null"], "default": 3}, "deep": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "number"}}}}}, "required": ["where"]}}}]
    calls = [{"id": "call00001", "type": "function",
              "function": {"name": "get", "arguments": {"where": "a", "n": None, "deep": {"list": [1, 2.5]}}}}]
    called = [turns[1], {"role": "assistant", "content": "", "tool_calls": calls},
              {"role": "tool", "name": "get", "tool_call_id": "call00001", "content": "{\"x\": 1}"}]
    yield "tools", {**special, "tools": tools, "messages": turns[:2], "add_generation_prompt": True}
    yield "tool results", {**special, "tools": tools, "messages": called, "add_generation_prompt": True}
    yield "documents", {**special, "documents": [{"title": "T", "text": "D"}], "messages": turns[:2],
                        "add_generation_prompt": True}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_real_template_renders_as_jinja2_does(path, ours):
    template = path.read_text(encoding="utf-8")
    for name, context in contexts():
        expected, reason = reference.render(template, context)
        text, why = ours(template, context)
        assert text == expected, f"{name}: ours: {why}; jinja2: {reason}"


def test_templates_of_the_reference_file_render_as_jinja2_does(ours):
    for group in json.loads((CHAT / "hfjs-jinja-e2e.json").read_text(encoding="utf-8")).values():
        for name, case in group.items():
            for context in [case["data"], *(context for _, context in contexts())]:
                expected, reason = reference.render(case["chat_template"], context)
                text, why = ours(case["chat_template"], context)
                assert text == expected, f"{name}: ours: {why}; jinja2: {reason}"
