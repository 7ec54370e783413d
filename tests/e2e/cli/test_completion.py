"""Completion for bash and zsh, compared with each program's own --help."""

import re
import shutil
import subprocess

import pytest

from service import BIN, QUERN, ROOT

OPTION = re.compile(r"^ +(?:(-.), )?(--[a-z-]+)(?: (\S+))?", re.M)
ROW = re.compile(r"^  ([a-z]+) ", re.M)


def help_of(*command):
    return subprocess.run([QUERN, *command, "--help"], capture_output=True, text=True, timeout=30).stdout


def rows(*command):
    return ROW.findall(help_of(*command).split(":\n", 1)[1].split("\n\n")[0])


def options(*command):
    """Return each spelling of each option with the name of its value, or ""."""
    found = {"--help": ""}
    for letter, name, value in OPTION.findall(help_of(*command)):
        found.update({spelling: value for spelling in (letter, name) if spelling})
    return found


COMMANDS = [(c,) for c in rows() if c != "bench"] + [("bench", m) for m in rows("bench")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("completion")
    subprocess.run([ROOT / "deploy" / "completion.sh", BIN, out], check=True, timeout=60)
    return out


@pytest.fixture
def complete(folder, tmp_path):
    """complete("serve", "--ht"): the completions that bash offers for the last word, in a folder with one file and one
    folder."""
    (tmp_path / "a-file").write_text("")
    (tmp_path / "a-folder").mkdir()

    def complete_words(*words):
        script = '. "$1"; shift; COMP_WORDS=(quern "$@"); COMP_CWORD=$#; _quern; printf "%s\\n" "${COMPREPLY[@]}"'
        r = subprocess.run(["bash", "--norc", "-c", script, "bash", folder / "quern", *words], cwd=tmp_path, capture_output=True,
                           text=True, timeout=30)
        assert (r.returncode, r.stderr) == (0, "")
        return [line for line in r.stdout.splitlines() if line]
    return complete_words


def test_bash_offers_the_commands(complete):
    assert set(complete("")) == {*rows(), "--help", "--version"}
    assert set(complete("bench", "")) == {*rows("bench"), "--help"}
    assert complete("sub") == ["submit"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_bash_offers_the_options_of(complete, command):
    assert set(complete(*command, "-")) == set(options(*command))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_bash_offers_files_where_an_option_takes_one(complete, command):
    for option, value in options(*command).items():
        offered = set(complete(*command, option, "a-"))
        if value in ("FILE", "PATH"):
            assert offered == {"a-file", "a-folder"}, option
        elif value:
            assert offered == set(), option
        else:
            assert "a-file" not in offered, option


def test_bash_offers_folders_for_a_model(complete):
    for command in (("serve",), ("run",), ("tokenize",), ("inspect",), ("bench", "engine"), ("bench", "tokenizer")):
        assert complete(*command, "a") == ["a-folder"]
    assert complete("submit", "a") == []
    assert set(complete("inspect", "")) == {"a-folder", "cpu", "gpu"}


def test_bash_offers_values_that_the_help_names(complete):
    for option, value in options("serve").items():
        if value and value not in ("FILE", "PATH"):
            line = next(line for line in help_of("serve").splitlines() if f"{option} " in line)
            if "..." in line:  # the other formats are in the documentation
                line += (ROOT / "docs" / "CHAT.md").read_text()
            for choice in complete("serve", option, ""):
                assert re.search(rf"\b{choice.split(':')[0]}\b", line), (option, choice)
    assert set(complete("serve", "--preempt", "")) == {"swap", "recompute", "auto"}


def test_zsh_has_the_commands_and_their_options(folder):
    text = (folder / "_quern").read_text()
    bench, rest = text.split("\n_quern() {")
    for command in COMMANDS:
        part = bench if command[0] == "bench" else rest
        case = re.search(rf"^\t{command[-1]}\)\n(.*?)^\t\t;;$", part, re.M | re.S).group(1)
        have = set(re.findall(r"^\t\t\t'\*?(--[a-z-]+)\[", case, re.M))
        have |= {o for both in re.findall(r"^\t\t\t'\*'\{(-.),(--[a-z-]+)\}", case, re.M) for o in both}
        assert have == set(options(*command)), command
    for name in rows():
        assert f"'{name}:" in rest
    for name in rows("bench"):
        assert f"'{name}:" in bench


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
def test_zsh_reads_the_completion(folder):
    r = subprocess.run(["zsh", "-n", folder / "_quern"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stderr) == (0, "")
