"""The pages of docs/ are correct: their commands run, their options exist, and their tables match the programs."""

import os
import re
import subprocess

import pytest

import pages
from service import ROOT

FENCED = [p for p in pages.ALL if any(b.kind == "sh" for b in pages.blocks(p))]


@pytest.mark.parametrize("page", FENCED, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_runs(page, tmp_path):
    if page.name in pages.LONG and not os.environ.get("QUERN_TEST_LONG"):
        pytest.skip("takes a minute: make deploy-check PARTS=documents, or QUERN_TEST_LONG=1")
    pages.run_page(page, tmp_path)


@pytest.mark.parametrize("page", pages.ALL, ids=lambda p: str(p.relative_to(ROOT)))
def test_options_of_a_page_exist(page):
    bad = [f"{b}: {fault}" for b in pages.blocks(page) if b.kind == "sh" for fault in pages.faults(b.text)]
    bad += [f"{page.name}:{n}: {fault}" for n, line in pages.indented(page) for fault in pages.faults(line)]
    for n, line in enumerate(page.read_text().split("\n"), 1):
        bad += [f"{page.name}:{n}: {fault}" for code in re.findall(r"`(quern(?:-[a-z]+)? [^`]+)`", line)
                for fault in pages.faults(code.replace("\\|", "|"))]
    assert not bad, "\n".join(bad)


def test_blocks_are_of_a_kind_that_is_checked():
    for page in pages.ALL:
        for block in pages.blocks(page):
            assert block.kind in ("sh", "python", "text", "") , f"{block}: a block of an unknown kind, {block.kind}"
            if block.kind == "sh":
                assert subprocess.run(["bash", "-n"], input=block.text, text=True).returncode == 0, block
            assert block.needs is None or block.needs.startswith(pages.REASONS), \
                f"{block}: `# needs {block.needs}` begins with none of {pages.REASONS}"


def test_a_wrong_option_is_found():
    assert list(pages.faults("quern serve m --max-seqs 4 && quern submit --raw x | cat -A --bogus")) == []
    assert list(pages.faults("X=1 quern serve m --max-seq 4")) == ["quern serve: there is no option --max-seq"]
    assert list(pages.faults("echo $(date) ; quern sevre m")) == ["quern sevre: there is no such command"]
    assert len(list(pages.faults("quern-worker --bus x \\\n  --no-such"))) == 1


def test_an_output_that_differs_is_found():
    assert pages.matches("a ..\n..\nz", "a b\nc\nd\nz\n") and pages.matches("a ..\n..\nz", "a b\nz\n")
    assert not pages.matches("a ..\nz", "a b\nc\nz\n") and not pages.matches("a b", "a c\n")
