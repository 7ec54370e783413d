"""The commands of README.md's "Use it", and the links of all pages."""

import json
import os
import re
import subprocess

import pytest

import pages
from service import BIN, ROOT
from test_tables import section

# Lines that are not run as they are, and the reason.
LEFT = {"quern serve MODEL": "the test's service takes its place",
        "quern convert MODEL": "the demo model has no floats; tests/e2e/cli/test_convert.py",
        "quern quantize MODEL": "likewise; tests/e2e/cli/test_quantize_types.py",
        "quern bench serve": "a thousand requests; tests/e2e/cli/test_bench_serve.py"}


def commands():
    """Return the commands of "Use it": (kind, text)."""
    text = section((ROOT / "README.md").read_text(), "Use it").split("\nMODEL is")[0]
    lines = re.sub(r"\\\n\s*", " ", text)
    shell = [("sh", line.strip()) for line in lines.split("\n") if re.match("    (quern|curl) ", line)]
    programs = [("python", re.sub("^    ", "", part, flags=re.M)) for part in lines.split("\n\n") if "    from " in part]
    assert len(shell) == 11 and len(programs) == 2
    return shell + programs


@pytest.fixture(scope="module")
def folder(tmp_path_factory, service):
    run = pages.Run(tmp_path_factory.mktemp("readme"))
    run.service = service
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 3}}
    (run.folder / "requests.jsonl").write_text(json.dumps(line) + "\n")
    return run


def run_one(folder, kind, text):
    argv = ["bash", "-euc"] if kind == "sh" else ["python", "-c"]
    env = {**folder.env(), "QUERN_BIN": str(BIN), "PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    return subprocess.run([*argv, folder.here(text).replace("MODEL", "models/demo")], cwd=folder.folder, env=env,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=pages.RUN_S)


@pytest.mark.parametrize("kind, text", commands(), ids=lambda c: " ".join(c.split()[:3]))
def test_a_command_of_the_readme_runs(folder, kind, text):
    if text.startswith(tuple(LEFT)):
        assert not list(pages.faults(text))
        return
    done = run_one(folder, kind, text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() or kind == "python" or text.startswith("quern chat")
    if "--batch" in text:
        assert json.loads((folder.folder / "requests.out.jsonl").read_text())["response"]["status_code"] == 200


def slug(title):
    """Return the anchor that GitHub makes from a title."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def anchors(path):
    titles = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return {slug(t.strip()) for t in re.findall(r"^#+ (.*)$", titles, re.M)}


def test_links_lead_somewhere():
    lost = []
    for page in pages.ALL:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
            if re.match("[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                lost.append(f"{os.path.relpath(page, ROOT)}: {link}")
    assert not lost, "\n".join(lost)
