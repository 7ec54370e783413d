"""python_page.py - print docs/apis/python.md: vLLM's names, and the Python package's support for each."""

import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))

from quern import _vllm     # noqa: E402

HEAD = """# vLLM's names in Python

This page lists the names of vLLM's offline API ({version}), and what [the Python
package](../../clients/python/README.md) does with each. A refused name raises `Unsupported`, which names it and says
what to do instead; no name is ignored. Neutral values ({neutral}) are accepted everywhere.

Written by `tests/tools/python_page.py` from the tables by which the package refuses names.
"""
TITLES = {"LLM": "Methods of LLM", "EngineArgs": "LLM(...)"}
ORDER = ["EngineArgs", "LLM"]


def cell(text):
    return text.replace("|", "\\|")


def table(name):
    rows = _vllm.TABLE[name]
    title = TITLES.get(name, f"{name}()" if "." in name else name)
    yield f"\n## {title}\n"
    plain = [n for n, r in rows.items() if r.honoured and not r.note]
    if plain:
        yield textwrap.fill("As in vLLM: " + ", ".join(f"`{n}`" for n in plain) + ".", 118) + "\n"
    rest = {n for _, names in _vllm._REST for n in names.split()} if name == "EngineArgs" else set()
    noted = {n: r for n, r in rows.items() if n not in plain and n not in rest}
    if noted:
        yield "| name | | |\n|---|---|---|"
        for n, r in noted.items():
            always = r.note.startswith("always ")
            what = "honoured" if r.honoured else "there" if always else "refused"
            others = [repr(v) for v in r.neutral + r.done if v is not None]
            but = f"; {', '.join(others)} is taken" if others and not r.honoured and len(others) < 9 else ""
            yield f"| `{n}` | {what} | {cell(r.note + but)} |"
    if rest:
        yield "\nRefused with any value but `None` and `False`:\n\n| names | |\n|---|---|"
        for note, names in _vllm._REST:
            yield f"| {', '.join(f'`{n}`' for n in names.split())} | {cell(note)} |"
        yield "\nOther names are options of `quern serve` (`compute=\"int8\"`, `threads=4`, `no_prefix_cache=True`)."


def page():
    lines = [HEAD.format(version=_vllm.VERSION, neutral="`None`, the defaults")]
    for name in ORDER + [n for n in _vllm.TABLE if n not in ORDER]:
        lines += table(name)
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    print(page(), end="")
