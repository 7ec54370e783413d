"""Run a service and a Prometheus for deploy/check/prometheus.sh: BUILD WORK."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

BUILD, WORK = Path(sys.argv[1]), Path(sys.argv[2])
QUERN = BUILD / "bin" / "quern"
WAIT_S = 120


def wait_for(condition, what):
    """Wait until the function returns a true value."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            value = condition()
        except (urllib.error.URLError, ConnectionError):
            value = None
        if value:
            return value
        if time.monotonic() > end:
            sys.exit(f"FAILED: waited in vain for {what}")
        time.sleep(0.2)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)


def configure(service, prometheus):
    """Write the shipped configuration with this service and short intervals."""
    text = Path("deploy/prometheus/prometheus.yml").read_text()
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{service}").replace("15s", "1s")
    (WORK / "prometheus.yml").write_text(text)
    rules = Path("deploy/prometheus/quern.rules.yml").read_text()
    (WORK / "quern.rules.yml").write_text(rules.replace("interval: 30s", "interval: 1s"))
    return ["prometheus", f"--config.file={WORK}/prometheus.yml", f"--storage.tsdb.path={WORK}/data",
            f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=warn", "--enable-feature=exemplar-storage"]


def quern(endpoint, *words):
    done = subprocess.run([QUERN, *words, "--to", endpoint], capture_output=True, text=True, timeout=WAIT_S)
    if done.returncode:
        sys.exit(f"FAILED: quern {' '.join(words)}: {done.stderr}")
    return done.stdout


def main():
    web, port = free_port(), free_port()
    api = f"http://127.0.0.1:{port}/api/v1"
    with open(WORK / "service.log", "w") as log, open(WORK / "prometheus.log", "w") as plog:
        service = subprocess.Popen([QUERN, "serve", "models/demo", "--json", "--http", f"127.0.0.1:{web}",
                                    "--jobs", "tcp://127.0.0.1:*"], stdout=subprocess.PIPE, stderr=log, text=True)
        jobs = json.loads(service.stdout.readline())["jobs"]
        prometheus = subprocess.Popen(configure(web, port), stderr=plog)
        try:
            check(api, web, jobs, service)
        finally:
            for process in (prometheus, service):
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            for process in (prometheus, service):
                process.wait(60)


def value(api, query):
    result = get(f"{api}/query?" + urllib.parse.urlencode({"query": query}))["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def check(api, web, jobs, service):
    submit(jobs, 5)
    wait_for(lambda: value(api, "quern:generation_tokens_total") == 50, "tokens of five jobs in Prometheus")
    submit(jobs, 5)    # so that there are rates
    wait_for(lambda: value(api, "quern:generation_tokens_total") == 100, "tokens of ten jobs")
    rules(api)
    dashboard(api)
    exemplars(api, web)
    worker_dies(api, jobs)
    print("== the service ends: an alert")
    service.send_signal(signal.SIGTERM)
    service.wait(60)
    wait_for(lambda: value(api, 'ALERTS{alertname="QuernDown"}') == 1, "the alert QuernDown")


def submit(jobs, n):
    for i in range(n):
        quern(jobs, "submit", "Once upon a time", "--max-tokens", "10", "--ignore-eos", "--seed", str(i))


def rules(api):
    print("== every rule is evaluated")

    def all_evaluated():
        found = [r for g in get(f"{api}/rules")["data"]["groups"] for r in g["rules"]]
        return found if found and all(r["health"] != "unknown" for r in found) else None
    found = wait_for(all_evaluated, "an evaluation of every rule")
    bad = [r for r in found if r["health"] != "ok"]
    if bad:
        sys.exit(f"FAILED: rules that are not healthy: {bad}")
    records = [r["name"] for r in found if r["type"] == "recording"]
    for name in records:
        wait_for(lambda: value(api, name) is not None, f"a value of {name}")
    firing = [r["name"] for r in found if r["type"] == "alerting" and r["state"] == "firing"]
    if firing:
        sys.exit(f"FAILED: alerts of a healthy service: {firing}")
    print(f"{len(records)} records have values, {len(found) - len(records)} alerts are quiet")


def dashboard(api):
    print("== every query of the dashboard has a result")
    text = json.loads(Path("deploy/grafana/quern.json").read_text())
    n = 0
    for panel in text["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$model_name", "demo").replace("$__rate_interval", "1m")
            if re.search(r"\$", query):
                sys.exit(f"FAILED: {panel['title']}: an unknown variable in {query}")
            wait_for(lambda: value(api, query) is not None, f"a result of {panel['title']}: {query}")
            n += 1
    print(f"{n} queries")


def exemplars(api, web):
    print("== a bucket leads to the trace of a request")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 10, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{web}/v1/completions", body,
                                     {"Content-Type": "application/json", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        reply.read()

    def found():
        now = time.time()
        query = {"query": "quern:time_to_first_token_seconds_bucket", "start": now - 600, "end": now + 60}
        data = get(f"{api}/query_exemplars?" + urllib.parse.urlencode(query))["data"]
        return any(e["labels"] == {"trace_id": trace} for series in data for e in series["exemplars"])
    wait_for(found, "an exemplar with the request's trace")


def worker_dies(api, jobs):
    print("== a worker is killed: another one serves")
    pid = json.loads(quern(jobs, "workers", "--json"))["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)

    def other():
        rows = json.loads(quern(jobs, "workers", "--json"))["workers"]
        return any(w["state"] == "serving" and w["pid"] != pid for w in rows)
    wait_for(other, "another worker")
    submit(jobs, 1)
    wait_for(lambda: value(api, "quern:generation_tokens_total") == 120, "the tokens of a job after that")
    wait_for(lambda: value(api, "quern:workers_serving") == 1, "a serving worker in Prometheus")


main()
