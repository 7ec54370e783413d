#!/usr/bin/env python3
"""Stubs of large libraries that the packed programs are linked with but never call (tests/gpu/pack.sh).

    stubs.py FOLDER LIBRARY...      writes FOLDER/SONAME for each LIBRARY, a path

A stub exports the symbols that the files under FOLDER's parent import from the library, with the same versions.  A
function in QUIET returns its value there; any other prints its name and ends the program."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Functions called at the start and end of a program (by curl_global_init(), by ZeroMQ's contexts): return values.
QUIET = {"OPENSSL_init_ssl": 1, "OPENSSL_init_crypto": 1, "libssh2_init": 0, "libssh2_exit": 0, "pgm_init": 1, "pgm_shutdown": 1}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def defined(library):
    """Return {name: (version or None, whether it is data)} of a library's exports."""
    found = {}
    for line in output("readelf", "--dyn-syms", "-W", library).splitlines():
        f = line.split()
        if len(f) == 8 and f[6] not in ("UND", "ABS") and f[4] in ("GLOBAL", "WEAK", "UNIQUE"):
            name, _, version = f[7].partition("@")
            default = version.startswith("@")
            if name not in found or default:
                found[name] = (version.lstrip("@") or None, f[3] == "OBJECT")
    return found


def imported(path):
    """Return the names that an ELF file imports, and the SONAMEs of the libraries it needs."""
    names = set()
    for line in output("readelf", "--dyn-syms", "-W", path).splitlines():
        f = line.split()
        if len(f) >= 8 and f[6] == "UND":
            names.add(f[7].partition("@")[0])
    return names, set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path)))


def soname(library):
    return re.search(r"\(SONAME\).*\[(.*)\]", output("readelf", "-d", library))[1]


def write_stub(folder, library, wanted):
    name, symbols, versions = soname(library), defined(library), {}
    source = ["#include <stdio.h>", "#include <stdlib.h>",
              f'static long gone(const char *f) {{ fprintf(stderr, "%s: {name} is not in this archive\\n", f); abort(); }}']
    for s in sorted(wanted & set(symbols)):
        version, data = symbols[s]
        versions.setdefault(version, []).append(s)
        source.append(f"char {s}[256];" if data else
                      f"long {s}(void) {{ return {QUIET.get(s, f'gone({chr(34)}{s}{chr(34)})')}; }}")
    script = [f"{v or ''} {{ global: {'; '.join(names)}; {'local: *; ' if v is None else ''}}};"
              for v, names in sorted(versions.items(), key=lambda x: x[0] or "") if v or len(versions) == 1]
    with tempfile.TemporaryDirectory() as tmp:
        c, v = Path(tmp) / "stub.c", Path(tmp) / "stub.map"
        c.write_text("\n".join(source) + "\n")
        v.write_text("\n".join(script) + "\n")
        subprocess.run(["cc", "-w", "-shared", "-fPIC", "-fno-builtin", "-Os", "-s", f"-Wl,-soname,{name}", f"-Wl,--version-script,{v}",
                        "-o", folder / name, c], check=True)


def main():
    folder, libraries = Path(sys.argv[1]), sys.argv[2:]
    names = {soname(x) for x in libraries}
    wanted = set()
    for path in folder.parent.rglob("*"):
        if path.is_file() and path.name not in names and path.open("rb").read(4) == b"\x7fELF":
            imports, needed = imported(path)
            if needed & names:
                wanted |= imports
    for library in libraries:
        write_stub(folder, library, wanted)


if __name__ == "__main__":
    main()
