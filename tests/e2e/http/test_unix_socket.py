"""HTTP on a Unix socket and a port: clients, a killed controller, a second service, the end."""

import json
import os
import signal
import stat
import sys

from service import DEMO, ROOT, eventually

sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))
from quern._http import Http    # noqa: E402


def test_a_service_listens_on_a_unix_socket_until_it_ends(start, run, tmp_path):
    path = tmp_path / "http.sock"
    s = start(DEMO, "--http", f"127.0.0.1:0,unix:{path}")
    port, unix = s.ready["http"].split(",")
    assert unix == f"unix:{path}" and stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    for base in (port, f"http://{port}/v1/", unix):
        assert json.loads(Http(base, None).get("/v1/models"))["data"][0]["id"] == "demo"
    report = json.loads(run("bench", "serve", "--base-url", unix, "--num-prompts", "2", "--lengths", "fixed:8,2", "--json").stdout)
    assert report["completed"] == 2
    r = run("serve", DEMO, "--http", unix, "--jobs", f"ipc://{tmp_path}/jobs")
    assert r.returncode == 1 and f"unix:{path}: another process listens on it" in r.stderr
    # A killed controller leaves its socket file, which the next controller replaces.
    s.kill("quern-controlle")
    eventually(lambda: s.log().count(" ready model=") == 2, 30, "another controller")
    assert json.loads(Http(unix, None).get("/livez"))["status"] == "ok"
    s.stop(signal.SIGINT)
    assert not path.exists()
