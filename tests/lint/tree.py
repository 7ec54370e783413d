"""The source tree for the rules: its files, and for each file the folder of its rules."""
import subprocess
from pathlib import Path

CODE = {".c", ".h", ".cc", ".cu", ".cuh"}


def files(root):
    """Return every file that git tracks or would track, as paths from the root; outside git, every file."""
    got = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if got.returncode == 0:
        names = got.stdout.split("\n")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if "build" not in p.relative_to(root).parts]
    return sorted(Path(n) for n in names if n and (root / n).is_file())


def sources(root):
    return [p for p in files(root) if p.suffix in CODE]


def folder(path, folders):
    """Return the folder of the rules for a file: the innermost of `folders`, else the first of its path."""
    above = [str(p) for p in path.parents]   # innermost first
    return next((p for p in above if p in folders), path.parts[0])


def read(root, path):
    return (root / path).read_text(encoding="utf-8")
