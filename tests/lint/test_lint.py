"""The lint on small trees: a correct tree passes, and each planted fault is found and named."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).resolve().parent

GUARDED = "#ifndef QUERN_{g}_H\n#define QUERN_{g}_H\n\n{body}\n#endif\n"


def header(path, body):
    guard = path.removesuffix(".h").replace("/", "_").upper()
    return GUARDED.format(g=guard, body=body)


SOUND = {
    "Makefile": "USES_base :=\nUSES_controller/sched := base\nROOMS := $(addprefix controller/,sched)\n"
                "USES_controller/fleet := base \\\n\t$(ROOMS)\n",
    "base/err.h": header("base/err.h", "int err_why(int e);\n"),
    "base/err.c": '#include "base/err.h"\n\nint err_why(int e)\n{\n\treturn -e;\n}\n',
    "controller/sched/queue.h": header("controller/sched/queue.h", "int queue_pick(int n);\n"),
    "controller/sched/queue.c": '#include "controller/sched/queue.h"\n\n#include "base/err.h"\n\n'
                                "int queue_pick(int n)\n{\n\treturn err_why(n);\n}\n",
    "controller/fleet/fleet.h": header("controller/fleet/fleet.h", "int fleet_turn(void);\n"),
    "controller/fleet/fleet.c": '#include "controller/fleet/fleet.h"\n\n#include "controller/sched/queue.h"\n\n'
                                "int fleet_turn(void)\n{\n\treturn queue_pick(3);\n}\n",
}


@pytest.fixture
def lint(tmp_path):
    """lint({path: text}): return the output for the correct tree with these files added or replaced."""
    clang_format = LINT.parents[1] / "build/venv-lint/bin/clang-format"

    def run(changes, layout=False):
        root, objects = tmp_path / "tree", tmp_path / "tree/build/obj"
        for path, text in {**SOUND, **changes}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        (root / ".clang-format").write_text((LINT.parents[1] / ".clang-format").read_text())
        for source in root.rglob("*.c"):
            out = objects / source.relative_to(root).with_suffix(".o")
            out.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cc", "-I.", "-c", source, "-o", out], cwd=root, check=True)
        if layout and not clang_format.exists() and not shutil.which("clang-format-14"):
            pytest.skip("clang-format of the pinned version is not here: make lint installs it")
        env = {"PATH": "/usr/bin:/bin", **({"CLANG_FORMAT": str(clang_format)} if clang_format.exists() else {})}
        got = subprocess.run([sys.executable, LINT, "--root", root, "--objects", objects,
                              *([] if layout else ["--no-format"])], capture_output=True, text=True, env=env)
        assert got.returncode == (1 if got.stdout else 0), got.stderr
        return got.stdout
    return run


def test_a_sound_tree_passes(lint):
    assert lint({}, layout=True) == ""


def test_an_include_upward_is_found(lint):
    got = lint({"controller/sched/queue.c": '#include "controller/fleet/fleet.h"\n' +
                SOUND["controller/sched/queue.c"]})
    assert "controller/sched/queue.c:1: controller/sched must not include controller/fleet" in got


def test_a_call_upward_is_found_without_its_include(lint):
    got = lint({"controller/sched/queue.c": SOUND["controller/sched/queue.c"].replace(
        "int queue_pick", "int fleet_turn(void);\n\nint queue_pick").replace("err_why(n)", "err_why(n) + fleet_turn()")})
    assert "controller/sched/queue.c: controller/sched must not call controller/fleet" in got
    assert "folders that call each other in a circle: controller/fleet, controller/sched" in got


CIRCLE = {
    "controller/sched/sched.h": header("controller/sched/sched.h", "int sched_step(int n);\n"),
    "controller/sched/sched.c": '#include "controller/sched/sched.h"\n#include "controller/sched/queue.h"\n{impl}\n'
                                "int sched_step(int n)\n{{\n\treturn n ? queue_pick(n - 1) : 0;\n}}\n",
    "controller/sched/queue.c": '#include "controller/sched/queue.h"\n#include "controller/sched/sched.h"\n{impl}\n'
                                "int queue_pick(int n)\n{{\n\treturn sched_step(n);\n}}\n",
}


def circle(impl):
    return {p: t.format(impl=impl) if p.endswith(".c") else t for p, t in CIRCLE.items()}


def test_a_circle_of_calls_within_a_folder_is_found(lint):
    got = lint(circle(""))
    assert "controller/sched: files that call each other in a circle" in got
    assert "queue.c -> sched.c (sched_step)" in got


def test_files_that_share_an_impl_header_may_call_each_other(lint):
    path = "controller/sched/sched_impl.h"
    assert lint({**circle(f'#include "{path}"\n'), path: header(path, "struct sched;\n")}) == ""


def test_a_pure_folder_with_a_socket_is_found(lint):
    got = lint({"controller/sched/queue.c": "#include <pthread.h>\n" + SOUND["controller/sched/queue.c"]})
    assert "controller/sched is pure and must not include <pthread.h>" in got


def test_a_badly_formatted_file_is_found(lint):
    got = lint({"base/err.c": SOUND["base/err.c"].replace("\treturn -e;", "    return  - e ;")}, layout=True)
    assert "base/err.c:4: not as clang-format leaves it" in got


DRAWING = ("/* Two messages:\n *\n *   worker      -> want                   the files that it lacks, if the model load has offers\n"
           " *   controller  -> files, chunk ...       their names and contents\n */\n")


def test_a_wrapped_drawing_is_found(lint):
    wrapped = DRAWING.replace("load has offers\n *   controller  ->", "load has\n * offers controller  ->")
    assert lint({"base/err.c": DRAWING + SOUND["base/err.c"]}, layout=True) == ""
    assert lint({"base/err.c": wrapped + SOUND["base/err.c"]}) == (
        "base/err.c:4: a drawing that was wrapped? its line 3 goes on at the margin\n")


def test_the_formatter_leaves_a_drawing_alone(lint):
    wide = DRAWING.replace("their names", "their names, in the order in which the worker asked for them, ")
    assert "base/err.c:4: a comment of 11" in lint({"base/err.c": wide + SOUND["base/err.c"]}, layout=True)


def test_the_inner_folder_s_rules_hold(lint):
    makefile = SOUND["Makefile"] + "USES_base/sim := base\n"
    sim = "int sim_run(void)\n{\n\treturn 0;\n}\n"
    assert lint({"Makefile": makefile, "base/sim/sim.c": sim}) == ""
    got = lint({"Makefile": makefile, "base/sim/sim.c": '#include "controller/sched/queue.h"\n' + sim})
    assert "base/sim/sim.c:1: base/sim must not include controller/sched" in got


def test_a_function_longer_than_a_screen_is_found(lint):
    body = "\te++;\n" * 80 + "\treturn e;\n"
    got = lint({"base/err.c": f'#include "base/err.h"\n\nint err_why(int e)\n{{\n{body}}}\n'})
    assert "base/err.c:4: a function of 81 lines (at most 80)" in got


@pytest.mark.parametrize("n, fault", [(8, ""), (9, "base/many.c:4: many has 9 parameters (at most 8)")])
@pytest.mark.parametrize("macro", [False, True])
def test_a_function_with_many_parameters_is_found(lint, n, fault, macro):
    parameters = ",\n         ".join(["int (*f)(int a, int b)", *(f"int a{i}" for i in range(1, n))])
    body = f"int many({parameters})\n{{\n\treturn f(a1, a2);\n}}\n"
    if macro:
        body = "#define MANY(many) " + body.replace("\n", " \\\n") + "\nMANY(few)\n"
    got = lint({"base/many.c": f"/* many.c */\nint a, b;\n\n{body}"})
    assert got.startswith(fault) and bool(got) == bool(fault)


def test_a_buffer_and_its_size_for_a_reason_are_found(lint):
    got = lint({"base/why.h": header("base/why.h", "int f(char *why,\n      unsigned long n);\nint g(char *why,\n      size_t n);\n"
                                     "int h(const char *why);\n")})
    assert got == "base/why.h:6: a buffer and its size for a reason: struct why (base/err.h)\n"


def test_a_wrong_table_of_folders_is_found(lint):
    row = "| folder | holds | may use | lines |\n|---|---|---|---|\n| `base/` | errors | nothing | {} |\n"
    assert lint({"docs/ARCHITECTURE.md": row.format("100")}) == ""
    assert "base has 12 lines, the table says 1,900" in lint({"docs/ARCHITECTURE.md": row.format("1,900")})


def test_words_for_persons_are_found(lint):
    got = lint({"base/err.c": "/* Who waits, and whose turn it is. */\n" * 2 + SOUND["base/err.c"]})
    assert "speak of who, whom, whose" in got


def test_long_lines_of_pages_are_found(lint):
    long = "word " * 25
    got = lint({"docs/X.md": f"{long}\n\n| {long} |\n\n    {long}\n\n```sh\n{long}\n```\n\n- {long}\n"})
    assert "docs/X.md:1: 125 columns (at most 120 outside tables and code)" in got and "docs/X.md:11: 127 columns" in got
    assert got.count("docs/X.md") == 2


ROWS = ("struct opt {\n\tconst char *name;\n};\n"
        '#define OPT(name_, ...) {name_}\n\nstatic const struct opt rows[] = {\n\tOPT("max-seqs", OPT_INT, .def = "256"),\n'
        '\tOPT("tp", OPT_INT, .def = "1"),\n\tOPT("tp", OPT_INT, .unset = "the fewest"),\n};\n'
        "int option(int n);\nint option(int n)\n{\n\treturn rows[n].name[0];\n}\n")
READER = "#define opts_int_or(o, name, n) (n)\n#define opts_has(o, name) (o)\n#define opts_int(o, name) (o)\n\n"


@pytest.mark.parametrize("value, found", [
    ('opts_int_or(e, "max-seqs", 128)', True),
    ('opts_has(e, "max-seqs") ? opts_int(e, "max-seqs") : 128', True),
    ('opts_int(e, "max-seqs")', False),
    ('opts_int_or(e, "tp", 2)', False),   # not in every program
])
def test_a_second_default_of_an_option_is_found(lint, value, found):
    got = lint({"base/option_table.c": ROWS, "base/err.c": SOUND["base/err.c"].replace("\nint", READER + "int").replace(
        "-e;", f"{value};")})
    assert ("base/err.c:8: a second default of --max-seqs, which has one in base/option_table.c" in got) == found
    assert found or got == ""


def test_an_option_outside_the_table_is_found(lint):
    got = lint({"base/option_table.c": ROWS, "base/err.c": ROWS.replace("option(", "opt(") + SOUND["base/err.c"]})
    assert "base/err.c:6: an option is a row of base/option_table.c" in got


@pytest.mark.parametrize("opening", ["Of all errors the first.", "What went wrong, and where.", "Likewise for the others.",
                                     "err.c - where errors are made"])
def test_a_comment_that_begins_with_an_ellipsis_is_found(lint, opening):
    plain = "/* Return the code, negated. */\n" * 300
    one, two = f"/* {opening} */\n", f"\n/* {opening}\n * And more. */\n"
    assert lint({"base/err.c": plain + one + SOUND["base/err.c"]}) == ""
    got = lint({"base/err.c": plain + one + two + SOUND["base/err.c"]})
    assert "base: 2 of 302 comments begin with Of, What" in got and "base/err.c:301, base/err.c:303" in got


def test_words_in_strings_and_labels_are_no_openings(lint):
    text = 'static const char *text = "/* Of all things that are said here */"; /* of it */\n'
    assert lint({"base/err.c": text + SOUND["base/err.c"]}) == ""


LOG = ('#include "base/log.h"\n\nvoid tell(const char *s, int n);\n'
       "void tell(const char *s, int n)\n{\n\tlog_info(\"base\", TEXT, s, n);\n}\n")


@pytest.mark.parametrize("text, fault", [
    ('"file lost file=%s bytes=%d"', ""),
    ('"file lost reason=\\"%s\\" percent=%d%%"', ""),
    ('"file lost file=%s row=%" "d" " or (so)"', ""),
    ('"replaced now: why, or not"', "no key=value"),
    ('"%s lost bytes=%d"', 'the value after "" has no key='),
    ('"file lost file=%s: %d"', 'the value after "file lost file=%s: " has no key='),
    ('"file lost rank=%s/%d"', 'the value after "file lost rank=%s/" has no key='),
    ('"file lost reason=\\"%s of %d\\""', "of \" has no key="),
    ('"file lost --file=%s files=%d"', 'has no key='),
    ('"file lost file=%s why=%d"', "the key why= is reason="),
    ("s", "its text is not a literal"),
])
def test_a_log_line_without_keys_is_found(lint, text, fault):
    got = lint({"base/log.h": header("base/log.h", "void log_info(const char *part, const char *text, ...);\n"),
                "base/log.c": '#include "base/log.h"\n\nvoid log_info(const char *part, const char *text, ...)\n{\n}\n',
                "base/err.c": LOG.replace("TEXT", text) + SOUND["base/err.c"]})
    assert got == "" if not fault else "base/err.c:6: a log line: " in got and fault in got


def test_a_family_outside_of_the_table_is_found(lint):
    code = "base/more.c", "const char *more(void);\nconst char *more(void) /* \"QwenForCausalLM\" */\n{\n\treturn \"%s\";\n}\n"
    assert "names a family" in lint({code[0]: code[1] % "QwenForCausalLM"})
    assert "names a family" not in lint({code[0]: code[1] % "a model"})


def test_a_long_commit_subject_is_found(lint, tmp_path):
    lint({})
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path / "tree"]
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("base: short enough", "base: " + "x" * 67):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    (tmp_path / "tree/.gitignore").write_text("/build/\n")
    got = lint({})
    assert "a subject of 73 columns (at most 72)" in got and got.count("columns") == 1
