"""The reference of HTTP has every route of the service, and no other; the peers' page says what the service does."""

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
    """`tests/tools/api_routes.py ADDRESS` writes it."""
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


def said(name, here):
    """taken, answered or unknown: what `quern serve` makes of an option."""
    target = codes(here)[0].split()[0] if codes(here) else ""
    known = pages.options("quern", "serve")
    value = [] if target in known and not known[target] and name not in known else ["1"]
    model = [] if target.startswith("MODEL") else ["no/such/model"]
    argv = [QUERN, "serve", *model, name, *(value if model else ["no/such/model"])]
    stderr = subprocess.run(argv, capture_output=True, text=True, timeout=pages.RUN_S).stderr
    assert stderr, f"{name} has no message"
    if f"unknown option {name}:" in stderr:
        return "answered"
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
    names = set(re.findall(r'(?:SAME|HINT)\("(-[^"]+)"', (ROOT / "cli" / "foreign.c").read_text()))
    assert len(names) > 80 and not names - {w for _, words, _, _ in PEER_ROWS for w in words}


def test_an_option_that_is_taken_is_the_one_that_the_page_names():
    same = dict(re.findall(r'SAME\("(-[^"]+)", "([^"]+)"', (ROOT / "cli" / "foreign.c").read_text()))
    told = {w: codes(here)[0] for _, words, here, how in PEER_ROWS if how == "taken" for w in words if w in same}
    assert told == {w: "MODEL" if same[w] == "model" else f"--{same[w]}" for w in told} and set(told) == set(same)


def test_metrics_of_the_peers_page_are_served(service):
    with urllib.request.urlopen(f"{service.http}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    for there, _, here in rows(section(PEERS, "Metrics")):
        name = codes(here)[0]
        assert name.removeprefix("quern:") == codes(there)[0].removeprefix("vllm:")
        assert f"# TYPE {name} " in text, name
