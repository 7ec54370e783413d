"""Outcomes of a documented example (documented.py). RUNS: it works. ignores(FIELD, ...): it works, and the reply names
these fields as ignored. refuses(WORD): it fails with this status, and the error names the field or path."""

RUNS = ("runs", ())


def ignores(*fields):
    return ("runs without", fields)


def refuses(word, status=400):
    return (f"refused by name, {status}" if status != 400 else "refused by name", (word,))


def status_of(what):
    """Return the status of a refusal; None: the example runs."""
    return None if what.startswith("runs") else int(what.removeprefix("refused by name").removeprefix(", ") or 400)
