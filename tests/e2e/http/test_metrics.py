"""/metrics as Prometheus reads it, the dashboard that shows it, and the access log."""

import json
import re
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import ROOT, eventually
from service import whole_lines as lines
from test_http import ask, complete, stream

DASHBOARD = ROOT / "deploy" / "grafana" / "quern.json"

# vLLM's metrics in the contract: type, and whether they have their own label.
CONTRACT = {
    "num_requests_running": "gauge", "num_requests_waiting": "gauge", "kv_cache_usage_perc": "gauge",
    "num_preemptions": "counter", "prompt_tokens": "counter", "generation_tokens": "counter",
    "prefix_cache_queries": "counter", "prefix_cache_hits": "counter", "request_success": "counter",
    "time_to_first_token_seconds": "histogram", "inter_token_latency_seconds": "histogram",
    "request_time_per_output_token_seconds": "histogram", "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram", "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram", "iteration_tokens_total": "histogram",
    "request_inference_time_seconds": "histogram", "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram", "request_max_num_generation_tokens": "histogram",
    "request_params_max_tokens": "histogram", "request_params_n": "histogram",
    "request_prefill_kv_computed_tokens": "histogram", "prompt_tokens_by_source": "counter",
    "prompt_tokens_cached": "counter", "cache_config_info": "gauge",
}


def scrape(service):
    status, headers, text = ask(service, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return {f.name: f for f in text_string_to_metric_families(text)}


def value(families, name, **labels):
    for s in families["quern:" + re.sub("_(count|sum|bucket|total)$", "", name)
                      if "quern:" + name not in families else "quern:" + name].samples:
        if s.name == "quern:" + name and all(s.labels.get(k) == v for k, v in labels.items()):
            return s.value
    raise AssertionError(f"no sample {name} {labels}")


def test_every_metric_of_the_contract_is_there_with_its_type(service):
    families = scrape(service)
    for name, kind in CONTRACT.items():
        family = families["quern:" + name]
        assert family.type == kind and family.documentation
        assert all(s.labels["model_name"] == "demo" for s in family.samples)


def test_counters_count_requests_and_tokens(service):
    before = scrape(service)
    reply = complete(service, max_tokens=7, ignore_eos=True, n=2, temperature=1)
    after = scrape(service)

    def grown(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)
    assert grown("generation_tokens_total") == 14
    assert grown("prompt_tokens_total") == reply["usage"]["prompt_tokens"]
    assert grown("request_success_total", finished_reason="length") == 2
    assert grown("time_to_first_token_seconds_count") == 2
    assert grown("inter_token_latency_seconds_count") == 12
    assert grown("e2e_request_latency_seconds_count") == 2
    assert grown("request_time_per_output_token_seconds_count") == 2
    assert grown("iteration_tokens_total_count") >= 7
    assert grown("iteration_tokens_total_sum") >= reply["usage"]["prompt_tokens"] + 12
    assert grown("http_requests_total", status="2xx") >= 1
    assert value(after, "num_requests_running") == 0


def test_parameters_and_sources_are_counted(service):
    prompt = "A prompt that no other test has, long enough for some blocks of the cache: " + "once upon a time " * 12
    before = scrape(service)
    first = complete(service, prompt=prompt, max_tokens=7, n=2, temperature=1, seed=1, ignore_eos=True)["usage"]
    complete(service, prompt=prompt, max_tokens=3, ignore_eos=True)
    after = scrape(service)

    def grown(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)
    n_prompt = first["prompt_tokens"]
    assert grown("request_params_n_sum") == 3 and grown("request_params_n_count") == 2
    assert grown("request_params_max_tokens_sum") == 7 + 7 + 3
    assert grown("request_max_num_generation_tokens_sum") == 7 + 3
    cached = grown("prompt_tokens_cached_total")
    assert 0 < cached < n_prompt
    assert grown("prompt_tokens_by_source_total", source="local_cache_hit") == cached
    assert grown("prompt_tokens_by_source_total", source="local_compute") == 2 * n_prompt - cached
    assert grown("request_prefill_kv_computed_tokens_sum") == 2 * n_prompt - cached
    assert grown("request_inference_time_seconds_count") == 3
    assert grown("request_inference_time_seconds_sum") >= grown("request_decode_time_seconds_sum") > 0
    info, = after["quern:cache_config_info"].samples
    assert info.labels["block_size"] == "16" and int(info.labels["num_gpu_blocks"]) > 0
    assert info.labels["enable_prefix_caching"] == "True"


def test_the_rules_of_prometheus_read_only_metrics_that_exist(service):
    text = (ROOT / "deploy" / "prometheus" / "quern.rules.yml").read_text()
    names = {s.name for f in scrape(service).values() for s in f.samples}
    recorded = set(re.findall(r"record: (\S+)", text))
    used = set(re.findall(r"(?<![\w:])(?:model_name:quern_\w+:\w+|quern:\w+|process_\w+)", text)) - recorded
    assert len(recorded) >= 10 and len(used) >= 10
    assert used <= names, used - names


def test_errors_are_counted_by_status(service):
    before = scrape(service)
    ask(service, "/nothing")
    assert value(scrape(service), "http_requests_total", status="4xx") == \
        value(before, "http_requests_total", status="4xx") + 1


def test_buckets_are_vllms(service):
    les = [s.labels["le"] for s in scrape(service)["quern:time_to_first_token_seconds"].samples if "le" in s.labels]
    assert [float(x) for x in les[:-1]] == [
        .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
    assert les[-1] == "+Inf"


def test_the_dashboard_queries_only_metrics_that_exist(service):
    board = json.loads(DASHBOARD.read_text())
    names = {s.name for f in scrape(service).values() for s in f.samples}
    queries = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
    assert len(queries) >= 10
    for q in queries:
        used = re.findall(r"\b(?:quern:|process_)\w+", q)
        assert used, q
        assert set(used) <= names, f"{q}: {set(used) - names}"
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])


# --- the access log ---

@pytest.fixture
def logged(start, tmp_path):
    s = start(Path(ROOT / "models" / "demo"), "--access-log", tmp_path / "access")
    s.access = tmp_path / "access"
    return s


def test_each_request_is_one_line_without_its_contents(logged):
    secret = "Once upon a secret"
    ask(logged, "/v1/completions?prompt=hidden", {"prompt": [secret, "A"], "max_tokens": 3, "ignore_eos": True},
        headers={"X-Request-Id": "mine-1"})
    # A line is written once its client has received everything, so another request's line may be written first.
    eventually(lambda: len(lines(logged.access)) == 1, what="a line")
    ask(logged, "/nowhere")
    eventually(lambda: len(lines(logged.access)) == 2, what="two lines")
    stream(logged, "/v1/completions", {"prompt": secret, "max_tokens": 2})
    eventually(lambda: len(lines(logged.access)) == 3, what="three lines")
    first, second, third = lines(logged.access)
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/completions", 200)
    assert first["remote"] == "127.0.0.1" and first["id"] == "mine-1"
    assert len(first["jobs"]) == first["n_jobs"] == 2 and first["completion_tokens"] == 6
    assert 0 <= first["queued_ms"] <= first["ttft_ms"] <= first["total_ms"] and first["finish"] == "length"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert second["status"] == 404 and second["error"] == "not_found" and "jobs" not in second
    assert third["status"] == 200 and third["completion_tokens"] <= 2
    assert "secret" not in logged.access.read_text() and "hidden" not in logged.access.read_text()


def test_a_client_that_disconnects_is_a_line_too(logged):
    host, port = logged.http.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "Once", "max_tokens": 2000, "stream": True, "ignore_eos": True, "n": 64}).encode()
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        s.recv(100)
    (line,) = eventually(lambda: lines(logged.access), what="a line")
    assert line["finish"] == "cut"


def test_closing_the_live_stream_is_its_end(logged):
    """A browser that closes the page does not count as a cut request."""
    host, port = logged.http.removeprefix("http://").split(":")
    before = scrape(logged)
    n = len(lines(logged.access))
    with socket.create_connection((host, int(port)), 60) as s:
        s.sendall(b"GET /api/live HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while b"data: " not in got:
            got += s.recv(65536)
    line = eventually(lambda: [x for x in lines(logged.access)[n:] if x["path"] == "/api/live"], what="a line")[0]
    assert line["status"] == 200 and "finish" not in line and "error" not in line
    after = scrape(logged)
    assert value(after, "http_requests_total", status="cut") == value(before, "http_requests_total", status="cut")
    assert value(after, "http_requests_total", status="2xx") > value(before, "http_requests_total", status="2xx")


def test_a_file_that_was_moved_away_is_opened_again(logged, tmp_path):
    ask(logged, "/version")
    eventually(lambda: lines(logged.access), what="a line")
    logged.access.rename(tmp_path / "old")

    def again():
        ask(logged, "/version")
        return lines(logged.access)
    assert eventually(again, what="a line in the new file")


def test_an_access_log_that_cannot_be_opened_is_named(start):
    with pytest.raises(AssertionError, match="no-such-folder"):
        start(ROOT / "models" / "demo", "--access-log", "/no-such-folder/log")


# --- timing ---

def test_timing_is_in_the_reply_on_request(service):
    timing = complete(service, max_tokens=4, return_timing=True)["timing"]
    assert 0 <= timing["queued_us"] <= timing["first_token_us"] <= timing["total_us"]
    events = stream(service, "/v1/completions", {"prompt": "Once", "max_tokens": 4, "return_timing": True})
    assert events[-1]["choices"] == [] and events[-1]["timing"]["total_us"] > 0
    assert "timing" not in complete(service, max_tokens=4)


def test_replies_name_their_request(service):
    _, headers, reply = ask(service, "/v1/completions", {"prompt": "Once", "max_tokens": 1})
    assert headers["x-request-id"] == reply["id"] and int(headers["openai-processing-ms"]) >= 0
    assert ask(service, "/version", headers={"X-Request-Id": "a-b.c"})[1]["x-request-id"] == "a-b.c"
    assert ask(service, "/version", headers={"X-Request-Id": "a b\tc"})[1]["x-request-id"] is None
