#!/usr/bin/env python3
"""Compare the machine code of the CUDA kernels, and the step time estimated from it, with their bounds.

    python3 tests/sass [--archs] [--update] BUILD [NVCC]

BUILD/sass holds the output of `make sass`.  Bounds are compared only with the nvcc version that they were made with.
With another version, or without nvcc or nvdisasm, this prints a notice and nothing fails.  --update writes the bounds
(bounds.json) and the tables of docs/performance/cuda.md.

--archs compares registers, spills and stack of every kernel, on every architecture that the library was built for, with
archs.json.  ptxas wrote these figures next to the library's objects."""
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
ARCHS = HERE / "archs.json"
MEASURED = HERE / "measured.json"
PAGE = ROOT / "docs" / "performance" / "cuda.md"
AT_LOAD = ("linear_pack", "convert_kernel")  # run once, when a model is loaded
SLACK = 1.02                                 # factor for instructions, and for a step's time


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
    """Return {name: (machine.Kernel, machine.Loop or None)} for all compiled kernels."""
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
    """Return the launches of a step, from the emulated device: {(phase, rows): [Launch]}."""
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
        if operation == "sample":
            l.logits = estimate.sampled(kernel, l.grid)
        if operation in ("head", "last_norm", "gather"):
            l.rows = l.logits
        steps.setdefault((phase, int(rows)), []).append(l)
    return steps


# ---- figures ----


def figures_of(kernels):
    """Return the bounded figures of every kernel that a step runs."""
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
        us, n, moved = 0.0, 0, 0.0
        for l in launches:
            k, loop = kernels[l.kernel]
            times = estimate.layers_of(l, l.kernel in ("list_kernel", "move_kernel"))
            l.resident = estimate.blocks_per_sm(k.registers, l.threads, l.smem + k.static_smem)
            l.us, l.parts = estimate.launch_us(l, l.kernel, loop, l.resident)
            l.bytes_us = estimate.memory_bytes(l) / estimate.A["hbm_tbps"] / 1e6
            us += times * l.us
            moved += times * l.bytes_us
            n += times
        out[f"{phase} {rows}"] = {"us": round(us, 1), "launches": n, "bytes_us": round(moved, 1)}
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
            "steps": {s: {"us": f["us"], "launches": f["launches"]} for s, f in steps.items()}}


def compare(figures, steps, bounds):
    """Return messages about figures that exceed their bound or have none, and the number of checks."""
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
        for what, most in (("us", round(b["us"] * SLACK, 1)), ("launches", b["launches"])):
            if f[what] > most:
                bad.append(f"a step of {name}: {what} {f[what]}, at most {most} are allowed")
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
    yield ("| step | operation | kernel | blocks | threads | shared memory | blocks per SM | waves | us, estimated | bound by | "
           "bytes / bandwidth, us |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for (phase, rows), launches in steps.items():
        for l in launches:
            if l.operation not in estimate.LINEARS and not l.kernel.startswith("attn_kernel"):
                continue
            by = max(l.parts, key=l.parts.get)
            yield (f"| {phase} {rows} | {l.operation} | `{l.kernel}` | {l.grid} | {l.threads} | {l.smem} | {l.resident} | "
                   f"{l.grid / l.resident / estimate.A['sms']:.2f} | {l.us:.1f} | {by} | {l.bytes_us:.1f} |")


def step_table(figures, measured):
    yield ("| step | launches | estimated, ms | of it between launches | bytes / bandwidth, ms | independent estimate, ms | "
           "tokens/s, estimated | measured, ms |")
    yield "|---|---|---|---|---|---|---|---|"
    for name, f in figures.items():
        gap = f["launches"] * estimate.A["launch_us"] / 1000
        rows = int(name.split()[1])
        yield (f"| {name} | {f['launches']} | {f['us'] / 1000:.2f} | {gap:.2f} | {f['bytes_us'] / 1000:.2f} | "
               f"{estimate.INDEPENDENT[name]} | {rows * 1e6 / f['us']:,.0f} | {measured.get(name, 'not yet')} |")


def assumptions(measured):
    yield "| name | assumed | what | measured |"
    yield "|---|---|---|---|"
    for name, (value, what) in estimate.ASSUMED.items():
        m = measured.get(name)
        by = f"**{m['value']}**, {m['date']}, {m['commit']}: {m['how']}" if m else "not yet"
        yield f"| `{name}` | {value} | {what} | {by} |"


def read_measured(path):
    """Return the milliseconds of steps and the values that replace assumptions, from measured.json if it exists."""
    measured = json.loads(path.read_text()) if path.exists() else {}
    assumed = measured.pop("assumed", {})
    for name, ms in measured.items():
        if name not in estimate.INDEPENDENT or not isinstance(ms, (int, float)):
            raise SystemExit(f"measured.json: {name} is no step with its milliseconds")
    return measured, assumed


def tables(kernels, steps, figures, measured, assumed):
    used = {l.kernel for launches in steps.values() for l in launches}
    return {"steps": step_table(figures, measured), "assumed": assumptions(assumed), "launches": launch_table(steps),
            "kernels": kernel_table(kernels, used)}


def write_page(text, parts):
    """Return the page's text with its tables replaced, each between <!-- sass: NAME --> and <!-- end -->."""
    for name, lines in parts.items():
        text, n = re.subn(rf"(<!-- sass: {name} -->\n).*?(<!-- end -->)",
                          lambda m: m.group(1) + "\n".join(lines) + "\n" + m.group(2), text, flags=re.S)
        if n != 1:
            raise SystemExit(f"docs/performance/cuda.md has no place for the table {name}")
    return text


# ---- every architecture of the library ----


def archs_of(build):
    """Return {architecture: {kernel: [registers rounded up to 8, stack, bytes spilled]}} of the library's objects."""
    texts = [p.read_text() for p in sorted(Path(build).glob("obj/kernels/cuda/*.cu.txt"))]
    found = OrderedDict()
    for arch in sorted(set(re.findall(r"for '(sm_\w+)'", "".join(texts))), key=lambda a: int(re.sub(r"\D", "", a))):
        of = {name: k for text in texts for name, k in machine.resources(text, arch).items()}
        plain = demangle(list(of))
        found[arch] = {plain[n]: [-(-k.registers // 8) * 8, k.stack, k.spills] for n, k in of.items()}
    if not found:
        raise SystemExit(f"nothing is compiled in {build}/obj/kernels/cuda: run make sass-archs")
    return found


def archs_text(version, found):
    """Return the text of archs.json, a line per kernel.  Kernels of architectures in "partial" may lack bounds."""
    names = sorted({name for of in found.values() for name in of})
    lines = [f"  {json.dumps(n)}: {json.dumps({a: of[n] for a, of in found.items() if n in of})}" for n in names]
    return f'{{\n "nvcc": "{version}",\n "what": ["registers", "stack", "spills"],\n "partial": [],\n "kernels": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def compare_archs(found, bounds):
    bad, checked = [], 0
    for arch, of in found.items():
        for name, got in of.items():
            most = bounds["kernels"].get(name, {}).get(arch)
            if most is None and arch in bounds["partial"]:
                continue
            checked += 1
            if most is None:
                bad.append(f"{arch}: {name}: has no bounds")
                continue
            bad += [f"{arch}: {name}: {what} {g}, at most {m} are allowed"
                    for what, g, m in zip(bounds["what"], got, most) if g > m]
    bad += [f"{arch}: {name}: has bounds and is not there" for name, of in bounds["kernels"].items() for arch in of
            if name not in found.get(arch, {})]
    return bad, checked


def archs_table(found):
    """Yield a table of every kernel's registers and spills."""
    yield "| kernel | " + " | ".join(found) + " | spills, bytes |"
    yield "|---|" + "---|" * (len(found) + 1)
    for name in sorted({name for of in found.values() for name in of}):
        spills = ", ".join(f"{a}: {of[name][2]}" for a, of in found.items() if name in of and of[name][2])
        yield f"| `{name}` | " + " | ".join(str(of[name][0]) if name in of else "" for of in found.values()) + f" | {spills or 0} |"


def main_archs(build, version, update):
    found = archs_of(build)
    print("\n".join(archs_table(found)), end="\n\n")
    if update:
        ARCHS.write_text(archs_text(version, found))
        print(f"written: {ARCHS.relative_to(ROOT)}")
        return 0
    bounds = json.loads(ARCHS.read_text())
    if bounds["nvcc"] != version:
        print(f"not compared: the bounds are of nvcc {bounds['nvcc']}, this is {version}")
        return 0
    for arch in bounds["partial"]:
        n = sum(arch not in bounds["kernels"].get(name, {}) for name in found.get(arch, {}))
        print(f"not compared: {n} kernels on {arch} have no bounds yet: make sass-archs UPDATE=1")
    return told(*compare_archs(found, bounds), "sass-archs")


def told(bad, checked, target):
    for b in bad:
        print(f"worse: {b}")
    if bad:
        print(f"if that is meant: make {target} UPDATE=1, and say why in the commit")
    print(f"{max(checked - len(bad), 0)} passed, {len(bad)} failed")
    return 1 if bad else 0


def main(argv):
    update = "--update" in argv
    archs = "--archs" in argv
    argv = [a for a in argv if a not in ("--update", "--archs")]
    build, nvcc = argv[0], argv[1] if len(argv) > 1 else ""
    try:
        version = nvcc_version(nvcc)
        if archs:
            return main_archs(build, version, update)
        kernels = kernels_of(build, find_nvdisasm(nvcc, build))
    except Skip as why:
        print(f"machine code not compared: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    steps = launches_of(build)
    measured, assumed = read_measured(MEASURED)
    estimate.assume(assumed)
    figures, step_figures = figures_of(kernels), steps_of(kernels, steps)
    if update:
        BOUNDS.write_text(json.dumps(bounds_for(version, figures, step_figures), indent=1) + "\n")
        PAGE.write_text(write_page(PAGE.read_text(), tables(kernels, steps, step_figures, measured, assumed)))
        print(f"written: {BOUNDS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")
        return 0
    for name, lines in tables(kernels, steps, step_figures, measured, assumed).items():
        if name != "assumed":
            print("\n".join(lines), end="\n\n")
    bounds = json.loads(BOUNDS.read_text())
    if bounds["nvcc"] != version:
        print(f"not compared: the bounds are of nvcc {bounds['nvcc']}, this is {version}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    return told(*compare(figures, step_figures, bounds), "sass")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
