#!/usr/bin/env python3
"""Fetches the data that some tests need and that is not in the repository, as tests/data/sources.toml lists it.

    tests/data/fetch.py                   fetch what is missing or wrong, and check it
    tests/data/fetch.py tokenizers        only this file or folder (several may be named)
    tests/data/fetch.py --check           check what is there, without the network

The folder is --folder, else $QUERN_SHARED_DATA, else shared/data next to the checkout; tests look for it in the same way.
A file gets its name when its SHA-256 is right.  Files that the project made from others are copied from tests/data/made,
or computed by tests/data/derive.py; a few cannot be had, and are only named.  The exit status is 0 if all other chosen
files are there and right, else 1."""
import argparse
import gzip
import hashlib
import io
import os
import sys
import tarfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import derive   # noqa: E402

LIST = HERE / "sources.toml"
HUB = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
ARCHIVES = "https://codeload.github.com/{repository}/tar.gz/{commit}"
TIMEOUT_S = 60
AT_ONCE = 8


class Unobtainable(Exception):
    """A file cannot be had; the message says why."""


def default_folder(env=os.environ):
    return Path(env.get("QUERN_SHARED_DATA") or HERE.parents[2] / "shared/data")


def entries(path=LIST):
    """Return {path in the folder: entry}.  An entry has `kind` (source, archive or made), `sha256` and the fields of its
    table; that of a source also has the file's `path` in the repository."""
    listed, found = tomllib.loads(path.read_text(encoding="utf-8")), {}
    for kind in ("source", "archive", "made"):
        for table in listed.get(kind, []):
            for name, sha256, *other in table["files"]:
                entry = {**table, "kind": kind, "sha256": sha256}
                if kind == "source":
                    entry["path"] = f"{table['from']}/{other[0] if other else name.removesuffix('.gz')}".lstrip("/")
                full = f"{table['to']}/{name}"
                if full in found:
                    raise SystemExit(f"{path}: {full} is listed twice")
                found[full] = entry
    return found


def digest(name, data, entry):
    """Return the SHA-256 of a file: of what a .gz contains, and of the names and contents of an archive's files."""
    if entry["kind"] != "archive":
        return hashlib.sha256(gzip.decompress(data) if name.endswith(".gz") else data).hexdigest()
    total = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in sorted((m for m in tar if m.isfile()), key=lambda m: m.name):
            total.update(f"{member.name}\0{member.size}\0".encode() + tar.extractfile(member).read())
    return total.hexdigest()


def wrong(name, data, entry):
    """Return what is wrong with the contents of a file; None: nothing."""
    try:
        got = digest(name, data, entry)
    except (OSError, EOFError, tarfile.TarError) as e:    # OSError: not in gzip's format
        return f"damaged ({e})"
    return None if got == entry["sha256"] else f"wrong checksum: SHA-256 {got}, not {entry['sha256']}"


def fault(folder, name, entry):
    """Return what is wrong with a file of the folder; None: nothing."""
    try:
        return wrong(name, (folder / name).read_bytes(), entry)
    except OSError as e:
        return "missing" if isinstance(e, FileNotFoundError) else e.strerror


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
            return reply.read()
    except urllib.error.HTTPError as e:
        raise Unobtainable(f"{url}: HTTP {e.code}") from e
    except OSError as e:
        raise Unobtainable(f"{url}: {getattr(e, 'reason', e)}") from e


def repacked(data, folders):
    """Return an archive of these folders of a repository's archive, without its outermost folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar, tarfile.open(fileobj=out, mode="w:gz") as to:
        for member in tar:
            inner = member.name.partition("/")[2]
            if member.isfile() and inner.startswith(tuple(f"{f}/" for f in folders)):
                kept = tarfile.TarInfo(inner)
                kept.size = member.size
                to.addfile(kept, tar.extractfile(member))
    return out.getvalue()


def made(folder, name, entry):
    for kept in (HERE / "made" / name, HERE / "made" / f"{name}.gz"):
        if kept.is_file():
            return kept.read_bytes() if kept.name == Path(name).name else gzip.decompress(kept.read_bytes())
    if name not in derive.MADE:
        raise Unobtainable(f"cannot be had: {entry['how']}")
    try:
        return derive.MADE[name](folder)
    except FileNotFoundError as e:
        raise Unobtainable(f"is made from {e.filename}, which is missing") from e


def contents(folder, name, entry, hub, archives):
    """Return the bytes of a file, to be stored as `name`; raise Unobtainable."""
    if entry["kind"] == "made":
        return made(folder, name, entry)
    quoted = {k: urllib.parse.quote(entry[k]) for k in ("repository", "commit", "path") if k in entry}
    if entry["kind"] == "archive":
        return repacked(get(archives.format(**quoted)), entry["folders"])
    data = get(hub.format(**quoted))
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


def store(folder, name, entry, hub=HUB, archives=ARCHIVES):
    """Put a file into the folder.  Return why that failed; None: the file is there and right."""
    try:
        data = contents(folder, name, entry, hub, archives)
        if why := wrong(name, data, entry):
            return f"{why} (from {entry.get('repository', 'tests/data')})"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(data)
        os.replace(part, path)
        return None
    except Unobtainable as e:
        return str(e)
    except OSError as e:
        return f"{e.filename}: {e.strerror}"


def chosen(listed, patterns):
    """Return the listed files that are one of these files, or in one of these folders; without any, all."""
    for p in patterns:
        if not any(name == p or name.startswith(p.rstrip("/") + "/") for name in listed):
            raise SystemExit(f"{p}: no file or folder of {LIST.name}")
    return {n: e for n, e in listed.items()
            if not patterns or any(n == p or n.startswith(p.rstrip("/") + "/") for p in patterns)}


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("paths", nargs="*", metavar="PATH", help="files or folders of the data (default: all)")
    ap.add_argument("--check", action="store_true", help="fetch nothing; report what is missing or wrong")
    ap.add_argument("--folder", type=Path, help="where the data is")
    ap.add_argument("--list", type=Path, default=LIST, help="the list of files (default tests/data/sources.toml)")
    ap.add_argument("--hub", default=HUB, help="address of a file, with {repository}, {commit} and {path}")
    ap.add_argument("--archives", default=ARCHIVES, help="address of a repository's archive, with {repository} and {commit}")
    args = ap.parse_args(argv)
    folder = args.folder or default_folder()
    files = chosen(entries(args.list), args.paths)
    faults = {name: why for name, entry in files.items() if (why := fault(folder, name, entry))}
    if not args.check:
        fetched = [name for name in faults if files[name]["kind"] != "made"]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = dict(zip(fetched, pool.map(lambda n: store(folder, n, files[n], args.hub, args.archives), fetched)))
        said |= {name: store(folder, name, files[name]) for name in faults if name not in said}
        print(f"{sum(why is None for why in said.values())} files fetched or made")
        faults = {name: why for name, why in said.items() if why}
    for name, why in faults.items():
        print(f"{name}: {why}", file=sys.stderr)
    print(f"{len(files) - len(faults)} of {len(files)} files are in {folder} and right")
    return 1 if any(not files[name].get("missing") for name in faults) else 0


if __name__ == "__main__":
    sys.exit(main())
