"""draw_comments.py: the same seed draws the same comments, labels are left out, and folders do not depend on each other."""
import subprocess
import sys
from pathlib import Path

DRAW = Path(__file__).resolve().parent / "draw_comments.py"


def tree(root, n):
    """A tree with n comments in base/ and two in worker/, and labels."""
    (root / "base").mkdir(exist_ok=True)
    (root / "worker").mkdir(exist_ok=True)
    (root / "Makefile").write_text("USES_base :=\nUSES_worker := base\n")
    said = "".join(f"/* Return the value of number {i}. */\nint v{i}; /* label */\n/* ---- numbers after {i} ---- */\n" for i in range(n))
    (root / "base/all.c").write_text(said)
    (root / "worker/some.c").write_text("/* Multiply by two,\n * in place. */\nint x;\n\n/* Add one to each element. */\nint y;\n")


def draw(root, *args):
    return subprocess.run([sys.executable, DRAW, "--root", root, *map(str, args)], capture_output=True, text=True, check=False)


def test_a_seed_draws_the_same_comments(tmp_path):
    tree(tmp_path, 40)
    first, again, other = (draw(tmp_path, "--seed", s).stdout for s in (1, 1, 2))
    assert first == again != other
    assert first.count("base/all.c:") == 10 and "base: 10 of 40 comments" in first
    assert "label" not in first and "----" not in first
    assert "worker: 2 of 2 comments\n  worker/some.c:1: Multiply by two, in place.\n  worker/some.c:5: Add" in first


def test_folders_and_count_can_be_chosen(tmp_path):
    tree(tmp_path, 5)
    assert draw(tmp_path, "worker", "--count", 1).stdout.count("\n") == 2
    alone, both = draw(tmp_path, "base", "--count", 3).stdout, draw(tmp_path, "--count", 3).stdout
    assert both.startswith(alone), "a folder's comments depend on no other folder"
    r = draw(tmp_path, "nowhere")
    assert r.returncode == 2 and "nowhere: no top folder with comments; there are base, worker" in r.stderr
