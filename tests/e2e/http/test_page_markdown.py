"""Markdown on the page at `/`, rendered by the page itself in headless Chromium: its appearance, and that no text
becomes markup that loads, runs or leads elsewhere."""

import random
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from browser import Page, start_chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory, service):
    d = start_chromium(tmp_path_factory.mktemp("chromium"))
    yield Page(d, service.http, "chat").live()
    d.quit()


# Elements as [name, child...], text as strings; b: strong, i: em, links as ["a", address, child...].
READ = """
    const read = (e) => e.nodeType === 3 ? e.data : [{STRONG: 'b', EM: 'i'}[e.tagName] || e.tagName.toLowerCase(),
        ...(e.tagName === 'A' ? [e.getAttribute('href')] : []), ...[...e.childNodes].map(read)];
"""


def render(page, text):
    got = page.js(READ + """
        const e = document.createElement('div');
        new Markdown(e).show(arguments[0]);
        e.querySelectorAll('.code-head').forEach((h) => h.remove());
        e.normalize();
        return [...e.childNodes].map(read)""", text)
    return [unwrapped(n) for n in got]


def unwrapped(node):
    """Return code as ["pre", text], and a table without the box around it."""
    if isinstance(node, str):
        return node
    if node[0] == "div" and node[1][0] == "pre":
        return ["pre", *node[1][1][1:]]
    if node[0] == "div" and node[1][0] == "table":
        return node[1]
    return [node[0], *map(unwrapped, node[1:])]


P = "p"
CASES = [
    ("plain", [[P, "plain"]]),
    ("one\ntwo\n\nthree", [[P, "one", ["br"], "two"], [P, "three"]]),
    ("*a* **b** ***c*** ~~d~~", [[P, ["i", "a"], " ", ["b", "b"], " ", ["i", ["b", "c"]], " ", ["del", "d"]]]),
    ("_a_ __b__ snake_case_name 2*3*4", [[P, ["i", "a"], " ", ["b", "b"], " snake_case_name 2", ["i", "3"], "4"]]),
    ("**bold with *both* inside**", [[P, ["b", "bold with ", ["i", "both"], " inside"]]]),
    ("a * b * c, ** d", [[P, "a * b * c, ** d"]]),
    ("*open **and never closed", [[P, "*open **and never closed"]]),
    ("**a*", [[P, "*", ["i", "a"]]]),
    (r"\*not\* \# \[x\](y) \\ \q", [[P, r"*not* # [x](y) \ \q"]]),
    ("`code *with* <b>` and ``a ` b``", [[P, ["code", "code *with* <b>"], " and ", ["code", "a ` b"]]]),
    ("`never closed", [[P, "`never closed"]]),
    ("# One\n## Two ##\n####### seven\n#hash", [["h3", "One"], ["h4", "Two"], [P, "####### seven", ["br"], "#hash"]]),
    ("a\n\n---\n\n* * *", [[P, "a"], ["hr"], ["hr"]]),
    ("```c\nint *x = &y; // <b>\n\n\ttab\n```\nafter", [["pre", "int *x = &y; // <b>\n\n\ttab"], [P, "after"]]),
    ("~~~~\n```\n~~~\n~~~~", [["pre", "```\n~~~"]]),
    ("```\nnot over yet", [["pre", "not over yet"]]),
    ("- a\n- b\n  more\n- c", [["ul", ["li", "a"], ["li", "b", ["br"], "more"], ["li", "c"]]]),
    ("1. a\n2. b", [["ol", ["li", "a"], ["li", "b"]]]),
    ("- a\n\n- b", [["ul", ["li", [P, "a"]], ["li", [P, "b"]]]]),
    ("- a\n  - b\n    - c\n- d", [["ul", ["li", "a", ["ul", ["li", "b", ["ul", ["li", "c"]]]]], ["li", "d"]]]),
    ("1. a\n  - b\n2. c", [["ol", ["li", "a", ["ul", ["li", "b"]]], ["li", "c"]]]),
    ("1. a\n\n   ```\n   code\n     in\n   ```\n2. b", [["ol", ["li", "a", ["pre", "code\n  in"]], ["li", "b"]]]),
    ("- [ ] to do\n- [x] done", [["ul", ["li", "☐ to do"], ["li", "☑ done"]]]),
    ("text\n- item\n\nafter", [[P, "text"], ["ul", ["li", "item"]], [P, "after"]]),
    ("> a\n> > b\n\nc", [["blockquote", [P, "a"], ["blockquote", [P, "b"]]], [P, "c"]]),
    ("| a | b |\n|---|:-:|\n| 1 | `x\\|y` |\n| 2 |", [["table", ["thead", ["tr", ["th", "a"], ["th", "b"]]],
        ["tbody", ["tr", ["td", "1"], ["td", ["code", "x|y"]]], ["tr", ["td", "2"]]]]]),
    ("a | b", [[P, "a | b"]]),
    ("[t](https://a.b/c?d=1&e) x", [[P, ["a", "https://a.b/c?d=1&e", "t"], " x"]]),
    ('[*t*](<https://a.b/> "title")', [[P, ["a", "https://a.b/", ["i", "t"]]]]),
    ("see https://a.b/c_d_e(f), and <http://g.h/>.", [[P, "see ", ["a", "https://a.b/c_d_e(f)", "https://a.b/c_d_e(f)"], ", and ",
        ["a", "http://g.h/", "http://g.h/"], "."]]),
    ("**https://a.b/**", [[P, ["b", ["a", "https://a.b/", "https://a.b/"]]]]),
    ("![alt](https://a.b/c.png)", [[P, ["a", "https://a.b/c.png", "alt"]]]),
    ("[![alt](https://a.b/c.png)](https://d.e/)", [[P, ["a", "https://d.e/", "alt"]]]),
    ("[https://good.example/](https://evil.example/)", [[P, ["a", "https://evil.example/", "https://good.example/"]]]),
    ("[a [b](https://c.d/) e](https://f.g/)", [[P, "[a ", ["a", "https://c.d/", "b"], " e](", ["a", "https://f.g/", "https://f.g/"], ")"]]),
    ("[1] and [x]: y [ ]", [[P, "[1] and [x]: y [ ]"]]),
    ("&lt;b&gt; &amp;amp; &nbsp;&copy; &", [[P, "<b> &amp; \u00a0&copy; &"]]),
    ("<b>bold</b> <!-- c --> <br>", [[P, "<b>bold</b> <!-- c --> <br>"]]),
    ("", []),
    ("\n \n", []),
    ("a\r\nb\rc", [[P, "a", ["br"], "b", ["br"], "c"]]),
]


@pytest.mark.parametrize("text, expected", CASES, ids=[repr(t)[1:30] for t, _ in CASES])
def test_markdown_becomes_nodes(page, text, expected):
    assert render(page, text) == expected


def test_a_text_that_grows_looks_as_if_it_had_come_at_once(page):
    """Complete blocks keep their nodes, so that a selection stays."""
    text = "# A\n\npara *one*\n\n- a\n- b\n  1. c\n\n```c\nint x;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nlast `one`"
    same, kept = page.js("""
        const grown = document.createElement('div'), md = new Markdown(grown), text = arguments[0];
        let same = true, first = null, kept = true;
        for (let n = 1; n <= text.length; n++) {
          md.show(text.slice(0, n));
          const whole = document.createElement('div');
          new Markdown(whole).show(text.slice(0, n));
          same = same && grown.innerText === whole.innerText && grown.isEqualNode(whole);
          if (n === 8) first = grown.firstChild;
          if (n > 8) kept = kept && grown.firstChild === first;
        }
        return [same, kept]""", text)
    assert same and kept


# ---- attacks ----

ATTACKS = [
    "<script>owned()</script>", "<img src=x onerror=owned()>", "<svg onload=owned()>", "<svg><script>owned()</script></svg>",
    "<iframe src=javascript:owned()></iframe>", "<iframe srcdoc='<script>parent.owned()</script>'>", "<math><mtext><img src=x onerror=owned()>",
    "<style>*{background:url(BEACON)}</style>", "<link rel=stylesheet href=BEACON>", "<base href=BEACON>", "<meta http-equiv=refresh content='0;BEACON'>",
    "<form action=BEACON><button autofocus onfocus=owned()>", "<object data=BEACON>", "<embed src=BEACON>", "<video poster=BEACON>", "<audio src=BEACON>",
    "<details open ontoggle=owned()>", "<a href=javascript:owned()>x</a>", "<body onload=owned()>", "<template><img src=BEACON></template>",
    "[x](javascript:owned())", "[x](JaVaScRiPt:owned())", "[x](java\tscript:owned())", "[x](java\nscript:owned())", "[x](\x01javascript:owned())",
    "[x](javascript&colon;owned())", "[x](&#106;avascript:owned())", "[x](vbscript:owned())", "[x](data:text/html,<script>owned()</script>)",
    "[x](data:text/html;base64,PHNjcmlwdD5vd25lZCgpPC9zY3JpcHQ+)", "[x](file:///etc/passwd)", "[x](blob:null/1)", "[x](about:blank)", "[x](//evil.example/)",
    "[x](/api/cancel)", "[x](?a=b)", "[x](#/chat)", "[x](https:evil)", "[x](http://)", "[x](https://[)", "[x](https://a b/)", "[x](ftp://a.b/)",
    "[x](ws://a.b/)", "[x](https://a.b/\"onclick=owned())", "[x](https://a.b/ \"onclick=owned()\")", "[x](https://a.b/' onmouseover='owned()')",
    "<javascript:owned()>", "<JAVASCRIPT:owned()>", "<data:text/html,x>", "<https://a.b/\"onclick=\"owned()>", "https://a.b/\"onclick=\"owned()",
    "![x](BEACON)", "![x](javascript:owned())", "![x](data:image/svg+xml,<svg onload=owned()>)", "![](BEACON)", "[![x](BEACON)](javascript:owned())",
    "[x]: javascript:owned()\n\n[x]", "![x][y]\n\n[y]: BEACON", "`</code><img src=x onerror=owned()>`", "```\n</code></pre><script>owned()</script>\n```",
    "```\"><img src=x onerror=owned()>\nx\n```", "```<script>\nx\n```", "| <img src=x onerror=owned()> | b |\n|---|---|\n| <script>owned()</script> | [x](javascript:owned()) |",
    "# <img src=x onerror=owned()>", "> <img src=x onerror=owned()>", "- <img src=x onerror=owned()>", "**<img src=x onerror=owned()>**",
    "&lt;img src=x onerror=owned()&gt;", "&#60;script&#62;owned()&#60;/script&#62;", "\\<img src=x onerror=owned()\\>", "\u003cscript\u003eowned()\u003c/script\u003e",
    "<scr\u0000ipt>owned()</scr\u0000ipt>", "\ufeff<script>owned()</script>", "<img src=`x`onerror=owned()>", "[__proto__](https://a.b/)", "[constructor][toString]",
    "&constructor; &__proto__; &toString;", "```__proto__\nx\n```", "```constructor\nx\n```", "[a](https://a.b/)[b](javascript:owned())![c](BEACON)",
    "](javascript:owned())", "[[x]](javascript:owned())", "[x](<javascript:owned()>)", "[x](<https://a.b/\n>)", "[\u202egnp.exe](https://a.b/)",
    "{{constructor.constructor('owned()')()}}", "${owned()}", "@import 'BEACON'", "javascript:owned()", "<!--><img src=x onerror=owned()>-->",
    "<![CDATA[<img src=x onerror=owned()>]]>", "<?xml version='1.0'?><x onload=owned()/>", "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>owned()</x:script>",
]

# Elements and attributes that a text may produce; an attribute's value is fixed or checked below.
CHECK = """
    const may = {DIV: ['class', 'tabindex', 'role', 'aria-label'], P: ['class'], H3: [], H4: [], H5: [], H6: [], HR: [], BR: [], BLOCKQUOTE: [], UL: [], OL: ['start'], LI: [],
      TABLE: [], THEAD: [], TBODY: [], TR: [], TH: ['class'], TD: ['class'], PRE: ['tabindex'], CODE: [], SPAN: [], BUTTON: ['type', 'aria-label'],
      STRONG: [], EM: [], DEL: [], A: ['href', 'title', 'target', 'rel', 'referrerpolicy', 'class']};
    const classes = ['', 'code', 'code-head', 'scroll-x', 'right', 'center', 'image', 'as-is'];
    const wrongs = (e) => [...e.querySelectorAll('*')].flatMap((x) => {
      const out = [];
      if (!may[x.tagName] || x.namespaceURI !== 'http://www.w3.org/1999/xhtml') out.push('element ' + x.tagName);
      for (const a of x.attributes) if (!(may[x.tagName] || []).includes(a.name)) out.push(x.tagName + ' ' + a.name);
      if (!classes.includes(x.className)) out.push('class ' + x.className);
      if (x.tagName === 'A' && !(/^https?:$/.test(x.protocol) && x.href === x.title && x.target === '_blank' &&
          x.rel === 'noopener noreferrer nofollow' && x.referrerPolicy === 'no-referrer' && !x.querySelector('a'))) out.push('link ' + x.outerHTML);
      if (x.tagName === 'A' && x.origin === location.origin) out.push('link to the service ' + x.href);
      return out;
    });
"""


class Beacon(BaseHTTPRequestHandler):
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def beacon():
    server = HTTPServer(("127.0.0.1", 0), Beacon)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/beacon"
    server.shutdown()
    server.server_close()


def test_attacks_are_text(page, beacon):
    """Try each attack alone, after some text, in every block, and while the text grows, in the document, where it would
    load and run."""
    texts = [a.replace("BEACON", beacon) for a in ATTACKS]
    wrongs = page.js(CHECK + """
        window.owned = () => { window.isOwned = true; };
        window.refused = [];
        document.addEventListener('securitypolicyviolation', (e) => refused.push(e.blockedURI));
        const around = [(t) => t, (t) => 'text ' + t + ' text', (t) => '- ' + t, (t) => '> ' + t, (t) => '# ' + t, (t) => '**' + t + '**',
                        (t) => '| ' + t + ' |\\n|---|\\n| ' + t + ' |', (t) => '```\\n' + t + '\\n```', (t) => '[' + t + '](https://a.b/)'];
        const out = [], log = document.getElementById('log');
        for (const t of arguments[0]) for (const f of around) {
          const e = document.createElement('div');
          log.append(e);
          new Markdown(e).show(f(t));
          out.push(...wrongs(e).map((w) => w + ' of ' + f(t)));
          e.remove();
        }
        for (const t of arguments[0]) {
          const e = document.createElement('div'), md = new Markdown(e);
          log.append(e);
          for (let n = 1; n <= t.length; n++) { md.show(t.slice(0, n)); out.push(...wrongs(e).map((w) => w + ' of ' + t.slice(0, n))); }
        }
        return out""", texts)
    assert not wrongs, wrongs[:5]
    # Images and frames would have been requested by the time a later request is answered.
    page.js("return fetch('/health').then(() => new Promise((r) => setTimeout(r, 200)))")
    assert not Beacon.asked and not page.js("return window.isOwned || false")
    assert page.js("return refused") == [], "nor did the policy have to refuse anything"
    assert not page.complaints()


def test_made_up_texts_are_harmless_and_keep_their_words(page):
    """Chunks of Markdown and HTML in random order, from a seed."""
    pieces = ["*", "**", "_", "~~", "`", "```", "\n", "\n\n", "- ", "1. ", "> ", "# ", "|", "|---|", "[", "](", "https://a.b/", ")", "!", "<", ">", "&lt;",
              "\\", " ", "    ", "\t", "word", "javascript:x", "<img src=x onerror=owned()>", "é", "\u202e", "&", ";", "(", "<https://c.d>", "---", "[ ] "]
    rng = random.Random(7)
    texts = ["".join(rng.choice(pieces) for _ in range(rng.randrange(1, 60))) for _ in range(3000)]
    wrongs, words = page.js(CHECK + """
        const out = [], words = [];
        for (const t of arguments[0]) {
          const e = document.createElement('div');
          new Markdown(e).show(t);
          out.push(...wrongs(e).map((w) => w + ' of ' + t));
          words.push(e.textContent.split('word').length);
        }
        return [out, words]""", texts)
    assert not wrongs, wrongs[:5]
    for text, n in zip(texts, words):
        # A word in a fence's info or beyond a table's columns is not shown as text; no word appears twice.
        assert n <= len(text.split("word")) or "```" in text, repr(text)
        if not re.search(r"```|~~~|\||\(", text):
            assert n == len(text.split("word")), repr(text)


HOSTILE = {
    "emphasis": "*a " * 60000, "closers": "*a* " * 40000, "both": "*a_b" * 40000, "stars": "*" * 180000, "nested stars": "**a" * 50000 + "**" * 20000,
    "brackets": "[" * 180000, "links": "[](" * 60000, "closed": "[a" * 40000 + "](https://a.b/)" * 5000, "images": "![" * 90000, "quotes": ">" * 180000,
    "quote lines": "> " * 500 + "a\n" * 1000, "lists": "\n".join(" " * (i % 400) + "- a" for i in range(900)), "deep list": "- " * 90000,
    "ticks": "".join("`" * n + "a" for n in range(1, 600)), "one tick": "`a" * 90000, "fences": "```\n" * 45000, "table": "|a" * 40000 + "\n" + "|-" * 40000 + "\n" + "|\n" * 19900,
    "delimiter row": "a|b\n" + " " * 90000 + "-x", "addresses": "https://[" * 20000, "one address": "https://" + "a" * 190000, "ends": "https://a" + ")" * 1900 + " ",
    "blanks": " " * 190000 + "x", "rules": "- " * 500 + "x\n" * 10, "heads": "#" * 190000, "breaks": "a\n" * 95000, "entities": "&" * 190000, "escapes": "\\" * 190000,
    "headings": "#\n" * 90000, "spaces": "a" + " " * 100000 + "\n" + "b", "angles": "<https://a" * 19000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_bounded_work(page, name):
    """Depth and number of nodes are bounded; a quadratic renderer would exceed the test's time."""
    text = HOSTILE[name]
    assert len(text) <= 200000
    depth, nodes, wrongs = page.js(CHECK + """
        const e = document.createElement('div');
        new Markdown(e).show(arguments[0]);
        let depth = 0, nodes = 0;
        for (let stack = [[e, 0]]; stack.length;) {
          const [x, d] = stack.pop();
          nodes++;
          depth = Math.max(depth, d);
          for (let c = x.firstChild; c; c = c.nextSibling) stack.push([c, d + 1]);
        }
        return [depth, nodes, wrongs(e).slice(0, 3)]""", text)
    assert depth <= 80 and nodes <= 5 * len(text) and not wrongs


def test_a_very_long_text_is_shown_as_it_is(page):
    text = "**b** <b> " * 30000
    assert render(page, text) == [["p", text]]


def test_the_browser_parses_no_text_as_html(page):
    """The policy forbids everything that the page does not use."""
    refused = page.js("""const out = [], tries = [(e) => { e.innerHTML = '<b>x</b>'; }, (e) => e.insertAdjacentHTML('beforeend', 'x'),
          (e) => { e.outerHTML = 'x'; }, () => document.write('x'), () => new DOMParser().parseFromString('x', 'text/html'),
          () => setTimeout('x', 0), () => { document.createElement('iframe').srcdoc = 'x'; }];
        for (const t of tries) try { t(document.createElement('div')); out.push(false); } catch (e) { out.push(e instanceof TypeError || e instanceof EvalError); }
        return out""")
    assert refused == [True] * 7
    page.complaints()       # those of this test
    page.log.clear()


def test_nothing_is_looked_up_in_advance(page):
    """A browser looks up the host names of links on an http page, unless it is told not to."""
    assert page.js("return document.querySelector('meta[http-equiv=\"x-dns-prefetch-control\"]').content") == "off"
