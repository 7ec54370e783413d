"""The HTTP reference lists exactly the routes of the service, and the page on peers describes the service's replies."""

import re
import subprocess
import sys
import urllib.request

import pytest

import pages
from service import QUERN, ROOT
from test_tables import codes, rows, section

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import api_routes  # noqa: E402

PEERS = (ROOT / "docs" / "COMING_FROM.md").read_text()


@pytest.fixture(scope="module")
def document(service):
    return pages.openapi(service.http)


def test_the_page_of_paths_is_the_services(document):
    """`tests/tools/api_routes.py ADDRESS` writes the page."""
    assert api_routes.PAGE.read_text() == api_routes.page(document)


def test_every_route_is_in_the_reference(document):
    source = (ROOT / "controller" / "endpoints" / "endpoints.c").read_text()
    table = source.split("http_route routes[]", 1)[1].split("\n};", 1)[0]
    routes = re.findall(r'\{"([^"]+)", "([A-Z, ]+)",([^{}]*)\}', table)
    assert len(routes) == table.count('{"'), "a route has another form"
    described, seen = document["paths"], set()
    for path, methods, flags in routes:
        of = [p for p in described if (p.startswith(path) and p != path if "ROUTE_PREFIX" in flags else p == path)]
        assert of, f"{path} is not in the reference"
        seen.update(of)
        served = {m for m in methods.split(", ") if m != "HEAD"}
        told = {m.upper() for p in of for m in described[p] if m != "head"}
        assert told == served, f"{path}: served {served}, described {told}"
    assert seen == set(described), f"described and not served: {set(described) - seen}"


PEER_ROWS = [(peer, words, here, how) for peer in ("vLLM", "llama.cpp's server", "SGLang")
             for there, here, how in rows(section(PEERS, peer)) for words in [codes(there)]]


def c_rows(path, start):
    """Return the rows of a table in C that begin with `start`, as {field: text}; the first string is "first"."""
    text = re.sub(r'"\s+"', "", (ROOT / path).read_text())
    for row in re.split(r"\n\t(?=" + re.escape(start) + ")", text)[1:]:
        first = re.match(re.escape(start) + r'\s*(?:\.\w+ =\s*)?"([^"]*)"', row).group(1)
        yield {"first": first, **dict(re.findall(r'\.(\w+) =\s*"([^"]*)"', row))}


OPTIONS = [r for r in c_rows("base/option_table.c", "OPT(") if "same" in r or "near" in r]
OTHERS = [(name, r) for r in c_rows("cli/foreign.c", "{") for name in r["first"].split()]
SERVE = {"--model", *pages.options("quern", "serve")}
SAME = {name: r["first"] for r in OPTIONS if f'--{r["first"]}' in SERVE for name in r.get("same", "").split()}
NEAR = {name for r in OPTIONS for name in r.get("near", "").split()}
WORDS = {name: r["values"].split() for name, r in OTHERS if r.get("values")}
FLAGS = {name for name, r in OTHERS if r.get("values") == ""}
SOME = {name: r["name"] for name, r in OTHERS if "name" in r}


def serve_says(*arguments):
    stderr = subprocess.run([QUERN, "serve", *arguments], capture_output=True, text=True, timeout=pages.RUN_S).stderr
    assert stderr, f"{arguments} have no message"
    return stderr


def said(name, here):
    """Return how `quern serve` treats an option: taken, some, noted, answered or unknown."""
    target = codes(here)[0].split()[0] if codes(here) else ""
    known = pages.options("quern", "serve")
    words = [w.split("=")[0].replace("*", "7") for w in WORDS.get(name, []) if w != "?"]
    flag = name in FLAGS or not words and target in known and not known[target] and name not in known
    value = [] if flag else words[:1] or ["1"]
    model = [] if target.startswith("MODEL") else ["no/such/model"]
    stderr = serve_says(*model, name, *(value if model else ["no/such/model"]))
    if f"unknown option {name}:" in stderr:
        return "answered"
    if f"without effect: {name}" in stderr:
        return "noted"
    if name in SOME and f'{name} is "nonsense": ' in serve_says("no/such/model", name, "nonsense"):
        return "some"
    return "unknown" if f"unknown option {name}" in stderr else "taken"


def test_options_of_peers_are_treated_as_the_page_says():
    wrong = [f"{name}: the page says {how}, and it is {is_}" for _, words, here, how in PEER_ROWS for name in words
             for is_ in [said(name, here)] if is_ != how]
    assert not wrong, "\n".join(wrong)


def test_options_that_the_peers_page_names_exist():
    known = pages.options("quern", "serve")
    named = [c for _, _, here, _ in PEER_ROWS for c in codes(here)]
    named += [c for r in rows(section(PEERS, "Ollama")) for cell in r[1:] for c in codes(cell)]
    bad = [c for c in named if c.startswith("--") and c.split()[0] not in known | {"--system": True}]
    bad += [c for c in named if re.fullmatch("QUERN_[A-Z_]+", c) and c != "QUERN_MODELS"
            and "--" + c.removeprefix("QUERN_").lower().replace("_", "-") not in known]
    assert not bad and len(named) > 80


def test_the_page_has_every_option_that_is_answered():
    names = set(SAME) | NEAR | {name for name, _ in OTHERS}
    assert len(names) > 250 and not names - {w for _, words, _, _ in PEER_ROWS for w in words}


def test_an_option_that_is_taken_is_the_one_that_the_page_names():
    same = {**SAME, **SOME}
    told = {w: codes(here)[0] for _, words, here, how in PEER_ROWS if how in ("taken", "some") for w in words if w in same}
    assert told == {w: "MODEL" if same[w] == "model" else f"--{same[w]}" for w in told} and set(told) == set(same)


def test_metrics_of_the_peers_page_are_served(service):
    with urllib.request.urlopen(f"{service.http}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    for there, _, here in rows(section(PEERS, "Metrics")):
        name = codes(here)[0]
        assert name.removeprefix("quern:") == codes(there)[0].removeprefix("vllm:")
        assert f"# TYPE {name} " in text, name
