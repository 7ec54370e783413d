"""The source tree as the rules see it: which files there are, which folder's rules hold for each."""
import subprocess
from pathlib import Path

CODE = {".c", ".h", ".cc", ".cu", ".cuh"}


def files(root):
    """Every file that git tracks or would track, as paths from the root; outside git, every file."""
    got = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if got.returncode == 0:
        names = got.stdout.split("\n")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if "build" not in p.relative_to(root).parts]
    return sorted(Path(n) for n in names if n and (root / n).is_file())


def sources(root):
    return [p for p in files(root) if p.suffix in CODE]


def folder(path):
    """The folder that sets a file's rules: controller/apis/x, controller/x, formats/x, cli/x, quant/x, else the first."""
    parts = path.parts
    if parts[:2] == ("controller", "apis") and len(parts) > 3:
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if parts[0] in ("controller", "formats", "cli", "quant") and len(parts) > 2 else parts[0]


def read(root, path):
    return (root / path).read_text(encoding="utf-8")
