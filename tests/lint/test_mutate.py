"""tests/mutate on a small tree: the result for a mutant that is caught, for one that is not, and for one that does not
compile."""
import importlib.util
from pathlib import Path

import pytest

MAIN = Path(__file__).resolve().parents[1] / "mutate/__main__.py"

MAKEFILE = """build/obj/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) -c $< -o $@
build/tests/unit/test_sum: build/obj/sum.o
\t@mkdir -p $(@D)
\tprintf '#!/bin/sh\\necho Tested: 1\\ngrep -q "a + b" sum.c\\n' >$@ && chmod +x $@
"""


@pytest.fixture
def mutate():
    spec = importlib.util.spec_from_file_location("mutate", MAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    for name, text in {"Makefile": MAKEFILE, "sum.c": "int sum(int a, int b)\n{\n\treturn a + b;\n}\n",
                       "other.c": "int other(void)\n{\n\treturn 1;\n}\n", "script.py": "X = 1\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("file, old, new, became", [
    ("sum.c", "a + b", "a - b", "killed"),
    ("sum.c", "int b", "int b /* */", "lived"),
    ("sum.c", "a + b", "a + ", "does not compile"),
    ("other.c", "return 1", "return 2", "lived"),             # the test does not use it
    ("other.c", "return 1", "return (", "does not compile"),  # nor does its build
    ("script.py", "X = 1", "X = (", "does not compile"),
])
def test_what_becomes_of_a_mutant(mutate, tree, file, old, new, became):
    whole = (tree / file).read_text()
    m = {"promise": "p", "file": file, "old": old, "new": new, "test": "unit/test_sum:x/*"}
    got, why = mutate.try_mutant(tree, m)
    assert got == became, why
    assert bool(why) == (became == "does not compile")
    assert (tree / file).read_text() == whole
