"""Tests the machine-code reader on small samples, and compares the kernels with their bounds."""
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
    """Format lines of instructions and labels as nvdisasm prints a function, and parse them."""
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


def test_of_several_architectures_one_is_read():
    text = PTXAS.format(stack=0, stores=0, loads=0).replace("sm_90a", "sm_80") + \
        PTXAS.format(stack=16, stores=8, loads=12).replace("Used 64", "Used 72").replace("sm_90a", "sm_120")
    k = machine.resources(text, "sm_80")["_Z6kernelv"]
    assert (k.registers, k.stack, k.spills) == (64, 0, 0)
    k = machine.resources(text, "sm_120")["_Z6kernelv"]
    assert (k.registers, k.stack, k.spills) == (72, 16, 20)
    assert machine.resources(text, "sm_100") == {}


@pytest.fixture
def archs(tmp_path):
    (tmp_path / "obj/kernels/cuda").mkdir(parents=True)
    (tmp_path / "obj/kernels/cuda/a.cu.txt").write_text(
        PTXAS.format(stack=0, stores=0, loads=0).replace("sm_90a", "sm_120").replace("Used 64", "Used 61") +
        PTXAS.format(stack=8, stores=4, loads=4).replace("sm_90a", "sm_80"))
    return sass.archs_of(tmp_path)


def test_kernels_of_every_architecture_are_bounded_by_what_they_take(archs):
    assert archs == {"sm_80": {"kernel": [64, 8, 8]}, "sm_120": {"kernel": [64, 0, 0]}}
    assert list(archs) == ["sm_80", "sm_120"]
    bounds = sass.json.loads(sass.archs_text("13.0", archs))
    assert sass.compare_archs(archs, bounds) == ([], 2)
    assert list(sass.archs_table(archs))[2] == "| `kernel` | 64 | 64 | sm_80: 8 |"


@pytest.mark.parametrize("at, value, said", [(0, 72, "registers 72, at most 64"), (1, 8, "stack 8, at most 0"),
                                             (2, 4, "spills 4, at most 0")])
def test_growth_on_one_architecture_is_named(archs, at, value, said):
    bounds = sass.json.loads(sass.archs_text("13.0", archs))
    archs["sm_120"]["kernel"][at] = value
    assert sass.compare_archs(archs, bounds)[0] == [f"sm_120: kernel: {said} are allowed"]


def test_an_architecture_that_is_missing_or_new_is_named(archs):
    bounds = sass.json.loads(sass.archs_text("13.0", archs))
    archs["sm_89"] = archs.pop("sm_80")
    assert sass.compare_archs(archs, bounds)[0] == ["sm_89: kernel: has no bounds", "sm_80: kernel: has bounds and is not there"]
    bounds["partial"] = ["sm_89"]
    assert sass.compare_archs(archs, bounds) == (["sm_80: kernel: has bounds and is not there"], 1)


@pytest.fixture
def figures():
    return {"k<1>": {"registers": 61, "spills": 0, "stack": 0, "smem": 0, "instructions": 100, "mma": 8}}


STEPS = {"decode 1": {"us": 1000.0, "launches": 298, "bytes_us": 500.0}}


def worse(figures, bounds, steps=STEPS):
    return sass.compare(figures, steps, bounds)[0]


def test_what_is_as_bounded_passes(figures):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    assert worse(figures, bounds) == []
    assert bounds["kernels"]["k<1>"]["registers"] == 64  # registers are allocated in eights


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


def test_a_step_may_take_two_percent_more_than_its_estimate(figures):
    bounds = sass.bounds_for("13.0", figures, STEPS)
    assert bounds["steps"]["decode 1"]["us"] == 1000.0  # the estimate itself, which others read there
    assert worse(figures, bounds, {"decode 1": {"us": 1020.0, "launches": 298}}) == []
    assert worse(figures, bounds, {"decode 1": {"us": 1020.1, "launches": 298}}) == \
        ["a step of decode 1: us 1020.1, at most 1020.0 are allowed"]


# ---- the estimate ----


@pytest.fixture(autouse=True)
def as_assumed():
    yield
    estimate.assume({})


def launch(operation, kernel, rows=1, grid=256, threads=256, phase="decode", context=1024):
    return sass.Launch(phase, rows, context, operation, kernel, grid, threads, 0, rows if phase == "decode" else 1)


STREAM, TILE = "linear_stream_kernel<false, 1, 1, 1>", "linear_tile_kernel<false, 1, 2, 8, 4, 1, 5>"
SPLIT, WIDE = "attn_kernel<false, 128, true, false, 2>", "attn_kernel<false, 128, false, false, 2>"


def test_a_multiprocessor_issues_less_with_few_warps_and_less_still_with_a_barrier():
    assert estimate.issued(launch("o", STREAM), STREAM, 3) == 4 * 0.8            # two blocks of 8 warps on 132 multiprocessors
    assert estimate.issued(launch("o", STREAM), STREAM, 1) == 4 * 0.65           # only one block fits
    assert estimate.issued(launch("o", STREAM, grid=132), STREAM, 3) == 4 * 0.65  # there is only one block
    assert estimate.issued(launch("qkv", TILE, 64, 384, 128), TILE, 2) == 4 * 0.58
    assert estimate.issued(launch("attention", SPLIT, 64, 400, 128), SPLIT, 3) == 4 * 0.65
    assert estimate.issued(launch("attention", WIDE, 2048, 1024, 128, "prompt"), WIDE, 2) == 4 * 0.58
    assert estimate.issued(launch("o", TILE, 64, 132, 128), TILE, 1) == 4 * 0.58  # one warp counts as two


def test_the_clock_falls_with_the_load():
    clocks = [estimate.clock_ghz(launch("o", STREAM, rows)) for rows in (1, 16, 17, 64, 65, 256)]
    assert clocks == [1.95, 1.95, 1.8, 1.8, 1.7, 1.7]
    assert estimate.clock_ghz(launch("head", STREAM, 1, phase="prompt")) == 1.7


def linear_loop(instructions):
    return machine.Loop(8, 5, 0, instructions, instructions, instructions)


def test_a_linear_layer_takes_its_longest_part_and_the_edges_of_a_launch():
    l = launch("down", STREAM)
    us, parts = estimate.launch_us(l, STREAM, linear_loop(208), 3)
    weights = 12288 * 4096 * (0.5 + 2.5 / 128)
    assert parts["memory"] == pytest.approx(weights / 4.3e6)
    # 12,288 / 64 x 4,096 / 16 units on 256 blocks, two per multiprocessor; 104 instructions per unit
    assert parts["issue"] == pytest.approx(192 * 256 / 256 * 2 * 104 / 3.2 / 1950)
    assert us == pytest.approx(parts["issue"] + 1.0 + 1.0 + 0.9)  # gap, ramp, tail
    us, parts = estimate.launch_us(l, STREAM, linear_loop(100), 3)
    assert us == pytest.approx(parts["memory"] + 2.9)


def test_the_head_reads_scattered_pieces():
    l = launch("head", "linear_stream_kernel<false, 0, 2, 1>", grid=1187, threads=128)
    _, parts = estimate.launch_us(l, l.kernel, linear_loop(10), 4)
    assert parts["memory"] == pytest.approx(4096 * 151936 * 2 / 4.3e6 / 0.93)


def test_attention_of_one_sequence_is_a_chain_of_round_trips():
    loop = machine.Loop(32, 16, 8, 749, 749, 749)
    l = launch("attention", SPLIT, grid=400, threads=128)
    us, parts = estimate.launch_us(l, SPLIT, loop, 3)
    assert max(parts, key=parts.get) == "latency" and parts["latency"] == pytest.approx(4 * 0.7)
    assert us == pytest.approx(1.0 + 1.0 + 1.8 + 2.8 + 2 * 0.7)  # gap, ramp, chain to the first key, steps, fold
    short = launch("attention", SPLIT, grid=400, threads=128, context=256)  # one chunk: nothing to fold
    assert estimate.launch_us(short, SPLIT, loop, 3)[0] == pytest.approx(us - 2 * 0.7)
    prompt = launch("attention", WIDE, 2048, 1024, 128, "prompt", 2048)
    us, parts = estimate.launch_us(prompt, WIDE, machine.Loop(128, 16, 8, 877, 877, 877), 2)
    assert us == pytest.approx(max(parts.values()) + 2.0)


def test_the_host_is_read_slowly_and_a_graph_has_a_start():
    def us(operation, kernel, phase="decode"):
        return estimate.launch_us(launch(operation, kernel, phase=phase), kernel, None, 8)[0]
    plain = us("rotate", "qkv_kernel<false>")
    assert plain == pytest.approx(1.0 + 1.6 + 4096 * 12 / 5.5e6)
    assert us("batch", "batch_spread_kernel") == pytest.approx(plain + 3.0)
    assert us("embed", "embed_kernel<false>") == pytest.approx(plain + 4.0)
    assert us("embed", "embed_kernel<false>", "prompt") == pytest.approx(plain)


def test_the_sampler_reads_the_logits_of_the_rows_of_a_launch():
    assert [estimate.sampled(k, g) for k, g in (("sample_kernel", 132), ("sample_max_kernel", 132 * 38),
                                                ("sample_exp_kernel", 38), ("move_kernel", 43))] == [132, 132, 1, 0]


def test_bytes_are_those_that_no_kernel_can_leave_out():
    l = launch("gateup", STREAM)
    assert estimate.memory_bytes(l) == 4096 * 24576 * (0.5 + 2.5 / 128)
    l.rows = 256  # weights are read once, whatever the rows
    assert estimate.memory_bytes(l) == 4096 * 24576 * (0.5 + 2.5 / 128)
    assert estimate.memory_bytes(launch("attention", SPLIT, 64)) == 64 * 1024 * 8 * 128 * 2 * 2
    assert estimate.memory_bytes(launch("attention", "list_kernel", 64)) == 0
    assert estimate.memory_bytes(launch("norm", "rmsnorm_kernel<false, 0>", 64)) == 0


def test_a_steps_bytes_are_summed_over_its_layers():
    l = launch("down", STREAM)
    kernels = {STREAM: (machine.Kernel("k", registers=79), linear_loop(208))}
    step = sass.steps_of(kernels, {("decode", 1): [l]})["decode 1"]
    assert step["launches"] == 36
    assert step["bytes_us"] == round(36 * 12288 * 4096 * (0.5 + 2.5 / 128) / 4.3e6, 1)
    assert step["us"] == round(36 * l.us, 1)
    table = list(sass.step_table({"decode 1": step}, {"decode 1": 1.9}))
    assert table[2] == f"| decode 1 | 36 | {step['us'] / 1000:.2f} | 0.04 | {step['bytes_us'] / 1000:.2f} | 2.3 | " \
        f"{1e6 / step['us']:,.0f} | 1.9 |"


# ---- measurements ----

PROBE = {"value": 1.3, "date": "2026-12-01", "commit": "0123abcd", "how": "1,000 empty kernels in a graph"}


def test_a_measured_value_replaces_an_assumption_and_is_shown(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(sass.json.dumps({"decode 1": 2.25, "assumed": {"launch_us": PROBE}}))
    steps, assumed = sass.read_measured(path)
    assert steps == {"decode 1": 2.25}
    l = launch("rotate", "qkv_kernel<false>")
    before = estimate.launch_us(l, l.kernel, None, 8)[0]
    estimate.assume(assumed)
    assert estimate.launch_us(l, l.kernel, None, 8)[0] == pytest.approx(before + 0.3)
    row = next(line for line in sass.assumptions(assumed) if line.startswith("| `launch_us`"))
    assert "| 1.0 |" in row and row.endswith("| **1.3**, 2026-12-01, 0123abcd: 1,000 empty kernels in a graph |")
    estimate.assume({})
    assert estimate.launch_us(l, l.kernel, None, 8)[0] == before


@pytest.mark.parametrize("measured, said", [
    ({"launch_ms": PROBE}, "nothing is assumed as launch_ms"),
    ({"launch_us": {"value": 1.3}}, "launch_us needs a value"),
    ({"launch_us": {**PROBE, "value": "1.3"}}, "launch_us needs a value"),
    ({"launch_us": {**PROBE, "unit": "us"}}, "launch_us needs a value"),
])
def test_a_measurement_without_its_origin_is_refused(measured, said):
    with pytest.raises(SystemExit, match=said):
        estimate.assume(measured)


def test_what_a_gpu_run_measures_has_the_names_of_assumptions():
    names = sass.re.findall(r'^\t\{"(\w+)", \w+, "', (ROOT / "tests/gpu/assumed.c").read_text(), sass.re.M)
    assert len(names) > 10 and set(names) <= set(estimate.ASSUMED)


def test_a_measured_step_has_the_name_of_one(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text('{"decode1": 2.0}')
    with pytest.raises(SystemExit, match="decode1 is no step"):
        sass.read_measured(path)
    assert sass.read_measured(tmp_path / "none.json") == ({}, {})


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


# Targets of a build with the bounds' nvcc: 10.0 and 12.0 need CUDA 12.8.
MADE = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120", "compute_100", "compute_120"}


def test_a_first_start_compiles_nothing_on_any_architecture(tmp_path):
    """An object of the library has machine code for each architecture; all objects are built by the same rule."""
    build = Path(os.environ.get("QUERN_BUILD", "build"))
    nvcc = subprocess.run(["make", "-s", "--eval", "nvcc:;@echo $(NVCC)", "nvcc"], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()
    if not nvcc:
        pytest.skip("not compared: no nvcc on this machine")
    version = sass.json.loads(sass.BOUNDS.read_text())["nvcc"]
    if sass.nvcc_version(nvcc) != version:
        pytest.skip(f"not compared: the bounds are of nvcc {version}")
    r = subprocess.run(["make", "--no-print-directory", f"BUILD={tmp_path}", f"{tmp_path}/obj/kernels/cuda/batch.cu.o"], cwd=ROOT,
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    assert machine.architectures(tmp_path / "obj/kernels/cuda/batch.cu.o") == MADE
    remarks = (tmp_path / "obj/kernels/cuda/batch.cu.txt").read_text()  # read by make sass-archs
    assert set(sass.re.findall(r"for '(sm_\w+)'", remarks)) == {a for a in MADE if a.startswith("sm_")}
    library = ROOT / build / "lib/libquern-cuda.so"
    if library.exists():
        assert machine.architectures(library) == MADE


def test_no_kernel_is_worse_than_its_bound():
    build = os.environ.get("QUERN_BUILD", "build")
    r = subprocess.run(["make", "--no-print-directory", "sass", f"BUILD={build}"], cwd=ROOT, capture_output=True,
                       text=True)
    for line in r.stdout.splitlines():
        if "not compared" in line:
            pytest.skip(line)
    assert r.returncode == 0, r.stdout[-3000:] + r.stderr
