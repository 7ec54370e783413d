"""`quern health` as a container's health check: only its exit status counts."""

import subprocess
import uuid

from service import BIN, DEMO, QUERN, eventually, spawn


def health(*options):
    return subprocess.run([QUERN, "health", *options], capture_output=True, text=True, timeout=60)


def test_a_service_that_serves_is_healthy(service):
    done = health("--to", service.jobs)
    assert (done.returncode, done.stdout) == (0, "ready: serves demo\n")


def test_without_a_service_it_fails_with_the_reason():
    done = health("--to", "tcp://127.0.0.1:9")
    assert done.returncode == 1 and "no service answers at tcp://127.0.0.1:9" in done.stderr


def test_a_service_without_a_worker_is_not_healthy(tmp_path):
    mark = uuid.uuid4().hex
    jobs = f"ipc://{tmp_path}/jobs"
    p = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", f"ipc://{tmp_path}/bus", "--jobs", jobs, "--http", "none"],
              mark, stderr=subprocess.DEVNULL)
    try:
        done = eventually(lambda: (d := health("--to", jobs)) and "not ready" in d.stderr and d, what="an answer")
        assert done.returncode == 1
    finally:
        p.terminate()
        p.wait(30)
