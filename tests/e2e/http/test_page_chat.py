"""The chat of the page at `/` in headless Chromium: thoughts, stored conversations, and the requests that are sent."""

import json
import sys

import pytest

from browser import Page, start_chromium
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from service import ROOT, Service

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_script_model  # noqa: E402

TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
THOUGHTS = "The user wants a *list*. </b><img src=x>"
ANSWER = "Two **things**:\n\n- one\n- two\n\n```c\nint x = 1 < 2;\n```"
SAYS = f"<think>\n{THOUGHTS}\n</think>\n\n{ANSWER}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chromium")


@pytest.fixture(scope="module")
def chromium(folder):
    d = start_chromium(folder)
    yield d
    d.quit()


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A model that always answers SAYS if it is greedy."""
    s = Service(make_script_model.make(tmp_path_factory.mktemp("model") / "script", SAYS, TEMPLATE))
    yield s
    s.stop()
    Service.used.remove(s)


class Chat(Page):
    def __init__(self, driver, service, **settings):
        super().__init__(driver, service.http, "chat")
        self.live()
        self.set(**settings)
        self.listen()

    def listen(self):
        """Record the bodies of requests in `sent`."""
        self.js("""window.sent = []; const real = window.fetch;
            window.fetch = (path, o) => { if (o && o.body) sent.push(JSON.parse(o.body)); return real(path, o); }""")

    def ask(self, text):
        n = len(self.all(".msg.model .note:not([hidden])"))
        self.say(text)
        self.until(lambda: len(self.all(".msg.model .note:not([hidden])")) > n and not self.js("return Boolean(chat.answer)"), "an answer")

    def done(self):
        self.until(lambda: not self.js("return Boolean(chat.answer)") and self.text(".msg.model .note"), "an answer")

    def sent(self):
        return self.js("return sent")

    def messages(self):
        return self.js("return chat.current.messages")

    def action(self, name, nth=-1):
        """Return the button of a message."""
        buttons = [b for b in self.all(".actions button") if b.text == name]
        self.js("arguments[0].scrollIntoView({block: 'center'})", buttons[nth])
        buttons[nth].click()


# ---- thoughts ----

def test_thoughts_are_shown_as_thoughts_and_not_sent_back(chromium, thinker):
    p = Chat(chromium, thinker, temperature="0")
    p.ask("What?")
    assert [m["content"] for m in p.messages()] == ["What?", ANSWER]
    assert p.messages()[1]["thoughts"] == THOUGHTS
    assert p.text(".msg.model .thoughts .md") == "The user wants a list. </b><img src=x>", "as text"
    assert "user wants" not in p.text(".msg.model .text")
    fold = p.one(".msg.model .thoughts")
    assert fold.get_attribute("open") is None and p.text(".msg.model summary") == "Thoughts"
    p.click(".msg.model summary")
    assert p.one(".msg.model .thoughts .md").is_displayed()
    p.ask("And?")
    first, second = p.sent()
    assert first["messages"] == [{"role": "user", "content": "What?"}]
    assert second["messages"] == [{"role": "user", "content": "What?"}, {"role": "assistant", "content": ANSWER},
                                  {"role": "user", "content": "And?"}]
    assert "max_tokens" not in first and "logprobs" not in first
    assert not p.complaints()


def test_thoughts_have_tokens_of_their_own(chromium, thinker):
    p = Chat(chromium, thinker, temperature="0", probs=True)
    p.ask("What?")
    assert p.sent()[0]["top_logprobs"] == 5
    assert p.text(".msg.model .thoughts .tokens") == THOUGHTS
    assert p.text(".msg.model .text .tokens").rstrip("■") == ANSWER
    covered = p.js("""const all = [...document.querySelectorAll('.msg.model .text .tok:not(.end)')];
        return all.map((e) => e.textContent).join('')""")
    assert covered == ANSWER, "every part of the answer is a token's"
    p.set(probs=False)
    assert p.text(".msg.model .text strong") == "things" and not p.all(".tok")
    p.set(probs=True)
    assert p.all(".msg.model .text .tok")
    assert not p.complaints()


def test_an_answer_that_was_stopped_in_its_thoughts_keeps_the_turns(chromium, thinker):
    p = Chat(chromium, thinker, temperature="0", max_tokens="6")
    p.ask("What?")
    m = p.messages()[1]
    assert m["thoughts"] and m["content"] == "" and "cut at 6 tokens" in m["note"]
    p.ask("And?")
    assert [m["role"] for m in p.sent()[1]["messages"]] == ["user", "assistant", "user"]
    assert len(p.messages()) == 4
    assert not p.complaints()


# ---- actions on messages ----

def test_an_answer_is_markdown_and_its_code_is_copied(chromium, thinker):
    p = Chat(chromium, thinker, temperature="0")
    p.ask("What?")
    assert [e.text for e in p.all(".msg.model .text li")] == ["one", "two"]
    assert p.text(".msg.model pre") == "int x = 1 < 2;"
    p.js("window.copied = []; navigator.clipboard.writeText = (t) => { copied.push(t); return Promise.resolve(); }")
    p.click(".code button")
    p.action("Copy")
    p.until(lambda: p.js("return copied") == ["int x = 1 < 2;", ANSWER], "two copies")
    assert p.text("#say") == "Copied"
    # There is no clipboard, as over plain HTTP from another machine.
    p.js("navigator.clipboard.writeText = () => Promise.reject(new Error()); document.execCommand = (c) => "
         "copied.push(c + ' ' + document.activeElement.value)")
    p.action("Copy", 0)
    p.until(lambda: p.js("return copied[2]") == "copy What?", "a copy")
    assert not p.complaints()


def test_an_answer_is_regenerated(chromium, service):
    p = Chat(chromium, service, seed="1", max_tokens="12")
    p.ask("Tell me a story.")
    p.ask("And then?")
    before = p.messages()
    p.set(seed="2")
    p.action("Regenerate")
    assert p.js("return document.activeElement.id") == "log", "not lost with the button"
    p.until(lambda: len(p.sent()) == 3 and not p.js("return Boolean(chat.answer)"), "another answer")
    assert p.sent()[2]["messages"] == p.sent()[1]["messages"]
    assert p.messages()[:3] == before[:3] and p.messages()[3]["content"] != before[3]["content"]
    assert sum(b.text == "Regenerate" for b in p.all(".actions button")) == 1, "of the last answer"
    # A failed retry leaves the previous answer.
    p.set(max_tokens="99999")
    before = p.messages()
    p.action("Regenerate")
    p.until(lambda: "max_tokens" in p.text(".msg.error .text"), "an error")
    assert p.messages() == before
    assert not p.complaints()


def test_a_message_is_edited_and_asked_again(chromium, service):
    p = Chat(chromium, service, seed="1", max_tokens="12")
    p.ask("Tell me a story.")
    p.ask("And then?")
    p.action("Edit", 0)
    area = p.one(".msg textarea")
    assert area.get_attribute("value") == "Tell me a story." and p.js("return document.activeElement === arguments[0]", area)
    p.set(shade=True)
    assert p.one(".msg textarea").is_displayed(), "settings leave it alone"
    area.send_keys(Keys.ESCAPE)
    assert not p.all(".msg textarea") and len(p.messages()) == 4
    p.action("Edit", 0)
    p.one(".msg textarea").send_keys(" Of a cat." + Keys.CONTROL + Keys.ENTER)
    p.until(lambda: len(p.sent()) == 3 and not p.js("return Boolean(chat.answer)"), "an answer")
    assert p.sent()[2]["messages"] == [{"role": "user", "content": "Tell me a story. Of a cat."}]
    assert len(p.messages()) == 2
    # The model's text can be edited too; this sends no request.
    p.action("Edit", 1)
    p.one(".msg.model textarea").clear()
    p.one(".msg.model textarea").send_keys("There was a dog.")
    p.action("Save")
    assert p.messages()[1]["content"] == "There was a dog." and len(p.sent()) == 3
    p.ask("And then?")
    assert p.sent()[3]["messages"][1] == {"role": "assistant", "content": "There was a dog."}
    assert not p.complaints()


def test_stop_ends_the_job(chromium, service):
    p = Chat(chromium, service, max_tokens="1900", temperature="2", raw=True, probs=True)
    p.say("Once upon a time")
    p.until(lambda: p.all(".msg.model .tok"), "a token")
    p.js("document.getElementById('stop').click()")
    p.until(lambda: "tokens" in p.text(".msg.model .note"), "an end")
    assert service.idle()["running"] == 0
    assert p.one("#send").is_enabled() and not p.one("#stop").is_displayed()
    # Escape has the same effect.
    p.say("Once upon a time")
    p.until(lambda: len(p.all(".msg.model")) == 2 and p.all(".msg.model:last-child .tok"), "a token")
    p.one("#prompt").send_keys(Keys.ESCAPE)
    p.until(lambda: not p.js("return Boolean(chat.answer)"), "an end")
    assert service.idle()["running"] == 0
    assert not p.complaints()


def test_an_answer_goes_on_while_another_conversation_is_shown(chromium, service):
    """The test feeds the stream, so that the result does not depend on the model's speed."""
    p = Chat(chromium, service)
    p.js("""const real = window.fetch;
        window.fetch = (path, o) => path.startsWith('/v1/')
          ? Promise.resolve(new Response(new ReadableStream({ start(c) { window.stream = c; } }))) : real(path, o);
        window.feed = (delta, finish) => stream.enqueue(new TextEncoder().encode(
          'data: ' + JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish || null }] }) + '\\n\\n'));""")
    p.say("First")
    p.js("feed({ reasoning_content: 'Hm.' })")
    p.until(lambda: p.text(".msg.model summary") == "Thinking …", "thoughts")
    assert p.one(".msg.model .thoughts .md").is_displayed() and p.one(".msg.model").get_attribute("aria-busy") == "true"
    assert not p.one("#send").is_enabled() and p.one("#stop").is_displayed()
    p.js("feed({ content: 'One **' })")
    p.until(lambda: p.text(".msg.model .text") == "One **", "a beginning")
    assert p.text(".msg.model summary") == "Thoughts" and not p.one(".msg.model .thoughts .md").is_displayed()
    p.click("#new")
    assert not p.all(".msg")
    p.js("feed({ content: 'two** thr' })")
    p.until(lambda: p.js("return chat.answer.message.content") == "One **two** thr", "more of it")
    assert not p.all(".msg")
    p.click("#chats li button")
    assert p.text(".msg.model .text strong") == "two"
    p.js("feed({ content: 'ee' }, 'stop'); stream.close()")
    p.done()
    assert p.text(".msg.model .text") == "One two three" and len(p.messages()) == 2
    assert not p.complaints()


def test_errors_are_shown(chromium, service):
    p = Chat(chromium, service, max_tokens="99999")
    p.say("Hello")
    p.until(lambda: "max_tokens" in p.text(".msg.error .text"), "an error")
    assert p.one(".msg.error").get_attribute("role") == "alert"
    assert p.one("#prompt").get_attribute("value") == "Hello", "to be sent again"
    assert not p.all(".msg.model") and not p.messages() and not p.all("#chats li")


# ---- settings ----

def test_the_same_seed_gives_the_same_answer_and_settings_are_sent(chromium, service):
    p = Chat(chromium, service, max_tokens="7", seed="42", temperature="1.5", top_k="50", raw=True)
    for _ in (1, 2):
        p.ask("Once upon a time")
    texts = [e.text for e in p.all(".msg.model .text")]
    assert texts[0] == texts[1]
    assert "7 tokens" in p.text(".msg.model .note") and "cut at 7 tokens, the longest answer allowed" in p.text(".msg.model .note")
    body = p.sent()[1]
    assert (body["prompt"], body["seed"], body["temperature"], body["top_k"]) == ("Once upon a time", 42, 1.5, 50)
    p.set(max_tokens="")
    p.ask("Once upon a time")
    assert 16 < p.sent()[2]["max_tokens"] <= 512, "a text that is continued has a limit of its own"
    # The settings are kept for the next visit.
    p.reload("chat")
    p.live()
    assert p.js("return ['seed', 'top_k', 'raw'].map((x) => $(x)[x === 'raw' ? 'checked' : 'value'])") == ["42", "50", True]
    assert not p.complaints()


def test_the_system_prompt_is_of_a_conversation(chromium, service):
    p = Chat(chromium, service, max_tokens="5")
    p.set(system="Be brief.")
    p.ask("Hello")
    assert p.sent()[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    p.click("#new")
    p.set(system="")
    p.ask("Hello")
    assert [m["role"] for m in p.sent()[1]["messages"]] == ["user"]
    p.js("document.querySelectorAll('#chats .open')[1].click()")
    assert p.one("#system").get_attribute("value") == "Be brief."
    assert not p.complaints()


def test_tokens_have_alternatives(chromium, service):
    p = Chat(chromium, service, probs=True)
    p.ask("Tell me a story about a dog.")
    tokens = p.all(".msg.model .tok:not(.end)")
    assert len(tokens) > 10
    shown = p.js("return [...document.querySelectorAll('.msg.model .tok:not(.end)')].map(e => e.textContent).join('')")
    assert shown == p.messages()[1]["content"], "the tokens are the text"
    p.js("arguments[0].scrollIntoView({block: 'center'})", tokens[5])
    ActionChains(chromium).move_to_element(tokens[5]).perform()
    p.until(lambda: p.one("#tip").is_displayed(), "probabilities")
    lines = p.all("#tip .line")
    assert len(lines) >= 5
    percents = [float(x.text.split()[-2]) for x in lines[:5]]
    assert percents == sorted(percents, reverse=True) and 0 < sum(percents) <= 100.1
    assert len(p.all("#tip .line.chosen")) == 1
    # The keyboard has the same effect.
    p.js("document.querySelector('.msg.model .tokens[tabindex]').focus()")
    ActionChains(chromium).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    p.until(lambda: p.one(".tok.on").text.strip() == tokens[p.js(
        "return [...document.querySelectorAll('.tok')].indexOf(document.querySelector('.tok.on'))")].text.strip(), "a step")
    ActionChains(chromium).send_keys(Keys.ESCAPE).perform()
    p.until(lambda: not p.one("#tip").is_displayed(), "no probabilities")
    assert not p.complaints()


def test_speed_is_by_the_services_clock(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    p.ask("Hello")
    assert p.js("return sent[0].return_timing") is True and "tok/s" in p.text(".msg.model .note")
    # The whole answer may arrive at once: ten tokens in the second after the first token, whenever they were read.
    note = "return noteOf(11, %s, 5, null, 'stop', {})"
    assert p.js(note % "{queued_us: 0, first_token_us: 2e6, total_us: 3e6}") == "11 tokens, 10 tok/s, first after 2.00 s"
    assert p.js(note % "null") == "11 tokens, first after 5.00 ms", "an answer that was stopped has no times"


def test_a_sample_is_asked(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    first = p.one("#samples button")
    text = first.text
    first.click()
    p.until(lambda: p.all(".msg.model .note:not([hidden])"), "an answer")
    assert p.js("return sent[0].messages") == [{"role": "user", "content": text}]
    p.set(raw=True)
    p.click("#new")
    assert p.text("#hello-text") == "Begin a text." and "Once upon a time" in [b.text for b in p.all("#samples button")]


def test_lines_have_about_75_characters(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    p.ask("Hello")
    p.js("const m = chat.current.messages[1]; m.content = 'The small dog ran over the hill to see what was there. '.repeat(40); paint(m)")
    height, line = p.js("""const t = document.querySelector('.msg.model .text'), s = getComputedStyle(t);
        return [t.getBoundingClientRect().height, parseFloat(s.lineHeight)]""")
    assert 60 <= 40 * 55 / round(height / line) <= 85


# ---- conversations ----

def test_conversations_are_kept_switched_and_deleted(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    p.ask("First question")
    p.click("#new")
    assert not p.all(".msg") and p.one("#hello").is_displayed()
    p.ask("<b>Second</b> question")
    kept = [(m["role"], m["content"]) for m in p.messages()]
    titles = lambda: [e.text for e in p.all("#chats .open")]   # noqa: E731
    assert titles() == ["<b>Second</b> question", "First question"]
    p.reload("chat")
    p.live()
    assert titles() == ["<b>Second</b> question", "First question"]
    assert [(m["role"], m["content"]) for m in p.messages()] == kept
    assert len(p.all(".msg")) == 2 and p.one("#chats [aria-current]").text == "<b>Second</b> question"
    p.all("#chats .open")[1].click()
    assert p.messages()[0]["content"] == "First question"
    p.all("#chats .drop")[1].click()
    chromium.switch_to.alert.accept()
    assert titles() == ["<b>Second</b> question"] and not p.messages()
    # The conversation is not kept: nothing is left in the browser.
    p.click("#keep")
    names = "return Object.keys(localStorage).filter((n) => n.startsWith('quern.chat.')).length"
    assert p.js(names) == 0
    p.click("#keep")
    assert p.js(names) == 1
    p.click("#forget")
    chromium.switch_to.alert.accept()
    assert p.js(names) == 0 and not titles()
    assert not p.complaints()


def test_what_is_kept_is_bounded(chromium, service):
    p = Chat(chromium, service)
    p.js("""for (let i = 0; i < 60; i++) {
        const c = newChat(); c.updated = i; c.title = 't' + i; c.messages = [{role: 'user', content: 'x'}]; keepChat(c); }""")
    names = "return Object.keys(localStorage).filter((n) => n.startsWith('quern.chat.')).length"
    assert p.js(names) == 50 and p.js("return newestFirst().map((c) => c.updated)[49]") == 10
    p.js("""for (let i = 0; i < 5; i++) {
        const c = newChat(); c.updated = 100 + i; c.messages = [{role: 'user', content: 'x'.repeat(600000)}]; keepChat(c); }""")
    assert p.js("return Object.values(localStorage).reduce((n, v) => n + v.length, 0)") <= 2000000
    assert p.js("return newestFirst()[0].updated") == 104, "the newest is there"
    # A conversation that does not fit is not kept; damaged conversations are dropped.
    p.js("const c = newChat(); c.updated = 200; c.messages = [{role: 'user', content: 'x'.repeat(2100000)}]; keepChat(c)")
    assert p.text("#say") == "This conversation is too long to be kept in the browser"
    p.js("""localStorage.clear(); for (const [k, v] of [['a', '{'], ['b', 'null'], ['c', '{"messages": 7}'],
        ['d', '{"messages": [null, 5, {"role": "tool"}, {"role": "user", "content": {}}], "title": []}']])
        localStorage.setItem('quern.chat.' + k, v)""")
    p.reload("chat")
    p.live()
    assert p.js(names) == 1 and p.messages() == [{"role": "user", "content": "", "thoughts": "", "note": "", "raw": False}]
    assert not p.complaints()


def test_another_tab_is_seen(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    p.ask("Here")
    first = chromium.current_window_handle
    chromium.switch_to.new_window("tab")
    try:
        chromium.get(service.http + "/#/chat")
        p.live()
        p.click("#new")
        p.ask("There")
    finally:
        chromium.close()
        chromium.switch_to.window(first)
    p.until(lambda: [e.text for e in p.all("#chats .open")] == ["There", "Here"], "the other tab's conversation")
    assert p.messages()[0]["content"] == "Here"


def test_conversations_are_exported(chromium, thinker, folder):
    p = Chat(chromium, thinker, temperature="0")
    p.set(system="Be brief.")
    p.ask("What is <b>this</b>?")
    for kind in ("md", "json"):
        p.click("#export-" + kind)
    there = folder / "downloads"
    p.until(lambda: sorted(f.name for f in there.glob("what-is-*")) == ["what-is-b-this-b.json", "what-is-b-this-b.md"], "two files")
    got = json.loads((there / "what-is-b-this-b.json").read_text())
    assert got["model"] == "script" and got["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is <b>this</b>?"},
        {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHTS}]
    text = (there / "what-is-b-this-b.md").read_text()
    assert text == (f"# What is <b>this</b>?\n\n## System\n\nBe brief.\n\n## You\n\nWhat is <b>this</b>?\n\n"
                    f"## Model\n\n> {THOUGHTS}\n\n{ANSWER}\n")
    assert not p.complaints()


# ---- for keyboards and screen readers ----

def test_everything_has_a_name_and_can_be_reached(chromium, service):
    p = Chat(chromium, service, max_tokens="8")
    p.ask("Hello")
    nameless = p.js("""return [...document.querySelectorAll('button, input, textarea, select, a[href], summary')].filter((e) =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && [...e.labels].some((l) => l.textContent.trim()))))
        .map((e) => e.outerHTML)""")
    assert not nameless, nameless
    assert p.one("#log").get_attribute("role") == "log" and p.one("#say").get_attribute("aria-live") == "polite"
    assert p.one(".msg.model").get_attribute("aria-busy") == "false"
    assert p.text("#say").startswith("Answer complete: 8 tokens")
    # From the field, backwards: the settings, then the buttons of the last answer.
    p.one("#prompt").send_keys(Keys.SHIFT + Keys.TAB)
    assert p.js("return document.activeElement.textContent") == "Settings"
    seen = []
    for _ in range(3):
        ActionChains(chromium).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
        seen.append(p.js("return document.activeElement.textContent"))
    assert seen == ["Regenerate", "Edit", "Copy"]


def test_the_side_opens_on_a_phone(chromium, service):
    from browser import size
    p = Chat(chromium, service, max_tokens="8")
    p.ask("Hello")
    size(chromium, 390, 844)
    assert not p.one("#side").is_displayed()
    p.click("#to-side")
    assert p.one("#side").is_displayed() and p.one("#to-side").get_attribute("aria-expanded") == "true"
    assert p.js("return document.activeElement.id") == "new"
    ActionChains(chromium).send_keys(Keys.ESCAPE).perform()
    assert not p.one("#side").is_displayed() and p.js("return document.activeElement.id") == "to-side"
    p.click("#to-side")
    p.one("#chats").find_element(By.CSS_SELECTOR, ".open").click()
    assert not p.one("#side").is_displayed()
