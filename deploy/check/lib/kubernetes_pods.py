"""Runs the pods of deploy/kubernetes as a kubelet would, but without a kubelet: as root in its own mount and network
namespaces (deploy/check/kubernetes.sh). A container is a process with its own root, and with the manifest's volumes,
user, capabilities, command and environment. Services are names of the loopback address."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import yaml

WORK = pathlib.Path(os.environ["WORK"])
BIN = pathlib.Path(os.environ["BUILD"]) / "bin"
API_KEY = "sk-deploy-check-0123456789"
HTTP, METRICS = "http://127.0.0.1:8080", "http://127.0.0.1:8081"
HOSTS = "127.0.0.1 localhost quern quern-bus\n"
SYSTEM = ("usr", "lib", "lib64", "bin", "etc")


def sh(*argv, **how):
    return subprocess.run([str(a) for a in argv], check=True, **how)


def workload(kind, file):
    docs = yaml.safe_load_all(pathlib.Path("deploy/kubernetes", file).read_text())
    (doc,) = [d for d in docs if d["kind"] == kind]
    return doc["spec"]


class Volumes:
    """The contents of each volume, by the kind of its source; secrets have the mode and group of a mount."""

    def __init__(self, pod, claims):
        self.at = {}
        for v in pod["volumes"]:
            path = WORK / "volumes" / v["name"]
            if "persistentVolumeClaim" in v:
                path = WORK / "claims" / v["persistentVolumeClaim"]["claimName"]
            elif "secret" in v:
                path = WORK / "secrets" / v["secret"]["secretName"]
                for f in path.iterdir():
                    os.chown(f, 0, pod["securityContext"]["fsGroup"])
                    f.chmod(v["secret"]["defaultMode"])
            else:
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o1777)
            self.at[v["name"]] = path
        for c in claims:
            path = WORK / "claims" / c["metadata"]["name"]
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, 0, pod["securityContext"]["fsGroup"])
            path.chmod(0o2775)
            self.at[c["metadata"]["name"]] = path


class Container:
    all = []

    def __init__(self, spec):
        pod = spec["template"]["spec"]
        (self.c,) = pod["containers"]
        self.grace = pod["terminationGracePeriodSeconds"]
        n = len(Container.all)
        self.root = WORK / f"root-{n}"
        self.log = WORK / f"{self.c['name']}-{n}.log"
        self.make_root(Volumes(pod, spec.get("volumeClaimTemplates", [])))
        self.start(pod["securityContext"])
        Container.all.append(self)

    def make_root(self, volumes):
        self.root.mkdir()
        sh("mount", "-t", "tmpfs", "root", self.root)
        for name in SYSTEM:
            if pathlib.Path("/", name).is_symlink():
                (self.root / name).symlink_to(os.readlink(f"/{name}"))
            elif pathlib.Path("/", name).is_dir():
                self.bind(f"/{name}", name)
        (self.root / "hosts").write_text(HOSTS)
        sh("mount", "--bind", self.root / "hosts", self.root / "etc/hosts")
        self.bind(BIN, "quern")
        (self.root / "proc").mkdir()
        sh("mount", "-t", "proc", "proc", self.root / "proc")
        self.bind("/dev", "dev")
        self.bind("/sys", "sys")
        for m in self.c["volumeMounts"]:
            self.bind(volumes.at[m["name"]], m["mountPath"].lstrip("/"), m.get("readOnly", False))
        assert self.c["securityContext"]["readOnlyRootFilesystem"]
        sh("mount", "-o", "remount,ro", self.root)

    def bind(self, source, name, read_only=False):
        at = self.root / name
        at.mkdir(parents=True)
        sh("mount", "--rbind", source, at)
        if read_only:
            sh("mount", "-o", "remount,bind,ro", at)

    def start(self, security):
        env = {"PATH": "/quern"} | {e["name"]: e["value"] for e in self.c.get("env", [])}
        args = list(self.c["args"])
        for name, value in env.items():
            args = [a.replace(f"$({name})", value) for a in args]
        assert self.c["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        user, group = security["runAsUser"], security["runAsGroup"]
        self.process = subprocess.Popen(
            ["chroot", self.root, "setpriv", f"--reuid={user}", f"--regid={group}",
             f"--groups={security['fsGroup']}", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all",
             *(f"/quern/{c}" for c in self.c["command"]), *args],
            env=env | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=subprocess.DEVNULL,
            stdout=self.log.open("ab"), stderr=subprocess.STDOUT)

    def expect_confined(self):
        status = dict(line.split(":", 1) for line in
                      pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if ":" in line)
        assert status["Name"].strip().startswith("quern-"), status["Name"]
        assert status["Uid"].split() == ["10001"] * 4, status["Uid"]
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, status
        assert status["NoNewPrivs"].strip() == "1"

    def probe(self, which):
        """Run one HTTP probe of the manifest; return true if it succeeds."""
        p = self.c[which]
        port = {x["name"]: x["containerPort"] for x in self.c["ports"]}[p["httpGet"]["port"]]
        try:
            url = f"http://127.0.0.1:{port}{p['httpGet']['path']}"
            with urllib.request.urlopen(url, timeout=p.get("timeoutSeconds", 1)) as r:
                return 200 <= r.status < 400
        except (urllib.error.URLError, OSError):
            return False

    def wait_probe(self, which, success=True):
        p = self.c[which]
        for _ in range(120):
            assert self.process.poll() is None, f"it ended: {self.tail()}"
            if self.probe(which) == success:
                return
            time.sleep(min(p["periodSeconds"], 0.5))
        raise AssertionError(f"{which} never became {success}: {self.tail()}")

    def terminate(self):
        """Send SIGTERM, and SIGKILL after the grace period, which counts as a failure here."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(self.grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it ran longer than its grace period: {self.tail()}") from None

    def tail(self):
        return self.log.read_text()[-2000:]


def completion(prompt, n=120):
    body = {"prompt": prompt, "max_tokens": n, "temperature": 1, "seed": 5, "ignore_eos": True}
    r = urllib.request.Request(f"{HTTP}/v1/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"})
    with urllib.request.urlopen(r, timeout=120) as reply:
        return json.load(reply)["choices"][0]["text"]


class Load:
    """Completions that run during the test; their texts must be those of an undisturbed service."""

    def __init__(self, expected):
        self.expected, self.got = expected, {}
        self.threads = [threading.Thread(target=self.run, args=(p,)) for p in expected]
        for t in self.threads:
            t.start()

    def run(self, prompt):
        self.got[prompt] = completion(prompt)

    def finish(self):
        for t in self.threads:
            t.join()
        assert self.got == self.expected, [p for p in self.expected if self.got.get(p) != self.expected[p]]


def quern(*argv):
    keys = WORK / "made-keys"
    return sh(BIN / "quern", *argv, "--to", "tcp://127.0.0.1:7420", "--key", keys / "admin.key", "--server-key",
              keys / "service.pub", capture_output=True, text=True).stdout


def make_secrets():
    """Make the secrets as docs/deploy/kubernetes.md does."""
    made = WORK / "made-keys"
    sh(BIN / "quern", "keygen", "--fleet", "--out", made, stdout=subprocess.DEVNULL)
    secrets = {"quern-service-keys": ["service.key", "allow"], "quern-worker-keys": ["worker.key", "service.pub"],
               "quern-api-keys": ["keys"]}
    (made / "keys").write_text(f"{API_KEY} name=check\n")
    for secret, files in secrets.items():
        to = WORK / "secrets" / secret
        to.mkdir(parents=True)
        for f in files:
            shutil.copy(made / f, to / f)


def make_model():
    to = WORK / "claims" / "quern-models" / "model"
    shutil.copytree("models/demo", to)
    for path in [to.parent, to, *to.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def metrics_of(query):
    """Return the names of quern's metrics in a query."""
    return set(re.findall(r"quern:[a-z_]+", query))


def main():
    sh("ip", "link", "set", "lo", "up")
    WORK.chmod(0o755)
    make_secrets()
    make_model()
    controllers, workers = workload("StatefulSet", "controller.yaml"), workload("Deployment", "workers-cpu.yaml")

    began = time.monotonic()
    controller = Container(controllers)
    controller.wait_probe("startupProbe")
    print(f"controller alive after {time.monotonic() - began:.2f} s")
    controller.expect_confined()
    assert controller.probe("livenessProbe") and not controller.probe("readinessProbe")

    running = [Container(workers) for _ in range(workers["replicas"])]
    controller.wait_probe("readinessProbe")
    print(f"ready after {time.monotonic() - began:.2f} s")
    for w in running:
        w.expect_confined()
    expected = {p: completion(p) for p in (f"Once upon a time, {x}" for x in ("a cat", "a dog", "the sun", "two"))}

    load = Load(expected)
    running[0].process.kill()  # out of memory, for example: the kubelet restarts it
    running[0].process.wait()
    running[0] = Container(workers)
    load.finish()
    print("a worker was killed: the same texts")

    load = Load(expected)
    assert running[1].terminate() == 0  # scale-in, or a node that is drained
    load.finish()
    assert controller.probe("readinessProbe")
    print("a worker was ended: the same texts, always ready")

    def scraped():
        return urllib.request.urlopen(f"{METRICS}/metrics", timeout=10).read().decode()

    for doc in yaml.safe_load_all(pathlib.Path("deploy/kubernetes/autoscaling.yaml").read_text()):
        for trigger in doc["spec"]["triggers"]:
            names = metrics_of(trigger["metadata"]["query"])
            assert names and all(f"\n{n}" in scraped() for n in names), names

    # A node failure or an upgrade: the controller goes, its volume and the workers stay.
    job = quern("submit", "--raw", "Once upon a time, a cat", "--durable", "--detach", "--max-tokens", "120",
                "--temperature", "1", "--seed", "5", "--ignore-eos").split()[0]
    assert controller.terminate() == 0
    controller = Container(controllers)
    controller.wait_probe("readinessProbe")
    for _ in range(240):
        r = subprocess.run([BIN / "quern", "result", job, "--to", "tcp://127.0.0.1:7420", "--key",
                            WORK / "made-keys/admin.key", "--server-key", WORK / "made-keys/service.pub"],
                           capture_output=True, text=True)
        if r.returncode == 0:
            break
        time.sleep(0.5)
    assert r.stdout.strip() == expected["Once upon a time, a cat"].strip(), (r, expected)
    print("the controller was replaced: the durable job ended with the same text")

    for c in [running[0], controller]:
        assert c.terminate() == 0


try:
    main()
except BaseException:
    for log in sorted(WORK.glob("*.log")):
        print(f"---- {log}\n{log.read_text()[-3000:]}")
    raise
finally:
    for c in Container.all:
        if c.process.poll() is None:
            c.process.kill()
            c.process.wait()
