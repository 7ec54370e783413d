#!/usr/bin/env python3
"""page_pictures.py - take the pictures of the page in docs/ in headless Chromium.

    build/venv/bin/python tests/tools/page_pictures.py [OUT]

page.png, page-dark.png and page-phone-jobs.png show the demo model under load; page-chat.png, page-chat-dark.png and
page-phone.png show a chat with a model that generates one given answer (make_script_model.py), because the demo model
writes no Markdown.
"""
import json
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / d) for d in ("e2e", "e2e/http", "tools")]
import make_script_model  # noqa: E402
from browser import Page, scheme, size, start_chromium  # noqa: E402
from service import DEMO, Service  # noqa: E402

TEMPLATE = (ROOT / "tests" / "golden" / "chat_tools" / "chat_template.jinja").read_text()
ANSWER = """<think>
The question is about blocks. First what a block is, then why sharing them helps, with a small example.
</think>

A **block** holds the keys and values of 16 tokens. Sequences that begin alike *share* their blocks:

1. The first request computes its prompt and publishes full blocks.
2. Later ones look their prompt up, and compute only what is new.

```python
def blocks_of(tokens, size=16):
    return [tokens[i:i + size] for i in range(0, len(tokens), size)]
```

| prompt | found | computed |
|---|---:|---:|
| first | 0 | 640 |
| second | 624 | 16 |

> Nothing is shared between two cache salts. See [the paper](https://arxiv.org/abs/2309.06180).
"""


def load(http, seconds, n):
    """Run n streams of completions for a while."""
    end = time.time() + seconds

    def run(i):
        body = {"prompt": "Once upon a time there was a " + ["dog", "cat", "bird", "frog"][i % 4], "ignore_eos": True, "user": f"team-{i % 3}"}
        for k in range(1000):
            body.update(max_tokens=200 + 97 * ((i + k) % 7), seed=i + k, n=1 + (i + k) % 3)
            if time.time() > end:
                return
            r = urllib.request.Request(http + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(r, timeout=600).read()
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    return threads


def shoot(page, out, name):
    page.d.get_screenshot_as_file(str(out / name))
    print(name, (out / name).stat().st_size, "bytes")


def service_pictures(chromium, out):
    s = Service(DEMO, "--max-seqs", "24")
    try:
        threads = load(s.http, 80, 40)
        time.sleep(60)
        p = Page(chromium, s.http).live()
        p.until(lambda: p.all("#jobs tr"), "jobs")
        time.sleep(3)
        for name, light in (("page.png", "light"), ("page-dark.png", "dark")):
            scheme(chromium, light)
            time.sleep(2)
            shoot(p, out, name)
        size(chromium, 390, 844)
        scheme(chromium, "light")
        p.js("document.getElementById('h-jobs').scrollIntoView(); scrollBy(0, -70)")
        time.sleep(2)
        shoot(p, out, "page-phone-jobs.png")
        for t in threads:
            t.join()
    finally:
        chromium.get("about:blank")
        s.stop()


def chat_pictures(chromium, out):
    with tempfile.TemporaryDirectory() as folder:
        s = Service(make_script_model.make(Path(folder) / "script", ANSWER, TEMPLATE))
        try:
            p = Page(chromium, s.http, "chat").live()
            p.set(temperature="0")
            for text in ("How are answers cut into tokens?", "What is a prefix cache?"):
                p.click("#new")
                p.say(text)
                p.until(lambda: "tokens" in p.text(".msg.model .note"), "an answer")
            p.click(".msg.model summary")
            for name, light in (("page-chat.png", "light"), ("page-chat-dark.png", "dark")):
                scheme(chromium, light)
                time.sleep(0.5)
                shoot(p, out, name)
            size(chromium, 390, 844)
            scheme(chromium, "light")
            time.sleep(0.5)
            p.js("document.getElementById('log').scrollTop = 0")
            shoot(p, out, "page-phone.png")
        finally:
            chromium.get("about:blank")
            s.stop()


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        chromium = start_chromium(Path(folder))
        try:
            chat_pictures(chromium, out)
            service_pictures(chromium, out)
        finally:
            chromium.quit()


if __name__ == "__main__":
    main()
