"""What becomes of an example of an API's documentation (documented.py): RUNS; ignores(FIELD, ...), the fields that the
reply names as ignored; refuses(WORD), where the error names the field or the path, with the status."""

RUNS = ("runs", ())


def ignores(*fields):
    return ("runs without", fields)


def refuses(word, status=400):
    return (f"refused by name, {status}" if status != 400 else "refused by name", (word,))


def status_of(what):
    """The status of a refusal; None: the example runs."""
    return None if what.startswith("runs") else int(what.removeprefix("refused by name").removeprefix(", ") or 400)
