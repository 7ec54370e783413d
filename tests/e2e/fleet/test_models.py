"""Which model a worker serves: the controller's, or none."""

import os
import shutil
import signal

import pytest

from service import DEMO, eventually, marked


@pytest.fixture
def model(tmp_path):
    """A copy of the demo model."""
    folder = tmp_path / "model"
    folder.mkdir()
    for f in DEMO.iterdir():
        if f.suffix in (".json", ".safetensors"):
            shutil.copy(f, folder / f.name)
    return folder


def test_a_worker_with_other_weights_than_the_controllers_is_refused(start, model, tmp_path):
    """The files are replaced while the service runs; their names, sizes and headers are the same."""
    s = start(model)
    weights = bytearray((model / "model.safetensors").read_bytes())
    header = 8 + int.from_bytes(weights[:8], "little")
    for at in range(header, len(weights), 1000):
        weights[at] ^= 1
    (tmp_path / "new").write_bytes(weights)
    os.replace(tmp_path / "new", model / "model.safetensors")    # the running worker keeps what it has mapped
    (pid,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-work")]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: "is not the model that the controller serves: their weights differ" in s.log(), what="the refusal")
    s.stop(signal.SIGKILL)
