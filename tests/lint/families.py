"""Families of models are rows of formats/family.c; no other code names one."""
import re

import tree
from words import COMMENT

TABLE = "formats/family_*.c"
CLASS = re.compile(r'"[A-Z]\w*For(?:CausalLM|ConditionalGeneration)"')


def check(root):
    """No source but the table, and no test, has the name of a family's class as a string."""
    for path in tree.sources(root):
        if path.match(TABLE) or path.parts[0] == "tests":
            continue
        text = tree.read(root, path)
        code = COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n"), text)
        for m in CLASS.finditer(code):
            yield f"{path}:{code.count(chr(10), 0, m.start()) + 1}: {m[0]} names a family: only {TABLE} may"
