#!/usr/bin/env python3
"""Builds a wheel of the Python package with the programs inside: `pip install` of it is all that a machine needs.

    wheel.py BUILD OUT

The wheel holds the package of clients/python, the stripped programs of BUILD/bin, and the libraries that they link, with
the copyright files of their Debian packages.  auditwheel copies the libraries and sets the programs' search path.  The
wheel's tag names the glibc of this machine: the wheel installs where glibc is at least as new (Debian 12's: 2.36).  It has
only the CPU's kernels.  The same input files give the same bytes."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import sbom  # noqa: E402

# Find the package without importing it.
COMMAND = """#!/usr/bin/env python3
import importlib.util, os, sys
package = os.path.dirname(importlib.util.find_spec("quern").origin)
os.execv(os.path.join(package, "programs", {name!r}), [{name!r}, *sys.argv[1:]])
"""


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def stage(build, into):
    """Fill INTO/programs and INTO/commands, which clients/python/hatch_build.py adds to the wheel."""
    programs = sorted(p for p in (build / "bin").glob("quern*") if os.access(p, os.X_OK))
    if not programs:
        sys.exit(f"wheel.py: {build}/bin has no programs: run make first")
    inside, commands = fresh(into / "programs"), fresh(into / "commands")
    for program in programs:
        sbom.run("strip", "--strip-unneeded", "-o", inside / program.name, program)
        (commands / program.name).write_text(COMMAND.format(name=program.name))
        (commands / program.name).chmod(0o755)
    licences = fresh(inside / "licences")
    shutil.copy(ROOT / "LICENSE", licences / "quern")
    for package in sorted(set(sbom.packages_of(sbom.libraries(programs)).values())):
        name = package.split(":")[0]
        shutil.copy(Path("/usr/share/doc") / name / "copyright", licences / name)


def glibc():
    name, version = platform.libc_ver()
    if name != "glibc":
        sys.exit("wheel.py: this machine's C library is not glibc, whose version is the wheel's tag")
    return version.replace(".", "_")


def main(build, out):
    folder = build / "wheel"
    stage(build, folder)
    venv = folder / "venv" / "bin"
    env = {**os.environ, "PATH": f"{venv}:{os.environ['PATH']}", "QUERN_WHEEL": str(folder),
           "SOURCE_DATE_EPOCH": sbom.run(ROOT / "deploy" / "version.sh", "time").strip()}
    plain = fresh(folder / "plain")
    subprocess.run([venv / "python", "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", plain,
                    ROOT / "clients" / "python"], check=True, env=env)
    wheel, = plain.glob("*.whl")
    fresh(out)
    done = subprocess.run([venv / "python", "-m", "auditwheel", "repair", "--plat", f"manylinux_{glibc()}_{platform.machine()}",
                           "--only-plat", "-w", out, wheel], env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit("wheel.py: auditwheel: " + done.stderr)
    done, = out.glob("*.whl")
    print(f"{done}: {done.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: wheel.py BUILD OUT")
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
