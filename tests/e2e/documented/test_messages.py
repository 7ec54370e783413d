"""docs/MESSAGES.md explains messages of the programs: the longest constant part of each message is in a source file."""

import re

from service import ROOT
from test_tables import codes, rows

SOURCES = ("base", "cli", "controller", "formats", "grammar", "kernels", "proto", "quant", "store", "worker")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals():
    """Return every string of the sources, adjacent strings joined; a printf conversion becomes a line break."""
    found = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.[chu]*")):
            text = path.read_text(errors="replace").replace('\\"', "\0")     # an escaped quote ends no literal
            text = re.sub(r"\bPRI\w+\b", '""', text)
            text = re.sub(r'"\s*"', "", re.sub(r'"[ \t]*(?:\\)?\n\s*"', "", text))
            found += LITERAL.findall(text)
    return re.sub(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]", "\n",
                  "\n\n".join(found).replace("\0", '"').replace("\\n", "\n"))


def constant(message):
    """Return the longest constant part of a message on the page. Variable parts are capital letters, `..`, names of
    files and hosts."""
    parts = re.split(r"\.\.\.?|\b[A-Z]\b(?:-wal)?|\[\.\.\]|\b[A-Z]{2,}\b|\b\d[\d,]*\b|[\"`]|--[a-z-]+|\||\b(?:client|adapter) of\b", message)
    return max((p.strip(" :,;()[]") for p in parts), key=len)


def test_every_message_is_one_of_the_programs():
    text = re.sub(r"[ \t]+", " ", literals()).replace("`", "")
    parts = {p.strip() for p in text.split("\n") if len(p.strip()) >= 10}
    page = (ROOT / "docs" / "MESSAGES.md").read_text()
    messages = [m for r in rows(page) for cell in r[:2] for m in codes(cell.replace("\\|", "|")) if cell is r[0] or "E_" in r[0]]
    assert len(messages) > 120
    # If a conversion falls within the longest part on the page, the source's pieces around it must be on the page.
    lost = [m for m in messages if 7 < len(constant(m)) and constant(m) not in text and not any(p in m for p in parts)]
    assert not lost, "no source has these messages:\n" + "\n".join(lost)
