#!/usr/bin/env python3
"""Builds a container image of the built programs, as an OCI image layout: no daemon, no base image, no downloads.

    image.py BUILD OUT [--cuda]

The image has the programs, the libraries that they link (of this machine, by ldd), certificate authorities for
`quern pull`, and the demo model.  --cuda adds the CUDA kernels, but not the toolkit: the driver's libraries come from the
container runtime (nvidia-container-toolkit).  The image runs as user 10001 and writes only below /run/quern and
/var/lib/quern.  Two images of the same files have the same digest.

OUT is a layout (https://github.com/opencontainers/image-spec) with the version as its tag: `podman run oci:OUT:VERSION`,
`skopeo copy oci:OUT:VERSION docker-daemon:quern:VERSION`."""

import argparse
import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = 10001
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# The driver's libraries, which must be those of the machine that runs the image.
OF_THE_DRIVER = re.compile(r"^lib(cuda|nvidia-ml)\.so")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nquern:x:{USER}:{USER}::/var/lib/quern:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nquern:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def version(what=""):
    return subprocess.run([ROOT / "deploy" / "version.sh", *what.split()], check=True, capture_output=True,
                          text=True).stdout.strip()


def linked(program):
    """Return {path in the image: file} of all libraries of a program, with the loader, by ldd."""
    found = {}
    out = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        name, _, rest = line.strip().partition(" => ")
        path = (rest or name).split(" (")[0].strip()
        if OF_THE_DRIVER.match(name) or path.startswith("linux-vdso"):
            continue
        if not path.startswith("/"):
            sys.exit(f"image.py: {program} needs {name}, which this machine does not have")
        found[path.lstrip("/")] = Path(path).resolve()
    return found


def stripped(path):
    """Return the bytes of a program without its symbols."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["strip", "--strip-unneeded", "-o", out.name, path], check=True)
        return Path(out.name).read_bytes()


class Layer:
    """A tar archive. Its bytes depend only on its files' contents."""

    def __init__(self, mtime):
        self.mtime, self.files = mtime, {}

    def add(self, path, data, mode=0o644, owner=0):
        self.files[path] = (data, mode, owner)

    def folder(self, path, mode=0o755, owner=0):
        self.files[path] = (None, mode, owner)

    def bytes(self):
        folders = {str(p) for f in self.files for p in Path(f).parents if str(p) != "."}
        for path in folders - set(self.files):
            self.folder(path)
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path, (data, mode, owner) in sorted(self.files.items()):
                entry = tarfile.TarInfo(path)
                entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, owner, self.mtime
                entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
                entry.size = len(data or b"")
                tar.addfile(entry, io.BytesIO(data or b""))
        return out.getvalue()


def fill(layer, build, cuda):
    libraries = {}
    for program in sorted((build / "bin").glob("quern*")):
        layer.add(f"usr/bin/{program.name}", stripped(program), 0o755)
        libraries |= linked(program)
    if cuda:
        kernels = build / "lib" / "libquern-cuda.so"
        if not kernels.exists():
            sys.exit(f"image.py: --cuda: {kernels} is not built; run make cuda where nvcc is")
        layer.add("usr/lib/libquern-cuda.so", stripped(kernels), 0o755)
        libraries |= linked(kernels)
    for path, file in libraries.items():
        layer.add(path, file.read_bytes(), 0o755)
    for path, text in FILES.items():
        layer.add(path, text.encode())
    if CERTIFICATES.exists():
        layer.add(str(CERTIFICATES).lstrip("/"), CERTIFICATES.read_bytes())
    for file in sorted((ROOT / "models" / "demo").iterdir()):
        layer.add(f"usr/share/quern/demo/{file.name}", file.read_bytes())
    layer.add("usr/share/doc/quern/LICENSE", (ROOT / "LICENSE").read_bytes())
    layer.folder("tmp", 0o1777)
    for path in ("run/quern", "var/lib/quern", "var/lib/quern/models"):
        layer.folder(path, 0o700, USER)


def write_blob(out, data):
    digest = hashlib.sha256(data).hexdigest()
    (out / "blobs" / "sha256" / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def document(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def config(tar, created, cuda):
    env = {"PATH": "/usr/bin", "HOME": "/var/lib/quern", "XDG_RUNTIME_DIR": "/run/quern",
           "XDG_CACHE_HOME": "/var/lib/quern/cache", "QUERN_MODELS": "/var/lib/quern/models",
           "QUERN_JOURNAL": "/var/lib/quern/journal"}
    if cuda:
        env |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    return {
        "created": created, "os": "linux", "architecture": ARCHITECTURES[platform.machine()],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
        "history": [{"created": created, "created_by": "deploy/container/image.py"}],
        "config": {
            "User": f"{USER}:{USER}", "WorkingDir": "/var/lib/quern", "StopSignal": "SIGTERM",
            "Entrypoint": ["/usr/bin/quern"], "Cmd": ["serve", "/usr/share/quern/demo"],
            "Env": [f"{k}={v}" for k, v in env.items()],
            "ExposedPorts": {"8080/tcp": {}}, "Volumes": {"/run/quern": {}, "/var/lib/quern": {}},
            # Not in OCI's specification, but Docker and Podman read it.
            "Healthcheck": {"Test": ["CMD", "/usr/bin/quern", "health"], "Interval": 10 * 10**9, "Timeout": 5 * 10**9,
                            "StartPeriod": 600 * 10**9, "Retries": 3},
            "Labels": {"org.opencontainers.image.title": "quern",
                       "org.opencontainers.image.version": version(),
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    mtime = int(version("time"))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(mtime))
    layer = Layer(mtime)
    fill(layer, args.build, args.cuda)
    tar = layer.bytes()

    shutil.rmtree(args.out, ignore_errors=True)
    (args.out / "blobs" / "sha256").mkdir(parents=True)
    packed = write_blob(args.out, gzip.compress(tar, 9, mtime=0))
    settings = write_blob(args.out, document(config(tar, created, args.cuda)))
    manifest = write_blob(args.out, document({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **settings},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **packed}]}))
    tag = re.sub(r"[^A-Za-z0-9_.-]", "-", version()) + ("-cuda" if args.cuda else "")
    (args.out / "index.json").write_bytes(document({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
            {"mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest,
             "annotations": {"org.opencontainers.image.ref.name": tag}}]}))
    (args.out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    print(f"{args.out}:{tag}  {packed['size'] / 1e6:.1f} MB, {len(tar) / 1e6:.1f} MB unpacked, {manifest['digest']}")


main()
