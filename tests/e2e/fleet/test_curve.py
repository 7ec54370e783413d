"""Keys: access to a service on TCP for listed and unlisted peers (CURVE, ZAP, the list of keys)."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import msgpack
import pytest
import zmq

from jobclient import CONTEXT, JobClient, JobError
from service import BIN, DEMO, QUERN, eventually, free_port, marked, no_processes_left, spawn

PROMPT = "Once upon a time"
SHORT = dict(max_tokens=8, temperature=0, ignore_eos=True)
LONG = dict(max_tokens=400, seed=3, ignore_eos=True)
QUIET_S = 0.7   # how long a refused peer waits for a reply; a reply would take milliseconds


class Keys:
    """A directory of key files, and the list of admitted keys."""

    def __init__(self, directory):
        self.dir, self.listed = Path(directory), []
        self.allow = self.dir / "allow"
        self.new("service")
        self.write()

    def new(self, name, role=None):
        r = subprocess.run([QUERN, "keygen", "--out", self.dir, "--name", name], capture_output=True, text=True, timeout=30)
        assert r.returncode == 0, r.stderr
        if role:
            self.listed.append((role, name))
            self.write()

    def remove(self, name):
        self.listed = [e for e in self.listed if e[1] != name]
        self.write()

    def write(self):
        text = "".join(f"{role} {self.public(name)} {name}\n" for role, name in self.listed)
        new = self.dir / "allow.new"
        new.write_text(text)
        new.chmod(0o600)
        new.rename(self.allow)

    def half(self, name, which):
        for line in (self.dir / f"{name}.key").read_text().splitlines():
            if line.startswith(which + " = "):
                return line.split(" = ")[1]
        raise AssertionError(f"{name} has no {which} key")

    def public(self, name):
        return self.half(name, "public")

    def options(self, name):
        return "--key", self.dir / f"{name}.key", "--server-key", self.dir / "service.pub"

    def client(self, endpoint, name, server="service"):
        return KeyedClient(endpoint, self.half(name, "public"), self.half(name, "secret"), self.public(server))


class KeyedClient(JobClient):
    def __init__(self, endpoint, public, secret, server, identity=None):
        self.curve = public.encode(), secret.encode(), server.encode()
        super().__init__("inproc://nowhere")
        self.socket.close(linger=0)
        self.socket = CONTEXT.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.curve_publickey, self.socket.curve_secretkey, self.socket.curve_serverkey = self.curve
        if identity:
            self.socket.routing_id = identity
        self.socket.connect(endpoint)


@pytest.fixture(scope="module")
def keys():
    with tempfile.TemporaryDirectory(prefix="quern-keys-") as d:
        yield Keys(d)


@pytest.fixture(scope="module")
def locked(keys):
    """A service with keys on job socket and bus; alice and bob are clients, wanda a worker, root an admin."""
    from service import Service
    for role, name in (("client", "alice"), ("client", "bob"), ("worker", "wanda"), ("admin", "root")):
        keys.new(name, role)
    keys.new("eve")
    s = Service(DEMO, "--bus", f"tcp://127.0.0.1:{free_port()}", "--curve-key", keys.dir / "service.key", "--allow", keys.allow)
    yield s
    s.stop()
    Service.used.remove(s)


@pytest.fixture
def alice(keys, locked):
    with keys.client(locked.jobs, "alice") as c:
        yield c


def silent(client):
    """The client sends a request and gets no reply."""
    client.socket.sndtimeo = int(QUIET_S * 1000)    # it may have been refused before it sends
    try:
        client.send({"op": "ping"})
    except zmq.Again:
        return
    with pytest.raises(TimeoutError):
        client.recv_frames(QUIET_S)


# --- admission ---

def test_listed_client_is_served(alice):
    assert len(alice.generate(PROMPT, **SHORT).tokens) == SHORT["max_tokens"]


def test_key_file_is_not_an_idempotency_key(keys, locked):
    """Two submits of the same client are two jobs, whichever file its key is read from."""
    texts = [subprocess.run([QUERN, "submit", "--to", locked.jobs, *keys.options("alice"), "-m", "3", "-t", "0", prompt],
                            capture_output=True, text=True, timeout=60) for prompt in (PROMPT, "A dog")]
    assert [t.returncode for t in texts] == [0, 0], texts


def test_worker_started_by_serve_may_join(alice):
    (w,) = alice.workers()
    assert w["state"] == "serving"


def test_unlisted_key_gets_no_answer(keys, locked, alice):
    with keys.client(locked.jobs, "eve") as eve:
        silent(eve)
    assert alice.ping()["ready"]


def test_client_without_a_key_gets_no_answer(locked, alice):
    with JobClient(locked.jobs) as keyless:
        silent(keyless)
    assert alice.ping()["ready"]


def test_worker_key_is_not_a_client_key(keys, locked, alice):
    with keys.client(locked.jobs, "wanda") as wanda:
        silent(wanda)


def test_wrong_server_key_gets_no_answer(keys, locked):
    with keys.client(locked.jobs, "alice", server="eve") as c:
        silent(c)


def test_own_key_of_the_service_is_served(keys, locked):
    with keys.client(locked.jobs, "service") as c:
        assert c.ping()["ready"]


def test_routing_id_of_another_client_grants_nothing(keys, locked, alice):
    """The peer chooses its routing id itself."""
    identity = b"\x01the-same-name"
    pair = keys.half("alice", "public"), keys.half("alice", "secret")
    with KeyedClient(locked.jobs, *pair, keys.public("service"), identity=identity) as real:
        assert real.ping()["ready"]
        eve = keys.half("eve", "public"), keys.half("eve", "secret")
        with KeyedClient(locked.jobs, *eve, keys.public("service"), identity=identity) as spoof:
            silent(spoof)
        bob = keys.half("bob", "public"), keys.half("bob", "secret")
        job = real.submit(PROMPT, **LONG)
        job.first_delta()
        with KeyedClient(locked.jobs, *bob, keys.public("service"), identity=identity) as other:
            silent(other)       # the first peer with that id keeps it
        assert len(job.done().tokens) == LONG["max_tokens"]


def test_key_removed_from_the_list_is_refused_at_once(keys, locked, alice):
    keys.new("carol", "client")
    with keys.client(locked.jobs, "carol") as carol:
        assert carol.ping()["ready"]
        running = carol.submit(PROMPT, max_tokens=2000, n=16, ignore_eos=True, seed=1)
        running.first_delta()
        keys.remove("carol")

        def refused():
            """The connection stays open; requests are refused or not answered."""
            try:
                carol.ping()
                return False
            except JobError as e:
                return e.code == "E_AUTH"
        eventually(refused, what="the refusal")
    eventually(lambda: alice.status()["running"] == 0, what="the end of the jobs")
    with keys.client(locked.jobs, "carol") as carol:
        silent(carol)
    assert alice.ping()["ready"]


def test_key_added_to_the_list_is_served_at_once(keys, locked):
    keys.new("dave")
    with keys.client(locked.jobs, "dave") as dave:
        silent(dave)
    keys.listed.append(("client", "dave"))
    keys.write()
    with keys.client(locked.jobs, "dave") as dave:
        assert dave.ping()["ready"]


# --- owners of jobs ---

def test_jobs_of_another_key_are_not_visible(keys, locked, alice):
    mine = alice.submit(PROMPT, stream=False, key="once", on_disconnect="keep", **SHORT)
    done = mine.done()
    with keys.client(locked.jobs, "bob") as bob:
        for op in ("attach", "cancel", "result"):
            with pytest.raises(JobError) as e:
                bob.recv(bob.send({"op": op, "job": done.job}))
            assert e.value.code == "E_NO_SUCH_JOB"
        assert done.job not in [j["job"] for j in bob.jobs()]
        assert done.job in [j["job"] for j in alice.jobs()]
        # Idempotency keys are per owner.
        assert bob.generate(PROMPT, key="once", **SHORT).job != done.job
    assert alice.generate(PROMPT, key="once", **SHORT).job == done.job
    with keys.client(locked.jobs, "alice") as again:    # another connection with the same key
        assert again.result(done.job).tokens == done.tokens


def live_jobs(service):
    """Return the jobs in the first event of /api/live."""
    with urllib.request.urlopen(service.http + "/api/live", timeout=30) as r:
        while not (line := r.readline()).startswith(b"data: ") or b'"rows"' not in line:
            assert line, "the stream has ended"
    return json.loads(line[len(b"data: "):])["jobs"]


def test_jobs_of_a_key_are_not_visible_over_http(locked, alice):
    def http(path, body):
        return urllib.request.urlopen(urllib.request.Request(
            locked.http + path, json.dumps(body).encode(), {"Content-Type": "application/json"}), timeout=60)

    mine = alice.submit(PROMPT, max_tokens=1900, ignore_eos=True, on_disconnect="keep", n=4, user="http")
    mine.accepted()
    http("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "user": "http"}).close()
    rows = live_jobs(locked)["rows"]
    assert "http" in [j.get("user") for j in rows], "its own"
    assert mine.job not in [j["job"] for j in rows]
    with pytest.raises(urllib.error.HTTPError) as e:
        http("/api/cancel", {"job": mine.job})
    assert e.value.code == 404
    assert [len(o["tokens"]) for o in mine.done().outputs] == [1900] * 4
    assert mine.job not in [j["job"] for j in live_jobs(locked)["rows"]]
    assert mine.job in [j["job"] for j in alice.jobs()]


def test_durable_job_keeps_its_owner_when_the_controller_dies(start, keys, tmp_path):
    keys.new("ann", "client")
    keys.new("ben", "client")
    s = start(DEMO, "--journal", tmp_path / "journal", "--curve-key", keys.dir / "service.key", "--allow", keys.allow)
    with keys.client(s.jobs, "ann") as ann:
        done = ann.generate(PROMPT, durable=True, key="the one", **SHORT)
    (controller,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    os.kill(controller, signal.SIGKILL)
    eventually(lambda: controller not in marked(s.mark), what="its end")
    with keys.client(s.jobs, "ann") as ann, keys.client(s.jobs, "ben") as ben:
        assert ann.result(done.job).tokens == done.tokens
        assert done.job in [j["job"] for j in ann.jobs()] and done.job not in [j["job"] for j in ben.jobs()]
        with pytest.raises(JobError) as e:
            ben.result(done.job)
        assert e.value.code == "E_NO_SUCH_JOB"
        assert ben.generate(PROMPT, durable=True, key="the one", **SHORT).job != done.job
        assert ann.generate(PROMPT, durable=True, key="the one", **SHORT).job == done.job


def test_prefix_is_not_shared_across_keys(keys, locked, alice):
    prompt = "A cat and a dog went to the river " * 8
    alice.generate(prompt, **SHORT)
    assert alice.generate(prompt, **SHORT).usage["cached_tokens"] > 0
    with keys.client(locked.jobs, "bob") as bob:
        assert bob.generate(prompt, **SHORT).usage["cached_tokens"] == 0


# --- the worker bus ---

def worker(keys, locked, name, *more):
    mark = uuid.uuid4().hex
    p = spawn([BIN / "quern-worker", "--bus", locked.ready["bus"], "--grace", "2", *(keys.options(name) if name else ()), *more],
              mark, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    _, err = p.communicate(timeout=90)
    return p.returncode, err


def test_worker_with_an_unlisted_key_exits_with_a_message(keys, locked, alice):
    code, err = worker(keys, locked, "eve")
    assert code == 1 and "--allow" in err and keys.public("eve") in err
    assert len(alice.workers()) == 1


def test_client_key_is_not_a_worker_key(keys, locked, alice):
    code, err = worker(keys, locked, "alice")
    assert code == 1 and "--allow" in err


def test_worker_without_a_key_cannot_join(keys, locked, alice):
    code, err = worker(keys, locked, None)
    assert code == 1 and "--server-key" in err
    assert len(alice.workers()) == 1


def test_worker_with_a_listed_key_joins(keys):
    mark = uuid.uuid4().hex
    bus, jobs = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    keys.new("walter", "worker")
    keys.new("anna", "client")
    controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", bus, "--jobs", jobs, "--http", "none", "--curve-key",
                        keys.dir / "service.key", "--allow", keys.allow], mark, **quiet)
    environment = {"QUERN_KEY": keys.half("walter", "secret"), "QUERN_SERVER_KEY": keys.public("service")}
    w = spawn([BIN / "quern-worker", "--bus", bus], mark, env=environment, **quiet)
    try:
        with keys.client(jobs, "anna") as c:
            assert len(c.generate(PROMPT, **SHORT).tokens) == SHORT["max_tokens"]
            assert [row["pid"] for row in c.workers()] == [w.pid]
    finally:
        controller.terminate()
        assert controller.wait(30) == 0
    assert w.wait(60) == 0
    no_processes_left(mark)


def test_worker_joins_with_the_keys_of_a_fleet_by_one_command(run, tmp_path, monkeypatch):
    """The keys are made by keygen --fleet; the worker finds both in its default folder."""
    fleet, config = tmp_path / "fleet", tmp_path / "config" / "quern"
    r = run("keygen", "--fleet", "--out", fleet)
    assert r.returncode == 0, r.stderr
    assert {p.name: p.stat().st_mode & 0o777 for p in fleet.glob("*.key")} == dict.fromkeys(("admin.key", "service.key", "worker.key"), 0o600)
    before = {p.name: p.read_bytes() for p in fleet.iterdir()}
    r = run("keygen", "--fleet", "--out", fleet)
    assert r.returncode == 1 and "exists" in r.stderr
    assert {p.name: p.read_bytes() for p in fleet.iterdir()} == before

    config.mkdir(parents=True)
    for name in ("worker.key", "service.pub"):
        shutil.copy(fleet / name, config)
    mark, port = uuid.uuid4().hex, free_port()
    jobs = f"tcp://127.0.0.1:{free_port()}"
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", f"tcp://127.0.0.1:{port}", "--jobs", jobs, "--http", "none",
                        "--curve-key", fleet / "service.key", "--allow", fleet / "allow"], mark, **quiet)
    w = spawn([QUERN, "worker", "--join", f"127.0.0.1:{port}", "--grace", "60"], mark, env={"XDG_CONFIG_HOME": str(tmp_path / "config")}, **quiet)
    try:
        monkeypatch.setenv("QUERN_KEY", str(fleet / "admin.key"))
        monkeypatch.setenv("QUERN_SERVER_KEY", str(fleet / "service.pub"))
        eventually(lambda: f'"pid":{w.pid}' in run("workers", "--json", "--to", jobs).stdout.replace(" ", ""), 60, "the worker")
        r = run("submit", PROMPT, "-m", "5", "--to", jobs)
        assert r.returncode == 0 and r.stdout, r.stderr
        r = run("workers", "--json", "--to", jobs)
        assert f'"pid":{w.pid}' in r.stdout.replace(" ", "")
    finally:
        controller.terminate()
        assert controller.wait(30) == 0
    assert w.wait(60) == 0
    no_processes_left(mark)


def test_worker_with_half_of_its_keys_names_the_other(tmp_path):
    (tmp_path / "quern").mkdir()
    (tmp_path / "quern" / "service.pub").touch()
    r = subprocess.run([QUERN, "worker", "--join", "127.0.0.1:1"], env={"XDG_CONFIG_HOME": str(tmp_path)}, capture_output=True, text=True,
                       timeout=30)
    assert r.returncode == 1 and "worker.key is missing" in r.stderr and "--fleet" in r.stderr


def test_worker_with_a_removed_key_is_lost_at_once_and_its_jobs_continue(keys):
    """The other worker continues the jobs; the removed worker exits and cannot join again."""
    mark = uuid.uuid4().hex
    bus, jobs = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in ("wilma", "wes"):
        keys.new(name, "worker")
    keys.new("amy", "client")
    controller = spawn([BIN / "quern-controller", "--model", DEMO, "--bus", bus, "--jobs", jobs, "--http", "none", "--curve-key",
                        keys.dir / "service.key", "--allow", keys.allow], mark, **quiet)

    def spawn_worker(name, **kwargs):
        return spawn([BIN / "quern-worker", "--bus", bus, "--threads", "1", *keys.options(name)], mark, **{**quiet, **kwargs})
    workers = {name: spawn_worker(name) for name in ("wilma", "wes")}
    try:
        with keys.client(jobs, "amy") as c:
            def serving():
                return {w["pid"] for w in c.workers() if w["state"] == "serving"}
            eventually(lambda: serving() == {w.pid for w in workers.values()}, 60, "two workers")
            known = [c.generate(f"{PROMPT} {i}", **LONG).tokens for i in range(6)]
            in_flight = [c.submit(f"{PROMPT} {i}", **LONG) for i in range(6)]
            for j in in_flight:
                j.first_delta()
            keys.remove("wilma")
            assert [j.done().tokens for j in in_flight] == known
            assert workers["wilma"].wait(60) == 0
            eventually(lambda: serving() == {workers["wes"].pid}, what="the other worker alone")
        again = spawn_worker("wilma", stderr=subprocess.PIPE, text=True)
        _, err = again.communicate(timeout=90)
        assert again.returncode == 1 and keys.public("wilma") in err
    finally:
        controller.terminate()
        assert controller.wait(30) == 0
    assert workers["wes"].wait(60) == 0
    no_processes_left(mark)


# --- peers that speak no ZeroMQ, or flood it ---

def endpoint(text):
    host, port = text.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


GREETING = b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00"


def greeting(mechanism):
    return GREETING + mechanism.ljust(20, b"\0") + b"\0" + b"\0" * 31


RAW = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": bytes(range(256)) * 40,
    "a greeting in the clear": greeting(b"NULL") + b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER",
    "a greeting and noise": greeting(b"CURVE") + b"\x04\xff" + os.urandom(255),
    "a hello of the wrong size": greeting(b"CURVE") + b"\x04\x06\x05HELLO",
    "a giant command": greeting(b"CURVE") + b"\x06" + struct.pack(">Q", 1 << 62) + b"\x05HELLO",
    "a giant frame": greeting(b"CURVE") + b"\x02" + struct.pack(">Q", 1 << 40) + b"x" * 100000,
}


@pytest.mark.parametrize("data", RAW.values(), ids=RAW.keys())
@pytest.mark.parametrize("where", ["jobs", "bus"])
def test_raw_bytes_on_a_locked_socket_have_no_effect(locked, alice, data, where):
    job = alice.submit(PROMPT, **LONG)
    with socket.create_connection(endpoint(locked.ready[where]), 10) as raw:
        try:
            raw.sendall(data)
        except OSError:
            pass        # the service closed the connection
        assert len(job.done().tokens) == LONG["max_tokens"]
    assert alice.ping()["ready"] and len(alice.workers()) == 1


@pytest.mark.parametrize("where", ["jobs", "bus"])
def test_unfinished_greeting_is_dropped(locked, alice, where):
    """Slow loris: a byte now and then. ZeroMQ limits the time of a handshake."""
    lorises = [socket.create_connection(endpoint(locked.ready[where]), 10) for _ in range(50)]
    for s in lorises:
        s.setblocking(False)
        s.send(b"\xff")
    alive = set(lorises)

    def all_dropped():
        for s in list(alive):
            try:
                if s.recv(4096) == b"":
                    alive.discard(s)
                else:
                    s.send(b"\0")
            except BlockingIOError:
                pass
            except OSError:
                alive.discard(s)
        return not alive
    eventually(all_dropped, timeout=60, what="the end of all connections")
    for s in lorises:
        s.close()
    assert alice.ping()["ready"]


def test_giant_message_of_a_listed_client_is_cut_off(keys, locked, alice):
    with keys.client(locked.jobs, "bob") as bob:
        assert bob.ping()["ready"]
        bob.send_frames(b"\xc6" + struct.pack(">I", 40 << 20) + b"\0" * (40 << 20))
        with pytest.raises(TimeoutError):
            bob.recv_frames(QUIET_S)
    assert alice.ping()["ready"]


def test_user_id_claimed_by_a_peer_is_ignored(start, keys):
    """Without CURVE, ZeroMQ passes on any property that a peer sends, including User-Id, which ZAP sets."""
    s = start(DEMO)     # no keys
    with s.client() as c:
        done = c.generate(PROMPT, **SHORT, on_disconnect="keep")

    def prop(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    body = b"\x05READY" + prop(b"Socket-Type", b"DEALER") + prop(b"Identity", b"") + prop(b"User-Id", b"x" * 40)
    request = msgpack.packb({"op": "result", "id": 1, "job": done.job})
    got = b""

    def until(raw, word):
        nonlocal got
        while word not in got:
            part = raw.recv(65536)
            assert part, f"closed after {got}"
            got += part
    with socket.create_connection(endpoint(s.jobs), 30) as raw:
        raw.sendall(greeting(b"NULL"))
        until(raw, b"NULL")
        raw.sendall(b"\x04" + bytes([len(body)]) + body)
        until(raw, b"READY")
        raw.sendall(b"\x00" + bytes([len(request)]) + request)
        until(raw, b"done")     # jobs have no owner here


# --- ipc ---

AS_ANOTHER = """
import os, sys, zmq, msgpack
os.setgid(65534); os.setuid(65534)
s = zmq.Context().socket(zmq.DEALER)
s.linger = 0
s.connect(sys.argv[1])
s.send(msgpack.packb({"op": "ping", "id": 1}))
print("answered" if s.poll(1500) else "nothing")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
def test_another_user_gets_no_answer_from_a_local_socket(start):
    """An abstract socket has no file mode: the kernel's peer credentials decide."""
    name = f"ipc://@quern-test-{uuid.uuid4().hex}"
    s = start(DEMO, "--jobs", name)
    with s.client() as c:
        assert c.ping()["ready"]
    r = subprocess.run([sys.executable, "-c", AS_ANOTHER, name], capture_output=True, text=True, timeout=60)
    assert r.stdout.strip() == "nothing", r.stderr
    assert "another user" in s.log()


def test_local_sockets_are_for_their_user_only(start):
    with tempfile.TemporaryDirectory(prefix="quern-ipc-") as d:
        s = start(DEMO, "--jobs", f"ipc://{d}/jobs", "--bus", f"ipc://{d}/bus")
        for name in ("jobs", "bus"):
            assert (Path(d) / name).stat().st_mode & 0o077 == 0
        s.end()


# --- the commands ---

def test_commands_take_keys_by_option_and_by_environment(run, keys, locked, monkeypatch):
    r = run("submit", PROMPT, "-m", "5", "--to", locked.jobs, *keys.options("alice"))
    assert r.returncode == 0 and r.stdout, r.stderr
    monkeypatch.setenv("QUERN_KEY", str(keys.dir / "alice.key"))
    monkeypatch.setenv("QUERN_SERVER_KEY", str(keys.dir / "service.pub"))
    assert run("status", "--to", locked.jobs).returncode == 0
    monkeypatch.setenv("QUERN_KEY", keys.half("alice", "secret"))
    monkeypatch.setenv("QUERN_SERVER_KEY", keys.public("service"))
    assert run("status", "--to", locked.jobs).returncode == 0


@pytest.mark.parametrize("name, word", [("eve", "--allow"), (None, "--server-key")])
def test_command_without_the_right_key_names_what_is_missing(run, keys, locked, name, word):
    r = run("status", "--to", locked.jobs, *(keys.options(name) if name else ()))
    assert (r.returncode, r.stdout) == (1, "")
    assert word in r.stderr and len(r.stderr.splitlines()) == 1


def test_key_file_readable_by_others_is_refused(run, keys, locked):
    keys.new("careless", "client")
    (keys.dir / "careless.key").chmod(0o644)
    r = run("status", "--to", locked.jobs, *keys.options("careless"))
    assert r.returncode == 1 and "chmod" in r.stderr
    (keys.dir / "careless.key").chmod(0o600)


def test_keygen_never_overwrites(run, keys):
    before = (keys.dir / "service.key").read_text()
    r = run("keygen", "--out", keys.dir, "--name", "service")
    assert r.returncode == 1 and "service" in r.stderr
    assert (keys.dir / "service.key").read_text() == before
    assert (keys.dir / "service.key").stat().st_mode & 0o777 == 0o600


def test_arguments_logs_and_core_files_contain_no_secret(keys, locked, alice):
    alice.generate(PROMPT, **SHORT)
    secrets = [keys.half(name, "secret") for name in ("service", "alice", "eve")]
    pids = marked(locked.mark)
    assert len(pids) == 3
    for pid, name in pids.items():
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        assert not any(s in arguments for s in secrets)
        if name != "quern":     # holds no key
            assert Path(f"/proc/{pid}").stat().st_uid == 0      # not dumpable: owned by root under any user
    assert not any(s in locked.log() for s in secrets)


@pytest.mark.parametrize("options, word", [(["--allow", "none"], "--curve-key"), (["--curve-key", "/nowhere"], "/nowhere")])
def test_wrong_key_options_are_named(options, word):
    p = spawn([QUERN, "serve", DEMO, "--http", "none", "--jobs", "tcp://127.0.0.1:*", *options], "keys", stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 1 and word in err
    no_processes_left("keys")


def test_job_socket_with_keys_may_listen_beyond_loopback(start, keys):
    keys.new("frank", "client")
    s = start(DEMO, "--jobs", "tcp://0.0.0.0:*", "--curve-key", keys.dir / "service.key", "--allow", keys.allow)
    port = s.jobs.rsplit(":", 1)[1]
    with keys.client(f"tcp://127.0.0.1:{port}", "frank") as c:
        assert c.ping()["ready"]
