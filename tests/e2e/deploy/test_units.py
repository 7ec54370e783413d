"""The systemd units of the Debian packages: their exposure, as systemd measures it (0 to 10)."""

import shutil
import subprocess

import pytest

from service import ROOT

DEBIAN = ROOT / "deploy" / "debian"
MOST = 2.0


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    root = tmp_path_factory.mktemp("units")
    subprocess.run([DEBIAN / "units.sh", root / "usr/lib/systemd/system"], check=True, timeout=30)
    return root


def exposure(root, unit):
    """Measure the unit with its drop-ins."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit],
                          capture_output=True, text=True, timeout=60)
    last = [line for line in done.stdout.splitlines() if "Overall exposure level" in line]
    if not last:
        pytest.skip("systemd-analyze cannot analyze files: " + done.stderr.strip())
    return float(last[0].split(": ")[1].split()[0])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is missing (package systemd)")
@pytest.mark.parametrize("unit", ["quern.service", "quern-worker@cpu.service"])
def test_units_expose_little(units, unit):
    assert exposure(units, unit) <= MOST    # with the devices of quern-cuda
    for drop_in in units.glob("usr/lib/systemd/system/*.d"):
        drop_in.rename(drop_in.with_suffix(".without"))
    try:
        assert exposure(units, unit) <= MOST
    finally:
        for drop_in in units.glob("usr/lib/systemd/system/*.without"):
            drop_in.rename(drop_in.with_suffix(".d"))


def test_both_units_have_the_same_hardening(units):
    hardening = (DEBIAN / "hardening.conf").read_text()
    for unit in ("quern.service", "quern-worker@.service"):
        assert hardening in (units / "usr/lib/systemd/system" / unit).read_text()
