"""`quern tokenize` accepts every kind of tokenizer: a directory, tokenizer.model, a GGUF file."""

import json
import subprocess

import pytest

from service import QUERN, ROOT

GOLDEN = ROOT / "tests" / "golden" / "tokenizer"
TEXT = "<s>The donkey and the cat\n"


def tokenize(model, *options, text=TEXT):
    return subprocess.run([QUERN, "tokenize", model, *options], input=text, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file, source", [("spm_bpe/tokenizer.model", "spm_bpe"), ("gguf_spm.gguf", "spm_bpe"),
                                          ("gguf_unigram.gguf", "spm_unigram_bytes"), ("gguf_llama3.gguf", "llama3")])
def test_a_file_gives_the_ids_of_what_it_comes_from(file, source):
    for options in (["--ids"], ["--json", "--add-special"], ["--ids", "--no-special"]):
        a, b = tokenize(GOLDEN / file, *options), tokenize(GOLDEN / source, *options)
        assert (a.returncode, a.stdout) == (0, b.stdout), a.stderr
    ids = tokenize(GOLDEN / file, "--ids", "--no-special").stdout
    assert tokenize(GOLDEN / file, "--decode", text=ids).stdout == TEXT


def test_the_tokenizer_may_be_named_apart_from_the_model():
    o = json.loads(tokenize("no-such-model", "--tokenizer", GOLDEN / "spm_bpe" / "tokenizer.model", "--json").stdout)
    assert o["ids"][0] == 1 and len(o["ids"]) == len(o["pieces"])


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "x").write_text("words")
    p = tokenize(tmp_path / "x")
    assert p.returncode == 1 and f"{tmp_path}/x: not a tokenizer" in p.stderr


@pytest.mark.parametrize("n, words", [(0, "m.gguf: not a tokenizer: the file is empty; was the download or copy"),
                                      (3, "m.gguf does not begin as a GGUF file does; was the download"),
                                      (900, "the file ends at byte 900; was the download or copy interrupted?")])
def test_a_file_that_was_cut_is_named(tmp_path, n, words):
    (tmp_path / "m.gguf").write_bytes((GOLDEN / "gguf_spm.gguf").read_bytes()[:n])
    p = tokenize(tmp_path / "m.gguf")
    assert p.returncode == 1 and p.stdout == "" and words in p.stderr and len(p.stderr.splitlines()) == 1


def test_a_directory_without_a_tokenizer_is_told_as_what_it_is(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"")
    p = tokenize(tmp_path)
    assert p.returncode == 1 and "m.gguf, which does not begin as a GGUF file does" in p.stderr
    assert "quern pull org/name" in tokenize("org/name").stderr
