"""Fixtures of the end-to-end tests, which run the programs in $QUERN_BUILD/bin (build/bin).

    service    a running `quern serve models/demo`; .http, .jobs, .process, .client(), .status()
    stories    the same on the stories260K model, skipped where that is absent
    client     a client of service's job socket
    start      starts further services: start(model, "--chunk", "7")
    run        runs `quern ...` to its end: run("tokenize", model, input="...")

service and stories take options by indirect parametrization:

    @pytest.mark.parametrize("service", [("--max-seqs", "1")], indirect=True)
"""

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from service import BIN, DEMO, QUERN, ROOT, SHARED, SLOW, Service, no_processes_left, served, spawn  # noqa: E402

TEST_S = int(200 * SLOW)    # a test that takes longer has failed
RUN_S = 90 * SLOW
STORIES = SHARED / "weights" / "stories260K-hf-f32"


def pytest_configure(config):
    for program in ("quern", "quern-controller", "quern-worker", "quern-bench", "quern-quantize"):
        if not (BIN / program).exists():
            raise pytest.UsageError(f"{BIN / program} is not built; run: make")


@pytest.fixture(autouse=True)
def _time_limit():
    def expired(signum, frame):
        raise TimeoutError(f"the test took longer than {TEST_S} s")
    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(TEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for s in Service.used:
            report.sections.append((f"log of {' '.join(s.argv)}", s.log()[-8000:]))


@pytest.fixture(scope="module")
def service(request):
    yield from served(DEMO, getattr(request, "param", ()))


@pytest.fixture(scope="module")
def stories_model():
    if not STORIES.is_dir():
        pytest.skip("the stories260K weights are not there")
    return STORIES


@pytest.fixture(scope="module")
def stories(stories_model, request):
    yield from served(stories_model, getattr(request, "param", ()))


@pytest.fixture
def client(service):
    with service.client() as c:
        yield c


@pytest.fixture
def start():
    started = []

    def start_service(*args, **kwargs):
        started.append(Service(*args, **kwargs))
        return started[-1]
    yield start_service
    for s in reversed(started):
        s.stop()
        Service.used.remove(s)


@pytest.fixture
def run():
    """run(*arguments, input=None, timeout=...) -> CompletedProcess with returncode, stdout, stderr (text). No process
    may be left afterwards. A service that is expected to fail gets a free port, so that it takes no other test's
    port."""
    def run_quern(*arguments, input="", timeout=RUN_S):
        mark = uuid.uuid4().hex
        if arguments[:1] == ("serve",) and "--help" not in arguments:
            free = {"--jobs": "tcp://127.0.0.1:*", "--http": "127.0.0.1:0"}
            arguments += tuple(word for option in free.items() if option[0] not in arguments for word in option)
        p = spawn([QUERN, *arguments], mark, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                  stderr=subprocess.PIPE, text=True)
        try:
            out, err = p.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise
        no_processes_left(mark)
        return subprocess.CompletedProcess(p.args, p.returncode, out, err)
    return run_quern


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """tiny("qwen2-moe"): the directory of that model of tests/tools/make_model.py."""
    made = {}

    def make(kind):
        if kind not in made:
            out = tmp_path_factory.mktemp("models") / "tiny"
            p = subprocess.run([sys.executable, ROOT / "tests/tools/make_model.py", out, "--tiny", kind],
                               capture_output=True, text=True)
            if p.returncode:
                pytest.skip(f"tiny models need Python with numpy: {p.stderr[-200:]}")
            made[kind] = out
        return made[kind]
    return make
