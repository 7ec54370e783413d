"""How comments begin: with a verb or the thing they are about, not with a clause that has neither."""
import re
from collections import Counter

import table
import tree

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
NAME = re.compile(r"^[\w./]+\.(?:c|h|cc|cu|cuh) - ")   # a file's first comment: "queue.h - ..."
OPENING = re.compile(r"(of|what|which|whether|where|the same|likewise)\b", re.I)
LONGER_THAN = 15   # characters: shorter comments are labels


def comments(text):
    """(line, words) of every comment, as one line without its stars."""
    for m in COMMENT.finditer(text):
        if m[0].startswith("/*"):
            words = re.sub(r"\n[ \t]*\*?", " ", m[0][2:-2])
        elif m[0].startswith("//"):
            words = m[0][2:]
        else:
            continue
        yield text.count("\n", 0, m.start()) + 1, " ".join(words.split())


def check(root):
    """No folder with more than table.OPENINGS of 1,000 comments, rounded up, that begin with an ellipsis."""
    n, found, may = Counter(), {}, table.may(root)
    for path in tree.sources(root):
        folder = tree.folder(path, may)
        for no, words in comments(tree.read(root, path)):
            if len(words) <= LONGER_THAN:
                continue
            n[folder] += 1
            if OPENING.match(NAME.sub("", words)):
                found.setdefault(folder, []).append(f"{path}:{no}")
    for folder, places in sorted(found.items()):
        most = -(-n[folder] * table.OPENINGS // 1000)
        if len(places) > most and folder not in table.OPENINGS_LATER:
            yield (f"{folder}: {len(places)} of {n[folder]} comments begin with Of, What, Which, Whether, Where, The same "
                   f"or Likewise (at most {most}): say what it is, or begin with the verb; {', '.join(places[:5])}")
