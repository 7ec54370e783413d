#!/usr/bin/env python3
"""nvcc -Xptxas -v (on standard input) to a table: kernel, and registers and spills per architecture.

    make BUILD=build/registers cuda CUDA_ARCH="-arch=sm_90a -Xptxas -v" 2>&1 | c++filt |
        tests/tools/ptxas_table.py
"""
import re
import sys


def main():
    kernels, archs, cur = {}, [], None
    for line in sys.stdin:
        m = re.search(r"Compiling entry function '(?:void )?(.*?)\(.*' for '(sm_\w+)'", line)
        if m:
            cur = kernels.setdefault(m.group(1), {}).setdefault(m.group(2), {})
            if m.group(2) not in archs:
                archs.append(m.group(2))
        m = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if m and cur is not None:
            cur["spill"] = int(m.group(1)) + int(m.group(2))
        m = re.search(r"Used (\d+) registers", line)
        if m and cur is not None:
            cur["regs"] = int(m.group(1))
            m = re.search(r"(\d+) bytes smem", line)
            cur["smem"] = int(m.group(1)) if m else 0
            cur = None
    if not kernels:
        sys.exit("no kernels: give it the output of nvcc -Xptxas -v through c++filt")
    archs.sort()
    print("| kernel | " + " | ".join(archs) + " | spills, bytes |")
    print("|---|" + "---|" * (len(archs) + 1))
    for name in sorted(kernels):
        by = kernels[name]
        regs = [str(by[a]["regs"]) if a in by else "" for a in archs]
        spills = [f"{a}: {by[a]['spill']}" for a in archs if a in by and by[a]["spill"]]
        print(f"| `{name}` | " + " | ".join(regs) + " | " + (", ".join(spills) or "0") + " |")


if __name__ == "__main__":
    main()
