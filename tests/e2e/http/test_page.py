"""The page at `/` in headless Chromium: the state of a running service, the chat, and a restart of the controller.
Skipped, with the reason, if Chromium or its driver is missing."""

import json
import os
import shlex
import signal
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service import DEMO, eventually, marked

from browser import WAIT_S, Page, scheme, size, start_chromium
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    d = start_chromium(tmp_path_factory.mktemp("chromium"))
    yield d
    d.quit()


def background(http, **body):
    """Submit a job that runs for a while."""
    def run():
        r = urllib.request.Request(http + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(r, timeout=WAIT_S).read()
        except OSError:
            pass
    t = threading.Thread(target=run, daemon=True)
    t.start()
    return t


# ---- a real service ----

def test_it_shows_the_service(chromium, service):
    p = Page(chromium, service.http).live()
    p.until(lambda: p.text("#model") == "demo" and chromium.title == "demo · quern", "the model's name")
    p.until(lambda: p.text("#workers tr td:nth-child(2)") == "serving", "a worker")
    p.until(lambda: "Replica 1" in p.text("#replicas h3"), "a replica")
    assert "version" in p.text("#about")
    label = p.one("#replicas canvas").get_attribute("aria-label")
    assert label.startswith("Blocks of replica 1:") and "free of" in label
    drawn = p.until(lambda: p.js("""const c = document.querySelector('#replicas canvas');
        return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"""), "a map")
    assert drawn > 1
    assert not p.complaints()


MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_an_idle_service_says_what_to_do_next(chromium, start):
    s = start(DEMO)
    p = Page(chromium, s.http).live()
    p.until(lambda: p.text("#base-url"), "the base URL")
    assert p.one("#no-jobs").is_displayed() and p.text("#base-url") == s.http + "/v1"
    p.js("window.copied = []; navigator.clipboard.writeText = (t) => { copied.push(t); return Promise.resolve(); }")
    for b in p.all("#no-jobs button"):
        b.click()
    url, line = p.js("return copied")
    assert url == s.http + "/v1"
    # The shown command is valid shell.
    curl = shlex.split(line)
    assert curl[:2] == ["curl", s.http + "/v1/chat/completions"] and curl[2:5] == ["-H", "Content-Type: application/json", "-d"]
    request = urllib.request.Request(curl[1], curl[5].encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert json.load(reply)["choices"][0]["message"]["content"]
    p.until(lambda: p.all("#jobs tr"), "the job")
    assert not p.one("#no-jobs").is_displayed()


def test_a_running_job_is_shown_without_its_markup_and_cancelled(chromium, service):
    p = Page(chromium, service.http).live()
    thread = background(service.http, prompt="Once", max_tokens=2000, ignore_eos=True, n=64, user=MARKUP)
    p.until(lambda: "running" in p.text("#jobs tr:first-child td:nth-child(2)"), "a running job")
    assert p.text("#jobs tr:first-child td:nth-child(3)") == MARKUP, "as text"
    assert not p.all("#jobs img, #jobs script") and chromium.title == "demo · quern"
    p.until(lambda: "L" in p.js("return live.maps[Object.keys(live.maps)[0]].device") or
            p.js("return live.replicas[0].blocks[1]") > 0, "held blocks")
    # The job may end before the button is found: then there is nothing to cancel.
    p.js("document.querySelector('#jobs tr:first-child button').click()")
    p.until(lambda: not p.js("return live.jobs.running"), "an end of the job")
    thread.join(WAIT_S)
    assert service.idle()["running"] == 0
    assert p.text("#jobs tr:first-child td:nth-child(2)") in ("cancelled", "done")
    assert not p.complaints()


@pytest.mark.parametrize("width", [320, 390, 768, 1000, 1400, 1900])
@pytest.mark.parametrize("light", ["light", "dark"])
def test_nothing_overflows_or_overlaps(chromium, service, width, light):
    p = Page(chromium, service.http).live()
    p.until(lambda: p.text("#workers tr"), "workers")
    p.js("chat.current.messages.push({role: 'user', content: 'Hm '.repeat(200)}, {role: 'assistant', content: '`' + 'x'.repeat(999) + '`'}); drawLog()")
    size(chromium, width, 800)
    scheme(chromium, light)
    for side in ("service", "chat"):
        p.click("#to-" + side)
        assert p.js("return document.documentElement.scrollWidth <= innerWidth"), side
        sideways = p.js("""return [...document.querySelectorAll('.scroll, #log, #side, #chats')]
            .filter((e) => e.offsetWidth && e.scrollWidth > e.clientWidth).map((e) => e.className + e.id)""")
        assert not sideways, sideways
        overlapping = p.js("""
            const boxes = [...document.querySelectorAll('#numbers > div, .card, header > *, .msg, #compose, #side')].filter(e => e.offsetWidth);
            const out = [];
            for (const a of boxes) for (const b of boxes) {
              if (a === b || a.contains(b) || b.contains(a)) continue;
              const r = a.getBoundingClientRect(), s = b.getBoundingClientRect();
              const sticky = a.closest('header') || b.closest('header');
              if (!sticky !== !(a.closest('header') && b.closest('header'))) continue;
              if (r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1)
                out.push(a.id + a.className + ' / ' + b.id + b.className);
            }
            return out""")
        assert not overlapping, overlapping
        cut = p.js("""return [...document.querySelectorAll('#numbers dd, h2, h3, button')]
            .filter(e => e.offsetWidth && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)""")
        assert not cut, cut
    p.js("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    contrast = p.js("""
        const rgb = (c) => c.match(/[\\d.]+/g).slice(0, 3).map((x) => { x /= 255;
          return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
        const lum = (c) => { const [r, g, b] = rgb(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const back = (e) => { for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c) && c !== 'transparent') return c; } return 'rgb(255,255,255)'; };
        return [...document.querySelectorAll('h1, h2, h3, dt, dd, small, td, th, p, li, label, .muted, button, a, .speaker, summary, .key span, .facts span, b')]
          .filter((e) => e.offsetWidth && e.textContent.trim())
          .map((e) => { const a = lum(getComputedStyle(e).color), b = lum(back(e));
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + ' ' + e.textContent]; })
          .filter((x) => x[0] < 4.5)""")
    assert not contrast, contrast
    dark = p.js("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, dark[4:-1].split(","))) < 200) == (light == "dark")
    assert not p.complaints()


# ---- the controller goes and comes back ----

def test_it_outlives_the_controller(chromium, start):
    s = start()
    p = Page(chromium, s.http).live()
    first = p.js("return live.service.instance")
    controller = next(pid for pid, name in marked(s.mark).items() if name.startswith("quern-controll"))
    os.kill(controller, signal.SIGKILL)
    p.until(lambda: "connection lost" in p.text("#pill") or p.js("return live.service.instance") != first, "a lost connection")
    p.until(lambda: p.js("return live.service.instance") != first and p.text("#pill").startswith("live"), "a new controller")
    p.click("#to-chat")
    p.say("Tell me a story.")
    p.until(lambda: "tokens" in p.text(".msg.model .note"), "an answer of the new one")
    assert not p.complaints()


def test_it_shows_that_the_service_is_gone(chromium, start):
    s = start()
    p = Page(chromium, s.http).live()
    s.end()
    p.until(lambda: p.text("#pill") == "connection lost, retrying", "the loss")
    assert p.one("#pill").get_attribute("role") == "status"
    p.click("#to-chat")
    p.say("Hello?")
    p.until(lambda: "cannot be reached" in p.text(".msg.error .text"), "an error")


# ---- keys ----

def test_a_key_is_requested_and_jobs_of_others_are_not_shown(chromium, start, tmp_path):
    alice, bob = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef"
    file = tmp_path / "keys"
    file.write_text(f"{alice} name=alice\n{bob} name=bob\n")
    file.chmod(0o600)
    s = start(DEMO, "--api-key-file", file)
    p = Page(chromium, s.http)
    p.until(lambda: p.one("#key-dialog").is_displayed(), "the question")
    p.one("#key").send_keys("wrong-key-0123456789" + Keys.ENTER)
    p.until(lambda: p.one("#key-dialog").is_displayed() and not p.one("#key").get_attribute("value"), "the question again")
    p.one("#key").send_keys(alice + Keys.ENTER)
    p.live()
    p.click("#to-chat")
    p.say("Tell me a story.")
    p.until(lambda: "tokens" in p.text(".msg.model .note"), "an answer")
    assert p.js("return [sessionStorage.getItem('quern.key'), document.cookie]") == [alice, ""]
    assert alice not in p.js("return JSON.stringify(localStorage)"), "the key is not kept longer than the tab"
    p.until(lambda: p.text("#jobs tr td:nth-child(3)") == "alice", "one's own job")
    job = p.js("return live.jobs.rows[0].job")
    p.until(lambda: p.text("#jobs-count") == "0 in progress, 1 finished", "one's own counts")
    p.click("#key-button")
    p.one("#key").send_keys(bob + Keys.ENTER)
    p.until(lambda: p.js("return live.online && live.jobs.rows.length") == 0, "another's job is not named")
    assert p.js("return sessionStorage.getItem('quern.key')") == bob
    p.until(lambda: p.text("#jobs-count") == "0 in progress, 0 finished", "nor counted")
    status = p.js("""return fetch('/api/cancel', {method: 'POST', headers: headers({'Content-Type': 'application/json'}),
        body: JSON.stringify({job: arguments[0]})}).then((r) => r.status)""", job)
    assert status == 404, "nor can it be cancelled"
    p.click("#key-button")
    p.click("#key-forget")
    p.until(lambda: p.one("#key-dialog").is_displayed(), "the question, once more")
    p.click("#key-cancel")
    p.until(lambda: p.text("#pill") == "an API key is needed", "no further question")
    assert not p.one("#key-dialog").is_displayed() and p.one("#key-button").is_displayed()


# ---- many workers, simulated by a fake server ----

N_WORKERS = 100


class Crowd(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path != "/api/live":
            html, policy = self.server.page
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", policy)
            self.send_header("Content-Length", str(len(html)))
            self.end_headers()
            self.wfile.write(html)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        try:
            for i in range(1, 1000):
                self.wfile.write(b"data: " + json.dumps(crowd(i)).encode() + b"\n\n")
                self.wfile.flush()
                if self.server.enough.wait(0.2):
                    break
            self.server.over.wait()  # a stream that ended would be opened again
        except OSError:
            pass


def crowd(i):
    """Return frame i, in which every field that can change has changed."""
    now = 1700000000000 + i * 1000
    frame = {
        "replicas": [{"id": k, "state": "serving", "tp": 1, "workers": [k], "numerics": "x", "max_context": 4096,
                      "running": (k * i) % 7, "waiting": i % 3, "swapped": 0, "queued_tokens": 0,
                      "blocks": [4000, (i * 37 + k) % 2000, 500], "host_blocks": [4000, 0], "preemptions": 0,
                      "prefix_queries": 100, "prefix_hits": i % 100, "prompt_tps": 1.5, "decode_tps": i * 1.25,
                      "step_us": 1234.5} for k in range(1, N_WORKERS + 1)],
        "jobs": {"queued": 5, "running": 95, "finished": i,
                 "rows": [{"job": f"{k:032x}", "state": "running", "n": 1, "prompt_tokens": 5, "completion_tokens": i,
                           "max_tokens": 1000, "seed": 1, "listeners": 1, "age_ms": i * 1000, "keep": False,
                           "cancelled": False, "user": MARKUP} for k in range(i, i + 100)]},
        "steps": [[k, i * 100, 900 + k] for k in range(1, N_WORKERS + 1)],
        "maps": {str(k): ["".join(chr(46 + (i + k + c) % 45) for c in range(163)), "." * 163]
                 for k in range(1, N_WORKERS + 1)},
    }
    point = [now, 1000 + i, 2000.5, 95, 5, 0, 0.4, 0.1, 12.5, 80.0, 8.25, 20.0]
    if i == 1:
        frame["history"] = [[now - 1000 * k] + point[1:] for k in range(299, -1, -1)]
        frame["service"] = {"instance": "x", "version": "0", "model": MARKUP, "started": 1700000000, "ready": True,
                            "chat": True, "max_context": 4096, "model_context": 4096, "block_size": 16}
        frame["workers"] = [{"id": k, "replica": k, "rank": 0, "state": "serving", "progress": 1, "host": MARKUP,
                             "pid": k, "device": "cuda:0", "device_name": MARKUP, "isa": "sm_90", "weights_bytes": 1 << 33,
                             "kv_bytes": 1 << 36, "threads": 1} for k in range(1, N_WORKERS + 1)]
    else:
        frame["now"] = point
    return frame


def test_a_hundred_workers(chromium, service):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Crowd)
    with urllib.request.urlopen(service.http) as r:
        server.page = r.read(), r.headers["Content-Security-Policy"]
    server.daemon_threads = True
    server.enough, server.over = threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        p = Page(chromium, f"http://127.0.0.1:{server.server_address[1]}").live()
        p.until(lambda: int(p.js("return document.body.dataset.draws || 0")) >= 4, "frames")
        server.enough.set()  # on a busy machine a page that draws all the time answers nothing else
        assert p.js("return document.querySelectorAll('#workers tr').length") == N_WORKERS
        assert p.js("return document.querySelectorAll('#replicas .replica').length") == N_WORKERS
        assert p.js("return document.querySelectorAll('#jobs tr').length") == 100
        assert p.text("#pill") == f"live, {N_WORKERS} of {N_WORKERS} replicas"
        # The service counts 100 jobs, whatever the engine reports for each.
        assert p.text("#jobs-count").startswith("100 in progress, ")
        assert p.text("#jobs tr:first-child td:nth-child(2)") == "running"
        # Names that contain markup are shown as text.
        assert p.text("#model") == MARKUP and p.js("return document.title") == MARKUP + " · quern"
        assert not p.all("main img, main script")
        print("milliseconds of a frame in which all has changed:", p.js("return document.body.dataset.drawMs"))
        for width in (360, 1400):
            size(chromium, width, 800)
            assert p.js("return document.documentElement.scrollWidth <= innerWidth"), width
            assert p.js("return document.querySelector('#jobs button').getBoundingClientRect().right <= innerWidth"), width
        assert not p.complaints()
        chromium.get("about:blank")
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


def test_states_of_jobs_agree_with_the_counts(chromium, service):
    """Sequences run and wait. An accepted job is in progress, and has a sequence for each output."""
    p = Page(chromium, service.http).live()
    row = {"n": 1, "completion_tokens": 0, "state": "queued", "cancelled": False}
    states = [{}, {"state": "running"}, {"state": "running", "completion_tokens": 1}, {"state": "running", "completion_tokens": 1, "n": 8},
              {"state": "done"}, {"state": "done", "cancelled": True}, {"state": "failed", "code": "E_DEADLINE", "n": 8}]
    assert p.js("return arguments[0].map(stateOf)", [{**row, **s} for s in states]) == [
        "queued", "waiting", "running", "running ×8", "done", "cancelled", "failed: E_DEADLINE"]
    p.until(lambda: "sequences" in p.text("#numbers"), "units")
    names = p.js("return [...document.querySelectorAll('#numbers dt')].map((e) => e.textContent)")
    assert p.js("return [...document.querySelectorAll('#meanings dt')].map((e) => e.textContent)") == names
    p.click(".hint summary")
    assert all(e.is_displayed() for e in p.all("#meanings dd"))


def test_a_page_that_is_left_holds_no_stream(chromium, service):
    """Browsers keep pages to return to them, and open at most six connections to a host."""
    p = Page(chromium, service.http).live()
    stream = "return live.abort.signal.aborted"
    assert not p.js(stream)
    p.js("window.was = live.abort.signal; dispatchEvent(new Event('pagehide'))")
    assert p.js("return was.aborted")
    p.until(lambda: p.text("#pill") == "live" and not p.js(stream), "another stream, when it is shown again")
