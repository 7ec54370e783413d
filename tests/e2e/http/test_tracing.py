"""Traces: a client's context is read, and spans are sent to a collector by OTLP over HTTP."""

import http.server
import io
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_fd_to_metric_families

from service import DEMO, Service, eventually, whole_lines

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
PROMPT = "Once upon a time"
os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "50"    # so that tests need not wait for batches


class Collector:
    """Accept OTLP in JSON. status: of its replies; hang: it never replies."""

    def __init__(self, status=200, hang=False):
        self.status, self.hang = status, hang
        self.bodies, self.headers, self.seen = [], [], 0
        self.release = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.seen += 1
                if collector.hang:
                    collector.release.wait(60)
                    return
                if collector.status == 200:
                    collector.bodies.append(json.loads(body))
                    collector.headers.append((self.path, dict(self.headers)))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [s for b in list(self.bodies) for r in b["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]]

    def trace(self, trace, n):
        """Return the trace's spans, once there are n."""
        def enough():
            of = [s for s in self.spans() if s["traceId"] == trace]
            return of if len(of) >= n else None
        return eventually(enough, what=f"{n} spans of {trace}")

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def collector():
    c = Collector()
    yield c
    c.close()


@pytest.fixture(scope="module")
def traced(collector, tmp_path_factory):
    log = tmp_path_factory.mktemp("traced") / "access"
    s = Service(DEMO, "--otlp-endpoint", collector.url, "--trace-sample", "0", "--access-log", log)
    s.access = log
    yield s
    s.stop()


def post(service, path, body, **headers):
    request = urllib.request.Request(service.http + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read()


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def context(n, sampled=True):
    """Return a trace id of the test, and the header for it."""
    trace = f"{n:032x}"
    return trace, f"00-{trace}-{PARENT}-{'01' if sampled else '00'}"


def by_name(spans):
    return {s["name"]: s for s in spans}


def test_a_request_has_a_span_its_job_another_and_each_phase_one(traced, collector):
    post(traced, "/v1/completions", {"prompt": PROMPT, "max_tokens": 5, "ignore_eos": True}, traceparent=SAMPLED,
         tracestate="vendor=1")
    spans = by_name(collector.trace(TRACE, 6))
    assert set(spans) == {"POST /v1/completions", "text_completion demo", "prepare", "queued", "prefill", "decode"}
    request, job = spans["POST /v1/completions"], spans["text_completion demo"]
    assert (request["parentSpanId"], request["kind"]) == (PARENT, 2)
    assert (job["parentSpanId"], job["kind"]) == (request["spanId"], 1)
    for name in ("prepare", "queued", "prefill", "decode"):
        assert spans[name]["parentSpanId"] == job["spanId"]
        assert int(spans[name]["startTimeUnixNano"]) >= int(job["startTimeUnixNano"])
        assert int(spans[name]["endTimeUnixNano"]) <= int(job["endTimeUnixNano"])
    assert spans["queued"]["endTimeUnixNano"] == spans["prefill"]["startTimeUnixNano"]
    assert abs(int(job["startTimeUnixNano"]) / 1e9 - time.time()) < 3600
    assert {s["traceState"] for s in spans.values()} == {"vendor=1"}
    assert len({s["spanId"] for s in spans.values()}) == 6
    a = attributes(job)
    assert (a["gen_ai.operation.name"], a["gen_ai.request.model"]) == ("text_completion", "demo")
    assert a["gen_ai.usage.output_tokens"] == "5" and int(a["gen_ai.usage.input_tokens"]) > 0
    assert a["gen_ai.response.finish_reasons"] == {"values": [{"stringValue": "length"}]}
    assert a["gen_ai.latency.e2e"] >= a["gen_ai.latency.time_to_first_token"] > 0
    assert attributes(spans["decode"])["quern.tokens"] == "5"
    assert attributes(request)["http.response.status_code"] == "200"
    path, headers = collector.headers[-1]
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    resource = {a["key"]: a["value"] for a in collector.bodies[-1]["resourceSpans"][0]["resource"]["attributes"]}
    assert resource["service.name"] == {"stringValue": "quern"}
    line = eventually(lambda: [x for x in whole_lines(traced.access) if x.get("trace")])[0]
    assert line["trace"] == TRACE


@pytest.mark.parametrize("path, body, name", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}, "chat demo"),
    ("/v1/messages", {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}, "chat demo"),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 16}, "chat demo"),
    ("/api/chat", {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 2}},
     "chat demo"),
    ("/completion", {"prompt": PROMPT, "n_predict": 2}, "text_completion demo"),
    ("/v1/embeddings", {"model": "demo", "input": "hi"}, "embeddings demo")], ids=lambda v: v if isinstance(v, str) else "")
def test_every_api_reads_the_header(traced, collector, path, body, name):
    trace, parent = context(abs(hash(path)) % (1 << 60) + 1)
    post(traced, path, body, traceparent=parent)
    spans = by_name(collector.trace(trace, 4))
    assert spans[name]["parentSpanId"] == spans["POST " + path]["spanId"]


def test_the_job_socket_takes_the_context_and_the_key_does_not_change(traced, collector):
    trace, parent = context(77)
    with traced.client() as client:
        first = client.send({"op": "submit", "prompt": PROMPT, "params": {"max_tokens": 3}, "key": "k",
                             "traceparent": parent, "tracestate": "a=b"})
        assert client.recv(first)["op"] == "accepted"
        assert client.recv(first)["op"] == "done"
        again = client.send({"op": "submit", "prompt": PROMPT, "params": {"max_tokens": 3}, "key": "k",
                             "traceparent": context(78)[1]})
        assert client.recv(again)["op"] == "accepted"
    spans = by_name(collector.trace(trace, 5))
    job = spans["text_completion demo"]
    assert (job["parentSpanId"], job["kind"], job["traceState"]) == (PARENT, 2, "a=b")


def test_a_durable_job_goes_on_in_its_trace_after_a_crash(start, collector, tmp_path):
    trace, parent = context(79)
    options = ("--otlp-endpoint", collector.url, "--trace-sample", "0", "--journal", tmp_path / "journal", "--threads", "1")
    first = start(DEMO, *options)
    with first.paused(), first.client() as client:     # the job must not end before the crash
        job = client.send({"op": "submit", "prompt": PROMPT, "params": {"max_tokens": 1500, "ignore_eos": True}, "durable": True,
                           "stream": True, "traceparent": parent, "tracestate": "a=b"})
        number = client.recv(job)["job"]
    first.kill()
    second = start(DEMO, *options)
    with second.client() as client:
        assert client.attach(number).done().tokens
        assert client.call("explain", job=number)["trace"] == trace
    spans = by_name(collector.trace(trace, 4))
    job = spans["text_completion demo"]
    assert (job["parentSpanId"], job["traceState"]) == (PARENT, "a=b") and attributes(job)["quern.resumed"] == "1"


def test_buckets_of_metrics_lead_to_traces(traced):
    trace, parent = context(80)
    post(traced, "/v1/completions", {"prompt": PROMPT, "max_tokens": 3}, traceparent=parent)

    def metrics(**headers):
        with urllib.request.urlopen(urllib.request.Request(traced.http + "/metrics", headers=headers), timeout=60) as reply:
            assert reply.headers.get_all("Vary") == ["Accept"]
            return reply.headers["Content-Type"], reply.read().decode()
    kind, text = metrics(Accept="application/openmetrics-text;version=1.0.0;q=0.8, text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = {f.name: f for f in text_fd_to_metric_families(io.StringIO(text))}
    with_traces = {name for name, f in families.items() for x in f.samples
                   if x.exemplar and x.exemplar.labels == {"trace_id": trace} and x.exemplar.value <= float(x.labels["le"])}
    assert with_traces >= {f"quern:{name}_seconds" for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency",
                                                                "request_queue_time", "request_decode_time")}
    assert families["quern:generation_tokens"].type == "counter"
    kind, text = metrics()
    assert kind.startswith("text/plain; version=0.0.4") and "trace_id" not in text and "# EOF" not in text


def test_what_is_not_sampled_or_malformed_is_not_sent(traced, collector):
    unsampled, parent = context(81, sampled=False)
    post(traced, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2}, traceparent=parent)
    for bad in (SAMPLED.upper(), "00-" + "0" * 32 + f"-{PARENT}-01", "x" * 3000, "00", ""):
        post(traced, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2}, traceparent=bad)
    last, parent = context(82)
    post(traced, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2}, traceparent=parent)
    collector.trace(last, 6)
    known = {TRACE, last} | {s["traceId"] for s in collector.spans() if s.get("parentSpanId") == PARENT}
    assert unsampled not in {s["traceId"] for s in collector.spans()}
    assert {s["traceId"] for s in collector.spans()} <= known


def test_a_refused_request_is_an_error(traced, collector):
    trace, parent = context(83)
    with pytest.raises(urllib.error.HTTPError):
        post(traced, "/v1/completions", {"prompt": PROMPT, "temperature": "hot"}, traceparent=parent)
    span, = collector.trace(trace, 1)
    assert attributes(span)["http.response.status_code"] == "400"
    assert attributes(span)["error.type"] and "status" not in span   # 4xx is not the server's error


def metric(service, outcome):
    with urllib.request.urlopen(service.http + "/metrics") as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith("quern:trace_spans_total{") and f'outcome="{outcome}"' in line:
                return float(line.split()[-1])
    raise AssertionError("no such metric")


def test_without_a_parent_the_rate_decides(start):
    own = Collector()
    try:
        service = start(DEMO, "--otlp-endpoint", own.url, "--trace-sample", "1")
        with service.client() as client:
            client.generate(PROMPT, max_tokens=2)
        root = eventually(lambda: by_name(own.spans()).get("text_completion demo"), what="the job's span")
        assert "parentSpanId" not in root
        eventually(lambda: metric(service, "sent") == len(own.spans()), what="a count of the spans")
    finally:
        own.close()


@pytest.mark.parametrize("fault", [dict(status=500), dict(status=400), dict(hang=True)], ids=str)
def test_a_collector_that_fails_or_hangs_holds_nothing_up(start, fault):
    bad = Collector(**fault)
    try:
        service = start(DEMO, "--otlp-endpoint", bad.url)
        with service.client() as client:
            for _ in range(3):
                assert client.generate(PROMPT, max_tokens=3).finish_reason in ("length", "stop")
            eventually(lambda: bad.seen)
            assert client.generate(PROMPT, max_tokens=3).finish_reason in ("length", "stop")
        if not fault.get("hang"):
            assert eventually(lambda: metric(service, "failed")) > 0
            assert bad.seen == 1 or metric(service, "failed") > 5    # neither status is retried
            eventually(lambda: re.search('does not take spans url=.* reason="it replied', service.log()))
        assert service.end() == 0
    finally:
        bad.close()


def test_a_collector_that_is_busy_gets_the_spans_later(start):
    busy = Collector(status=503)
    try:
        service = start(DEMO, "--otlp-endpoint", busy.url)
        with service.client() as client:
            client.generate(PROMPT, max_tokens=2)
        eventually(lambda: busy.seen)
        busy.status = 200
        assert by_name(eventually(busy.spans))["text_completion demo"]
        assert service.end() == 0
    finally:
        busy.close()


def test_wrong_settings_are_refused(run):
    r = run("serve", DEMO, "--otlp-endpoint", "localhost:4318", "--http", "127.0.0.1:0", "--jobs", "tcp://127.0.0.1:*")
    assert r.returncode == 1 and "--otlp-endpoint" in r.stderr
    r = run("serve", DEMO, "--trace-sample", "2")
    assert r.returncode == 1 and "--trace-sample 2" in r.stderr
