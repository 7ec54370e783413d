#!/usr/bin/env python3
"""The machine code of the CUDA kernels against its bounds, and the step that it lets expect.

    python3 tests/sass [--update] BUILD [NVCC]

BUILD/sass holds what `make sass` compiled.  Bounds are compared if nvcc has the version that they were made with; if
it has another, or is not there, or nvdisasm is not, that is said, and nothing fails.  --update writes the bounds
(bounds.json) and the tables of docs/performance/cuda.md."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import estimate  # noqa: E402
import machine  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BOUNDS = HERE / "bounds.json"
MEASURED = HERE / "measured.json"
PAGE = ROOT / "docs" / "performance" / "cuda.md"
AT_LOAD = ("linear_pack", "convert_kernel")  # run once, when a model is loaded
SLACK = 1.02                                 # of instructions


class Skip(Exception):
    pass


def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, check=True, **more).stdout


def nvcc_version(nvcc):
    if not nvcc:
        raise Skip("no nvcc on this machine")
    return re.search(r"release (\d+\.\d+)", run(nvcc, "--version")).group(1)


def find_nvdisasm(nvcc, build):
    beside = Path(nvcc).resolve().parent / "nvdisasm"
    for p in (beside, shutil.which("nvdisasm"), *glob.glob(str(ROOT / "build/venv-sass/lib/*/site-packages/nvidia/*/bin/nvdisasm")),
              *glob.glob(f"{build}/venv-sass/lib/*/site-packages/nvidia/*/bin/nvdisasm")):
        if p and os.access(p, os.X_OK):
            return str(p)
    raise Skip("no nvdisasm: it is in the toolkit, and in tests/sass/requirements.txt")


def demangle(names):
    out = run("c++filt", input="\n".join(names)).splitlines()
    return {n: re.sub(r"^void ", "", d).split("(")[0] for n, d in zip(names, out)}


def kernels_of(build, nvdisasm):
    """{name: (machine.Kernel, machine.Loop or None)} of everything that was compiled."""
    found = {}
    for cubin in sorted(glob.glob(f"{build}/sass/*.cubin")):
        used = machine.resources(Path(cubin).with_suffix(".txt").read_text())
        code = machine.functions(run(nvdisasm, "-c", cubin))
        plain = demangle(list(used))
        for mangled, k in used.items():
            found[plain[mangled]] = (k, machine.hot_loop(code[mangled]))
    if not found:
        raise SystemExit(f"nothing is compiled in {build}/sass: run make sass")
    return found


# ---- launches ----


@dataclass
class Launch:
    phase: str
    rows: int
    context: int
    operation: str
    kernel: str
    grid: int
    threads: int
    smem: int
    logits: int = 0


def launches_of(build):
    """What a step launches, from the emulated device: {(phase, rows): [Launch]}."""
    program = f"{build}/sass/launches"
    symbols = {}
    for line in run("nm", program).splitlines():
        f = line.split()
        if len(f) == 3 and f[1] in "tTuwW":
            symbols[int(f[0], 16)] = f[2]
    main = next(a for a, n in symbols.items() if n == "main")
    plain = demangle(sorted(set(symbols.values())))
    steps = OrderedDict()
    for line in run(program).splitlines():
        phase, rows, context, operation, at, grid, threads, smem = line.split()
        kernel = plain[symbols[main + int(at)]]
        l = Launch(phase, int(rows), int(context), operation, kernel, int(grid), int(threads), int(smem))
        l.logits = l.rows if phase == "decode" else 1
        if operation == "sample":  # by 32 rows at most
            l.logits = min(l.logits, 32)
        if operation in ("head", "last_norm", "gather"):
            l.rows = l.logits
        steps.setdefault((phase, int(rows)), []).append(l)
    return steps


# ---- figures ----


def figures_of(kernels):
    """What is bounded of every kernel that a step runs."""
    out = {}
    for name, (k, loop) in sorted(kernels.items()):
        if name.startswith(AT_LOAD):
            continue
        f = {"registers": k.registers, "spills": k.spills, "stack": k.stack, "smem": k.static_smem}
        if loop:
            f["instructions"] = round(estimate.instructions(name, loop), 2)
            f["mma"] = loop.mma
        out[name] = f
    return out


def steps_of(kernels, steps):
    out = OrderedDict()
    for (phase, rows), launches in steps.items():
        us, n, by = 0.0, 0, OrderedDict()
        for l in launches:
            k, loop = kernels[l.kernel]
            times = estimate.layers_of(l, l.kernel in ("list_kernel", "move_kernel"))
            t, parts = estimate.launch_us(l, l.kernel, loop)
            us += times * t
            n += times
            by[l.operation] = by.get(l.operation, 0) + times * t
            l.us, l.parts, l.times = t, parts, times
            l.resident = estimate.blocks_per_sm(k.registers, l.threads, l.smem + k.static_smem)
        out[f"{phase} {rows}"] = {"us": round(us, 1), "launches": n, "by": {o: round(v, 1) for o, v in by.items()}}
    return out


def bounds_for(version, figures, steps):
    kernels = {}
    for name, f in figures.items():
        b = {"registers": -(-f["registers"] // 8) * 8, "stack": f["stack"], "smem": f["smem"]}
        if "instructions" in f:
            b["instructions"] = round(f["instructions"] * SLACK + 0.005, 2)
            b["mma"] = f["mma"]
        kernels[name] = b
    return {"nvcc": version, "kernels": kernels,
            "steps": {s: {"us": round(f["us"] * SLACK, 1), "launches": f["launches"]} for s, f in steps.items()}}


def compare(figures, steps, bounds):
    """What is worse than its bound, and what has none."""
    bad, checked = [], 0
    for name, f in figures.items():
        b = bounds["kernels"].get(name)
        checked += 1
        if f["spills"]:
            bad.append(f"{name}: {f['spills']} bytes of registers spilled; none are allowed")
        if b is None:
            bad.append(f"{name}: has no bounds")
            continue
        for what in ("registers", "stack", "smem", "instructions"):
            if f.get(what, 0) > b.get(what, 0):
                bad.append(f"{name}: {what} {f[what]}, at most {b.get(what, 0)} are allowed")
        if f.get("mma", 0) != b.get("mma", 0):
            bad.append(f"{name}: {f.get('mma', 0)} mma in a round of its loop, not {b.get('mma', 0)}")
    bad += [f"{name}: has bounds and is not there" for name in bounds["kernels"] if name not in figures]
    for name, f in steps.items():
        b = bounds["steps"].get(name, {"us": 0, "launches": 0})
        checked += 1
        for what in ("us", "launches"):
            if f[what] > b[what]:
                bad.append(f"a step of {name}: {what} {f[what]}, at most {b[what]} are allowed")
    return bad, checked


# ---- tables ----


def kernel_table(kernels, used):
    yield "| kernel | registers | spills | round: instructions | mma | per unit of 512 bytes or 16 x 64 | per mma |"
    yield "|---|---|---|---|---|---|---|"
    for name in sorted(used):
        k, loop = kernels[name]
        if not loop:
            yield f"| `{name}` | {k.registers} | {k.spills} | no loop | | | |"
            continue
        n, u = estimate.instructions(name, loop), estimate.units(name, loop)
        yield (f"| `{name}` | {k.registers} | {k.spills} | {n:.0f} | {loop.mma or ''} | "
               f"{f'{n / u:.0f}' if u else ''} | {f'{n / loop.mma:.1f}' if loop.mma else ''} |")


def launch_table(steps):
    yield "| step | operation | kernel | blocks | threads | shared memory | blocks per SM | waves | us, estimated | bound by |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for (phase, rows), launches in steps.items():
        for l in launches:
            if l.operation not in estimate.LINEARS and not l.kernel.startswith("attn_kernel"):
                continue
            by = max(l.parts, key=l.parts.get)
            yield (f"| {phase} {rows} | {l.operation} | `{l.kernel}` | {l.grid} | {l.threads} | {l.smem} | {l.resident} | "
                   f"{l.grid / l.resident / estimate.A['sms']:.2f} | {l.us:.1f} | {by} |")


def step_table(figures):
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    yield "| step | launches | estimated, ms | of it between launches | tokens/s, estimated | measured, ms |"
    yield "|---|---|---|---|---|---|"
    for name, f in figures.items():
        gap = f["launches"] * estimate.A["launch_us"] / 1000
        rows = int(name.split()[1])
        yield (f"| {name} | {f['launches']} | {f['us'] / 1000:.2f} | {gap:.2f} | {rows * 1e6 / f['us']:,.0f} | "
               f"{measured.get(name, 'not yet')} |")


def assumptions():
    yield "| assumed | value | what |"
    yield "|---|---|---|"
    for name, (value, what) in estimate.ASSUMED.items():
        yield f"| `{name}` | {value} | {what} |"


def tables(kernels, steps, figures):
    used = {l.kernel for launches in steps.values() for l in launches}
    return {"steps": step_table(figures), "assumed": assumptions(), "launches": launch_table(steps),
            "kernels": kernel_table(kernels, used)}


def write_page(text, parts):
    """The page's text with its tables replaced, each between <!-- sass: NAME --> and <!-- end -->."""
    for name, lines in parts.items():
        text, n = re.subn(rf"(<!-- sass: {name} -->\n).*?(<!-- end -->)",
                          lambda m: m.group(1) + "\n".join(lines) + "\n" + m.group(2), text, flags=re.S)
        if n != 1:
            raise SystemExit(f"docs/performance/cuda.md has no place for the table {name}")
    return text


def main(argv):
    update = "--update" in argv
    argv = [a for a in argv if a != "--update"]
    build, nvcc = argv[0], argv[1] if len(argv) > 1 else ""
    try:
        version = nvcc_version(nvcc)
        kernels = kernels_of(build, find_nvdisasm(nvcc, build))
    except Skip as why:
        print(f"machine code not compared: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    steps = launches_of(build)
    figures, step_figures = figures_of(kernels), steps_of(kernels, steps)
    if update:
        BOUNDS.write_text(json.dumps(bounds_for(version, figures, step_figures), indent=1) + "\n")
        PAGE.write_text(write_page(PAGE.read_text(), tables(kernels, steps, step_figures)))
        print(f"written: {BOUNDS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")
        return 0
    for name, lines in tables(kernels, steps, step_figures).items():
        if name != "assumed":
            print("\n".join(lines), end="\n\n")
    bounds = json.loads(BOUNDS.read_text())
    if bounds["nvcc"] != version:
        print(f"not compared: the bounds are of nvcc {bounds['nvcc']}, this is {version}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    bad, checked = compare(figures, step_figures, bounds)
    for b in bad:
        print(f"worse: {b}")
    if bad:
        print("if that is meant: make sass UPDATE=1, and say why in the commit")
    print(f"{max(checked - len(bad), 0)} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
