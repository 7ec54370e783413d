"""quern chat: a conversation on a terminal (a pseudo-terminal) and through a pipe."""

import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest

from service import DEMO, QUERN, ROOT, Service, demo_with, eventually
from terminal import Terminal

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

GREEDY = ("-t", "0", "-m", "60")
ENDLESS = ("-n", "64", "-m", "1500", "--ignore-eos")    # run for a while


def save(t, path):
    """Type /save and wait for the next prompt: text typed before the prompt may be lost."""
    t.type(f"/save {path}\r")
    eventually(path.exists)
    t.expect(">")


def answer_to(client, *texts, **params):
    """Return the service's answers to the messages of a conversation."""
    messages, answers = [], []
    for text in texts:
        messages.append({"role": "user", "content": text})
        answers.append(client.generate(messages=messages, **{"temperature": 0, "max_tokens": 60, **params}).text)
        messages.append({"role": "assistant", "content": answers[-1]})
    return answers


@pytest.fixture
def chat(service, tmp_path):
    """chat(*options) -> a Terminal at its first prompt."""
    opened = []

    def open_chat(*options, to=service.jobs, **env):
        t = Terminal("chat", "--to", to, *options, **{"HOME": str(tmp_path), "XDG_STATE_HOME": "", **env})
        opened.append(t)
        t.expect(">")
        return t
    yield open_chat
    for t in opened:
        t.process.kill()


def piped(service, text, *options):
    return subprocess.run([QUERN, "chat", "--to", service.jobs, *options], input=text, capture_output=True, text=True,
                          timeout=90)


# --- a pipe ---

def test_each_line_of_a_pipe_is_a_message(service, client):
    texts = ("Hello!", "What is 3 + 4?")
    r = piped(service, "".join(t + "\n" for t in texts), *GREEDY)
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == "".join(a + "\n" for a in answer_to(client, *texts))


def test_the_last_line_needs_no_newline_and_blank_lines_are_passed_over(service, client):
    r = piped(service, "\n  \nHello!", *GREEDY)
    assert (r.returncode, r.stdout) == (0, answer_to(client, "Hello!")[0] + "\n")


def test_messages_of_several_lines(service, client):
    (expected,) = answer_to(client, "Hello!\nHow are\nyou?")
    for text in ('"""Hello!\nHow are\nyou?"""\n', "Hello!\\\nHow are\\\nyou?\n"):
        r = piped(service, text, *GREEDY)
        assert (r.returncode, r.stdout, r.stderr) == (0, expected + "\n", "")


def test_two_slashes_begin_a_message_with_one(service, client):
    r = piped(service, "//Hello!\n", *GREEDY)
    assert (r.returncode, r.stdout) == (0, answer_to(client, "/Hello!")[0] + "\n")


def test_clear_forgets_and_retry_answers_again(service, client):
    hello, after = answer_to(client, "Hello!", "What is 3 + 4?")
    (alone,) = answer_to(client, "What is 3 + 4?")
    r = piped(service, "Hello!\nWhat is 3 + 4?\n/retry\n/clear\nWhat is 3 + 4?\n", *GREEDY)
    assert (r.returncode, r.stdout) == (0, f"{hello}\n{after}\n{after}\n{alone}\n")


def test_system_sets_the_system_message(service, client, tmp_path):
    saved = tmp_path / "saved"
    r = piped(service, f"/system Be kind.\n/system\nHello!\n/save {saved}\n/system \"\"\n/system\n", *GREEDY)
    assert r.returncode == 0, r.stderr
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}]
    answer = client.generate(messages=messages, temperature=0, max_tokens=60).text
    assert r.stdout == f"Be kind.\n{answer}\nno system message\n"
    assert json.loads(saved.read_text()) == [*messages, {"role": "assistant", "content": answer}]


def test_set_changes_sampling_and_shows_it(service, client):
    r = piped(service, "/set temperature 0\n/set max-tokens 5\n/set\nTell me a story.\n/unset max-tokens\n/set\n")
    (short,) = answer_to(client, "Tell me a story.", max_tokens=5)
    assert r.returncode == 0, r.stderr
    assert r.stdout == f"  max-tokens 5\n  temperature 0\n{short}\n  temperature 0\n"


def test_a_saved_conversation_is_loaded_and_continued(service, client, tmp_path):
    saved = tmp_path / "saved.json"
    first, second = answer_to(client, "Hello!", "What is your name?")
    assert piped(service, f"Hello!\n/save {saved}\n", *GREEDY).stdout == first + "\n"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    r = piped(service, f"/load {saved}\nWhat is your name?\n/save {saved}\n", *GREEDY)
    assert (r.returncode, r.stdout) == (0, second + "\n")
    assert [m["content"] for m in json.loads(saved.read_text())] == ["Hello!", first, "What is your name?", second]


def test_save_does_not_overwrite_another_file(service, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    r = piped(service, f"/save {other}\n")
    assert r.returncode == 1 and "choose another name" in r.stderr
    assert other.read_text() == "mine"


@pytest.mark.parametrize("line, word", [
    ("/hlep", "did you mean /help?"), ("/frobnicate", "/help lists them"), ("/set temprature 1", "did you mean temperature?"),
    ("/set temperature warm", "warm"), ("/set temperature", "needs a value"), ("/set to tcp://x", "unknown option to"),
    ("/unset nothing", "nothing"), ("/save", "file name"), ("/load /nonexistent", "/nonexistent"), ("/retry", "no answer"),
], ids=lambda x: x)
def test_a_wrong_command_is_named_and_the_rest_goes_on(service, client, line, word):
    r = piped(service, f"{line}\nHello!\n", *GREEDY)
    assert r.returncode == 1
    assert word in r.stderr
    assert r.stdout == answer_to(client, "Hello!")[0] + "\n"


def test_help_names_every_command(service):
    r = piped(service, "/help\n/quit\nHello!\n")
    assert r.returncode == 0
    for word in ("/help", "/system", "/clear", "/retry", "/set", "/unset", "/save", "/load", "/quit", "Ctrl-C", "Ctrl-D"):
        assert word in r.stdout


def test_a_refused_message_is_dropped_and_the_next_is_answered(service, client):
    r = piped(service, "/set temperature -1\nHello!\n/set temperature 0\nWhat is 3 + 4?\n", "-m", "60")
    assert r.returncode == 1
    assert "temperature" in r.stderr
    assert r.stdout == answer_to(client, "What is 3 + 4?")[0] + "\n"


def test_a_model_without_a_template_is_named(start, tmp_path):
    s = start(demo_with(tmp_path, template=None))
    r = piped(s, "Hello!\n")
    assert (r.returncode, r.stdout) == (1, "")
    assert "chat template" in r.stderr and "quern submit" in r.stderr


# --- a terminal ---

def test_a_conversation_on_a_terminal(chat, client):
    first, second = answer_to(client, "Hello!", "What is 3 + 4?")
    t = chat(*GREEDY)
    t.type("Hello!\r")
    t.expect(first)
    t.expect(">")
    t.type("What is 3 + 4?\r")
    t.expect(second)
    t.expect(">")
    t.type("\x04")
    assert t.end() == 0


def test_lines_are_edited(chat, client):
    (expected,) = answer_to(client, "What is 3 + 4?")
    t = chat(*GREEDY)
    t.type("hat is 3 + 5\x7f4?\x01W\x05\r")  # backspace; Ctrl-A, W; Ctrl-E
    t.expect(expected)
    t.expect(">")
    t.type("/quit\r")
    assert t.end() == 0


def test_umlauts_are_characters_whatever_the_locale(chat, tmp_path):
    saved = tmp_path / "saved"
    t = chat(*GREEDY, LC_ALL="C")
    t.type("Grüße, 東\x7f京!\r")    # one backspace removes one character
    t.expect(">")
    save(t, saved)
    t.type("\x04")
    assert t.end() == 0
    assert json.loads(saved.read_text())[0]["content"] == "Grüße, 京!"


def test_former_lines_come_back_also_in_the_next_chat(chat, client, tmp_path):
    (expected,) = answer_to(client, "Hello!")
    for keys in ("Hello!\r", "\x1b[A\r"):      # the second time: arrow up
        t = chat(*GREEDY)
        t.type(keys)
        t.expect(expected)
        t.expect(">")
        t.type("\x04")
        assert t.end() == 0
    history = tmp_path / ".local" / "state" / "quern" / "history"
    assert "Hello!" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700


def test_pasted_lines_are_one_message(chat, client, tmp_path):
    saved = tmp_path / "saved"
    (expected,) = answer_to(client, "Hello!\nWhat is 3 + 4?")
    t = chat(*GREEDY)
    t.type("\x1b[200~Hello!\rWhat is 3 + 4?\x1b[201~\r")
    t.expect(expected)
    t.expect(">")
    t.type("a\x1b\rb\r")       # Alt-Enter
    t.expect(">")
    save(t, saved)
    t.type("\x04")
    assert t.end() == 0
    assert [m["content"] for m in json.loads(saved.read_text())[::2]] == ["Hello!\nWhat is 3 + 4?", "a\nb"]


def test_ctrl_c_stops_the_answer_and_not_the_program(chat, service, client, tmp_path):
    saved = tmp_path / "saved"
    t = chat(*ENDLESS)
    for _ in range(2):
        t.type("Tell me a story.\r")
        eventually(lambda: service.status()["running"], what="a running answer")
        t.expect("a")
        t.type("\x03\x03\x03")
        service.idle()
        assert client.jobs()[0]["cancelled"]
        t.expect(">")
    save(t, saved)
    t.type("\x04")
    assert t.end() == 0
    # The text received before the interruption is part of the conversation.
    assert [m["role"] for m in json.loads(saved.read_text())] == ["user", "assistant"] * 2


def test_ctrl_c_at_the_prompt_drops_the_line(chat, client):
    (expected,) = answer_to(client, "Hello!")
    t = chat(*GREEDY)
    t.type("What is")
    t.expect("What is")
    t.type("\x03")
    t.expect(">")
    t.type("Hello!\r")
    t.expect(expected)
    t.expect(">")
    t.type("\x04")
    assert t.end() == 0


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_the_program_and_its_job(chat, service, sig):
    t = chat(*ENDLESS)
    t.type("Tell me a story.\r")
    eventually(lambda: service.status()["running"], what="a running answer")
    t.process.send_signal(sig)
    assert t.end() == 1
    service.idle()


def test_a_dumb_terminal_has_prompts_without_editing(chat, client):
    (expected,) = answer_to(client, "Hello!")
    t = chat(*GREEDY, TERM="dumb")
    t.type("Hello!\n")
    t.expect(expected)
    assert "\x1b" not in t.expect(">")
    t.type("\x04")
    assert t.end() == 0


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_ctrl_d_ends_a_message_of_several_lines_and_not_the_program(chat, client, kind):
    first, second = answer_to(client, "Hello!\n", "What is 3 + 4?")
    t = chat(*GREEDY, TERM=kind)
    t.type('"""Hello!\n')
    t.expect("...")
    t.type("\n\x04" if kind == "dumb" else "\n")
    t.expect("...")
    if kind != "dumb":
        t.type("\x04")
    t.expect(first)
    t.expect(">")
    t.type("What is 3 + 4?\n")
    t.expect(second)
    t.expect(">")
    t.type("\x04")
    assert t.end() == 0


def test_the_conversation_outlives_the_service(chat, tmp_path):
    jobs, saved = f"ipc://{tmp_path}/jobs", tmp_path / "saved"
    first = Service(DEMO, "--jobs", jobs)
    second = None
    try:
        t = chat(*GREEDY, to=jobs)
        t.type("Hello!\r")
        t.expect(">")
        first.stop()
        t.type("What is 3 + 4?\r")
        t.expect("quern: ")
        t.expect(">")
        second = Service(DEMO, "--jobs", jobs)
        t.type("\x1b[A\r")
        t.expect("7")
        t.expect(">")
        save(t, saved)
        t.type("\x04")
        assert t.end() == 0
        assert [m["content"] for m in json.loads(saved.read_text())[::2]] == ["Hello!", "What is 3 + 4?"]
    finally:
        for s in (first, second):
            if s:
                s.stop()
                Service.used.remove(s)


# --- thoughts ---

SAYS = "<think>\nHm, a greeting.\n</think>\n\nHello there."
TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()


@pytest.fixture(scope="module")
def thinker(tmp_path_factory, service):
    """A service with a model that answers SAYS."""
    with service.client() as c:
        newline = c.tokenize("a\n")[-1]
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", {newline: SAYS}, TEMPLATE))
    yield s
    s.stop()
    Service.used.remove(s)


def test_thoughts_are_dimmed_and_not_sent_back(chat, thinker, tmp_path):
    saved = tmp_path / "saved"
    t = chat("-t", "0", to=thinker.jobs)
    t.type("Hi\r")
    t.expect("Hi")
    shown = t.expect(">")
    plain = re.sub(r"\x1b\[2m(.*?)\x1b\[0m", "", shown, flags=re.S)
    assert "Hello there." in plain and "Hm, a greeting." not in plain and "think>" not in shown
    assert "".join(re.findall(r"\x1b\[2m(.*?)\x1b\[0m", shown, flags=re.S)).strip() == "Hm, a greeting."
    save(t, saved)
    t.type("\x04")
    assert t.end() == 0
    assert json.loads(saved.read_text())[1] == {"role": "assistant", "content": "Hello there."}


@pytest.mark.parametrize("says, mark", [
    ("[THINK]Hm, a greeting.[/THINK]Hello there.", "[/THINK]"),
    ("<|channel|>analysis<|message|>Hm, a greeting.<|end|><|start|>assistant<|channel|>final<|message|>Hello there.",
     "<|channel|>analysis<|message|>"),
], ids=["mistral", "harmony"])
def test_thoughts_are_dimmed_between_the_marks_of_the_model(chat, start, service, tmp_path, says, mark):
    with service.client() as c:
        newline = c.tokenize("a\n")[-1]
    template = "{# %s #}" % mark + TEMPLATE.replace("</think>", "")
    s = start(make_script_model.make(tmp_path / "script", {newline: says}, template))
    saved = tmp_path / "saved"
    t = chat("-t", "0", to=s.jobs)
    t.type("Hi\r")
    t.expect("Hi")
    shown = t.expect(">")
    assert "".join(re.findall(r"\x1b\[2m(.*?)\x1b\[0m", shown, flags=re.S)).strip() == "Hm, a greeting."
    save(t, saved)
    t.type("\x04")
    assert t.end() == 0
    assert json.loads(saved.read_text())[1]["content"] == "Hello there."


def test_without_colours_thoughts_are_as_generated(thinker, tmp_path):
    saved = tmp_path / "saved"
    r = piped(thinker, f"Hi\n/save {saved}\n", "-t", "0")
    assert (r.returncode, r.stdout) == (0, SAYS + "\n")
    assert json.loads(saved.read_text())[1]["content"] == "Hello there."


def test_a_text_cannot_control_the_terminal(chat, start, service, tmp_path):
    says = "one\x1b]0;title\x07two\x9b31mthree\ttabs\nlines"
    with service.client() as c:
        newline = c.tokenize("a\n")[-1]
    s = start(make_script_model.make(tmp_path / "script", {newline: says}, TEMPLATE))
    t = chat("-t", "0", to=s.jobs)
    t.type("Hi\r")
    t.expect("one]0;titletwo31mthree\ttabs\r\nlines\r\n")
    t.expect(">")
    t.type("\x04")
    assert t.end() == 0
    # A pipe receives the text unchanged.
    assert piped(s, "Hi\n", "-t", "0").stdout == says + "\n"
