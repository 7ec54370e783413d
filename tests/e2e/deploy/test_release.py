"""Versions from tags, reproducible archives, and the SBOM of the built programs."""

import importlib.util
import json
import os
import shutil
import subprocess
import tarfile

import pytest

from service import BIN, BUILD, ROOT


def sh(folder, *command, **env):
    return subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **env})


@pytest.fixture
def tree(tmp_path):
    """A temporary checkout with the scripts, a version and one commit."""
    folder = tmp_path / "tree"
    (folder / "deploy").mkdir(parents=True)
    (folder / "base").mkdir()
    for name in ("version.sh", "dist.sh"):
        shutil.copy(ROOT / "deploy" / name, folder / "deploy")
    (folder / "base" / "version.h").write_text('#define QUERN_VERSION "1.2.0"\n')
    sh(folder, "git", "init", "-q")
    commit(folder)
    return folder


def commit(folder):
    sh(folder, "git", "add", "-A")
    done = sh(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "one",
              GIT_COMMITTER_DATE="2026-03-04T05:06:07Z")
    assert done.returncode == 0, done.stderr


def version(folder):
    return sh(folder, "deploy/version.sh").stdout.strip()


def test_the_version_is_that_of_the_tag(tree):
    assert version(tree).startswith("1.2.0~git20260304.")
    sh(tree, "git", "tag", "v1.2.0")
    assert version(tree) == "1.2.0"
    commit(tree)
    assert version(tree).startswith("1.2.0+git20260304.")


def test_a_tag_that_is_not_the_sources_version_is_refused(tree):
    sh(tree, "git", "tag", "v1.3.0")
    done = sh(tree, "deploy/version.sh")
    assert done.returncode == 1 and "the tag is v1.3.0, base/version.h has 1.2.0" in done.stderr


def test_an_archive_is_the_same_twice_and_knows_its_version(tree, tmp_path):
    sums = []
    for umask in (0o022, 0o077):
        old = os.umask(umask)
        try:
            done = sh(tree, "deploy/dist.sh", tmp_path / "out")
        finally:
            os.umask(old)
        assert done.returncode == 0, done.stderr
        sums.append((tmp_path / "out" / "SHA256SUMS").read_text())
    assert sums[0] == sums[1]
    archive = next((tmp_path / "out").glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        assert {m.mtime for m in tar} == {1772600767}
        # Python in Debian 12 has no extraction filters.
        tar.extractall(tmp_path / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    unpacked = next((tmp_path / "unpacked").iterdir())
    assert version(unpacked) == version(tree)
    assert sh(unpacked, "deploy/version.sh", "time").stdout.strip() == "1772600767"


def test_changes_that_are_not_committed_are_refused(tree, tmp_path):
    (tree / "base" / "version.h").write_text('#define QUERN_VERSION "1.2.1"\n')
    done = sh(tree, "deploy/dist.sh", tmp_path / "out")
    assert done.returncode == 1 and "not committed" in done.stderr


def load_sbom():
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "deploy" / "sbom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="dpkg is missing: packages are Debian's")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_the_sbom_names_every_linked_library(tmp_path):
    out = tmp_path / "quern.spdx.json"
    done = sh(ROOT, "python3", "deploy/sbom.py", BUILD, out)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    linked = " ".join(p.get("sourceInfo", "") for p in document["packages"])
    for line in sh(ROOT, "ldd", BIN / "quern-controller").stdout.splitlines():
        if " => " in line:
            assert line.split()[0] in linked, line
    packages = {p["name"]: p for p in document["packages"]}
    assert packages["libmicrohttpd12"]["licenseDeclared"].startswith("LGPL-2.1-or-later")
    assert packages["quern"]["licenseDeclared"] == "Apache-2.0"
    ids = {p["SPDXID"] for p in document["packages"]} | {"SPDXRef-DOCUMENT"}
    for r in document["relationships"]:
        assert {r["spdxElementId"], r["relatedSpdxElement"]} <= ids


def test_licences_are_spelled_as_spdx_has_them():
    own = {}
    expression = load_sbom().expression
    assert expression("LGPL-2.1+", own) == "LGPL-2.1-or-later"
    assert expression("Expat or GPL-2+", own) == "(MIT OR GPL-2.0-or-later)"
    assert own == {}
    assert expression("odd one", own) == "LicenseRef-debian-odd-one" and own == {"LicenseRef-debian-odd-one": "odd one"}
