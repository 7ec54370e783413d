"""Log lines: the text says what happened, and every value has a key."""
import re

import table
import tree

CALL = re.compile(r"\blog_(debug|info|warn|error|line)\(")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
KEY = re.compile(r'(?:^| )([a-z][a-z0-9_]*)=')


def arguments(text, at):
    """The arguments of the call whose parenthesis ends before `at`."""
    depth, start = 0, at
    for m in re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[(),]').finditer(text, at):
        if m[0] == "(":
            depth += 1
        elif m[0] in ",)" and depth == 0:
            yield text[start:m.start()]
            start = m.end()
            if m[0] == ")":
                return
        elif m[0] == ")":
            depth -= 1


def faults(words):
    """What is wrong with a format, of which `words` are its literals joined."""
    for m in re.finditer("%%|%", words):
        if m[0] == "%" and not re.search(r'(?:^| )[a-z][a-z0-9_]*=(?:\\")?$', words[:m.start()]):
            yield f'the value after "{words[:m.start()][-20:]}" has no key=, a name in small letters'
    keys = KEY.findall(words)
    if not keys:
        yield "no key=value"
    for key in keys:
        if key in table.LOG_KEYS:
            yield f"the key {key}= is {table.LOG_KEYS[key]}"


def check(root):
    for path in tree.sources(root):
        if path.parts[0] == "tests" or str(path.with_suffix("")) == "base/log" or str(path) in table.LOG_TEXTS:
            continue
        text = tree.read(root, path)
        for m in CALL.finditer(text):
            args = list(arguments(text, m.end()))
            if len(args) < 2:
                continue   # a function of that name
            words = LITERAL.findall(args[2 if m[1] == "line" else 1])
            for fault in faults("".join(words)) if words else ["its text is not a literal"]:
                yield f"{path}:{text.count(chr(10), 0, m.start()) + 1}: a log line: {fault}"
