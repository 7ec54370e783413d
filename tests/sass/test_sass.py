"""The reader of machine code, on small pieces of it; and the kernels as they are, against their bounds."""
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import estimate  # noqa: E402
import machine  # noqa: E402

spec = importlib.util.spec_from_file_location("sass_main", Path(__file__).parent / "__main__.py")
sass = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sass)

ROOT = Path(__file__).resolve().parents[2]


def code(text):
    """Lines of instructions and labels, as nvdisasm prints a function."""
    lines = [".text._Z6kernelv:"]
    for i, line in enumerate(text.strip().splitlines()):
        line = line.strip()
        lines.append(line if line.endswith(":") else f"        /*{16 * i:04x}*/                   {line} ;")
    return machine.functions("\n".join(lines))["_Z6kernelv"]


LOOP = """
    MOV R1, c[0x0][0x28]
    .L_x_0:
    LDGSTS.E.BYPASS.128 [R7], desc[UR4][R8.64]
    HMMA.16816.F32 R40, R40, R20, R36
    @P0 BRA `(.L_x_1)
    FFMA R1, R2, R3, R4
    FFMA R1, R2, R3, R4
    .L_x_1:
    IADD3 R0, R0, 0x1, RZ
    @P1 BRA `(.L_x_0)
    EXIT
    .L_x_2:
    BRA `(.L_x_2)
"""


def test_a_round_is_counted_with_and_without_what_is_skipped():
    loop = machine.hot_loop(code(LOOP))
    assert (loop.mma, loop.copies, loop.usual, loop.scaling, loop.size) == (1, 1, 5, 7, 7)


def test_of_a_steps_groups_one_in_four_ends():
    loop = machine.hot_loop(code(LOOP))
    assert estimate.instructions("linear_stream_kernel<false, 1, 1, 1>", loop) == 5.5
    assert estimate.instructions("linear_stream_kernel<false, 0, 1, 1>", loop) == 5


def test_a_way_that_leaves_out_a_copy_is_not_the_usual_one():
    text = LOOP.replace(".L_x_0:", ".L_x_0:\n @P2 BRA `(.L_x_3)").replace("HMMA", ".L_x_3:\n HMMA", 1)
    loop = machine.hot_loop(code(text))
    assert (loop.copies, loop.usual) == (1, 6)


def test_the_loop_that_multiplies_is_the_hot_one_though_others_load_more():
    other = "\n".join(["EXIT", ".L_x_9:"] + ["LDG.E R1, desc[UR8][R70.64]"] * 9 + ["@P1 BRA `(.L_x_9)", "EXIT"])
    loop = machine.hot_loop(code(LOOP.replace("EXIT", other, 1)))
    assert (loop.mma, loop.usual) == (1, 5)


def test_code_without_a_loop_has_none():
    assert machine.hot_loop(code("MOV R1, R2\nEXIT\n.L_x_2:\nBRA `(.L_x_2)")) is None


PTXAS = """
ptxas info    : Compiling entry function '_Z6kernelv' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelv
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 32 bytes smem
"""


def test_spills_stack_and_registers_are_read():
    k = machine.resources(PTXAS.format(stack=16, stores=8, loads=12))["_Z6kernelv"]
    assert (k.registers, k.stack, k.spills, k.static_smem) == (64, 16, 20, 32)


@pytest.fixture
def figures():
    return {"k<1>": {"registers": 61, "spills": 0, "stack": 0, "smem": 0, "instructions": 100, "mma": 8}}


STEPS = {"decode 1": {"us": 1000.0, "launches": 298}}


def worse(figures, bounds, steps=STEPS):
    return sass.compare(figures, steps, bounds)[0]


def test_what_is_as_bounded_passes(figures):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    assert worse(figures, bounds) == []
    assert bounds["kernels"]["k<1>"]["registers"] == 64  # they are given out in eights


@pytest.mark.parametrize("change, said", [
    ({"spills": 4}, "4 bytes of registers spilled"),
    ({"registers": 65}, "registers 65, at most 64"),
    ({"instructions": 103}, "instructions 103, at most 102"),
    ({"stack": 8}, "stack 8, at most 0"),
    ({"smem": 16}, "smem 16, at most 0"),
    ({"mma": 4}, "4 mma in a round of its loop, not 8"),
])
def test_each_growth_is_named(figures, change, said):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    figures["k<1>"].update(change)
    found = worse(figures, bounds)
    assert len(found) == 1 and said in found[0]


def test_a_spill_is_refused_even_where_the_bounds_were_made_with_it(figures):
    figures["k<1>"]["spills"] = 4
    assert worse(figures, sass.bounds_for("13.0", figures, STEPS))


def test_kernels_without_bounds_and_bounds_without_kernels_are_named(figures):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    other = {"k<2>": figures["k<1>"]}
    assert [f.split(":")[0] for f in worse(other, bounds)] == ["k<2>", "k<1>"]


def test_a_step_of_more_launches_is_named(figures):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    found = worse(figures, bounds, {"decode 1": {"us": 1000.0, "launches": 299}})
    assert found == ["a step of decode 1: launches 299, at most 298 are allowed"]


def test_blocks_of_a_multiprocessor():
    assert estimate.blocks_per_sm(108, 256, 65536) == 2   # registers: 112 x 256 x 2
    assert estimate.blocks_per_sm(64, 128, 74240) == 3    # shared memory
    assert estimate.blocks_per_sm(16, 1024, 0) == 2       # warps


def test_a_page_without_a_tables_place_is_not_written():
    with pytest.raises(SystemExit):
        sass.write_page("no place", {"steps": ["x"]})
    assert sass.write_page("a\n<!-- sass: steps -->\nold\n<!-- end -->\nb", {"steps": ["new"]}) == \
        "a\n<!-- sass: steps -->\nnew\n<!-- end -->\nb"


def test_a_machine_without_nvcc_compares_nothing(capsys):
    assert sass.main(["build"]) == 0
    assert "no nvcc" in capsys.readouterr().out


def test_no_kernel_is_worse_than_its_bound():
    build = os.environ.get("QUERN_BUILD", "build")
    r = subprocess.run(["make", "--no-print-directory", "sass", f"BUILD={build}"], cwd=ROOT, capture_output=True,
                       text=True)
    for line in r.stdout.splitlines():
        if "not compared" in line:
            pytest.skip(line)
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr
