"""The command line: help, exit statuses, plain errors, JSON on request."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid

import pytest

from service import BIN, DEMO, QUERN, ROOT, demo_with, eventually, no_processes_left, spawn
from terminal import Terminal

PROMPT = "Once upon a time"
DEAD = "tcp://127.0.0.1:1"

COMMANDS = {
    ("serve",): ["--http", "--jobs", "--bus", "--device", "--tp", "--replicas", "--config", "--insecure", "--kv-bytes"],
    ("run",): ["-n", "--temperature", "--seed", "--max-tokens", "--device", "--json"],
    ("chat",): ["--to", "--system", "--temperature", "/help"],
    ("submit",): ["--to", "-n", "--temperature", "--detach", "--key", "--idempotency-key", "--json"],
    ("jobs",): ["--to", "--json"],
    ("attach",): ["--to", "--from"],
    ("cancel",): ["--to"],
    ("result",): ["--to", "--json"],
    ("explain",): ["--to", "--json"],
    ("status",): ["--to", "--watch", "--json"],
    ("workers",): ["--to", "--watch", "--json"],
    ("scale",): ["--to", "--device", "--timeout", "--json"],
    ("drain",): ["--to", "--json"],
    ("tokenize",): ["--ids", "--decode", "--add-special", "--no-special"],
    ("grammar",): ["--schema", "--regex", "--gbnf", "--lark", "--choice", "--composite", "--accepts"],
    ("inspect",): ["MODEL", "cpu", "gpu"],
    ("pull",): ["ORG/NAME", "--endpoint", "--include", "--exclude", "--as", "QUERN_TOKEN", "HF_TOKEN"],
    ("list",): ["--json"],
    ("rm",): ["--partial"],
    ("convert",): ["SRC DST", "--to", "--shard-size", "safetensors", "gguf", "ak48"],
    ("quantize",): ["MODEL DST", "--type"],
    ("plan",): ["--device", "--rate", "--context", "--slo", "--measured", "--json"],
    ("bench",): ["engine", "kernels", "scheduler", "tokenizer"],
    ("bench", "engine"): ["--json"],
    ("bench", "kernels"): ["--json"],
    ("bench", "scheduler"): ["--trace", "--running", "--plot", "--json"],
    ("bench", "tokenizer"): ["--json"],
}


def fetch(service, path, body=None):
    """Return the JSON of an HTTP reply. body: posted."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(service.http + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


# --- help and usage ---

@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_the_options(run, command):
    r = run(*command, "--help")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout.lower().startswith("usage: quern " + " ".join(command))
    for word in COMMANDS[command]:
        assert word in r.stdout


def test_help_lists_the_commands(run):
    r = run("--help")
    assert r.returncode == 0
    for command in COMMANDS:
        assert command[0] in r.stdout


@pytest.mark.parametrize("command", [(), ("bench",)], ids=["quern", "quern bench"])
def test_alone_it_shows_its_help(run, command):
    r = run(*command)
    assert (r.returncode, r.stdout) == (2, "")
    assert r.stderr == run(*command, "--help").stdout != ""


@pytest.mark.parametrize("program, usage", [("quern", "quern COMMAND"), ("quern-controller", "quern-controller --model"),
                                            ("quern-worker", "quern-worker --bus"), ("quern-bench", "quern bench WHAT"), ("quern-quantize", "quern-quantize COMMAND")])
def test_every_program_has_help_and_version(program, usage):
    for option, word in (("--help", f"usage: {usage}"), ("--version", program)):
        r = subprocess.run([BIN / program, option], capture_output=True, text=True, timeout=30)
        assert (r.returncode, r.stderr) == (0, "")
        assert word in r.stdout


@pytest.mark.parametrize("arguments, word", [
    (["frobnicate"], "frobnicate"), (["sumbit", "a"], "did you mean submit"), (["serve", "--frob", "x"], "--frob"),
    (["serve"], "MODEL"), (["run"], "MODEL"), (["submit"], "PROMPT"), (["attach"], "JOB"), (["cancel"], "JOB"), (["result"], "JOB"),
    (["tokenize"], "MODEL"), (["inspect"], "MODEL"), (["pull"], "ORG/NAME"), (["rm"], "NAME"), (["bench", "everything"], "everything"),
    (["convert", "a"], "SRC DST"), (["convert", "a", "b"], "--to"), (["convert", "a", "b", "--to", "onnx"], "onnx"),
    (["quantize", "a"], "MODEL DST"), (["quantize", "a", "b"], "--type"), (["quantize", "a", "b", "--type", "q8"], "did you mean q8_0"),
    (["submit", "a", "b"], "b"), (["submit", "a", "-n", "x"], "n"), (["submit", "a", "--temperature", "hot"], "temperature"),
    (["submit", "a", "--temperature"], "temperature"), (["run", DEMO, "a", "--temperature", "nan"], "temperature"),
    (["run", DEMO, "a", "--seed", "99999999999999999999"], "seed"), (["serve", DEMO, "--kv-bytes", "lots"], "kv-bytes"),
    (["serve", DEMO, "--log-level", "loud"], "log-level"), (["serve", DEMO, "--device", "toaster"], "device"),
    (["scale"], "N"), (["scale", "two"], "two"), (["scale", "-1"], "-1"), (["scale", "2", "--device", "toaster"], "toaster"),
    (["drain"], "WORKER"), (["drain", "0"], "0"), (["drain", "cpu"], "cpu"),
    (["submit", "a", "--raw", "--chat"], "--chat"), (["run", DEMO, "a", "--raw", "--system", "b"], "--system"),
    (["status", "--interval", "0"], "interval"), (["serve", DEMO, "--threads", "0"], "threads"),
], ids=lambda a: " ".join(map(str, a))[-40:] if isinstance(a, list) else "")
def test_wrong_usage_is_named_and_exits_2(run, arguments, word):
    r = run(*arguments)
    assert (r.returncode, r.stdout) == (2, "")
    assert len(r.stderr.splitlines()) == 1
    assert word in r.stderr and "--help" in r.stderr


def test_fast_is_accepted_on_a_cpu_and_changes_nothing(run):
    plain = run("run", DEMO, PROMPT, "--seed", "7", "-m", "12")
    fast = run("run", DEMO, PROMPT, "--seed", "7", "-m", "12", "--fast")
    assert (plain.returncode, fast.returncode) == (0, 0), fast.stderr
    assert fast.stdout == plain.stdout != ""
    assert "no effect" in fast.stderr and "no effect" not in plain.stderr


# int8 may choose another word where two words are nearly equally likely.
@pytest.mark.parametrize("mode, other", [("int16", "f32"), ("bf16", "bf16"), ("int8", "int8")])
def test_a_compute_mode_tells_its_story(run, mode, other):
    stories = [run("run", DEMO, PROMPT, "--raw", "--temperature", "0", "-n", "24", "--compute", m)
               for m in (mode, other)]
    assert [r.returncode for r in stories] == [0, 0], stories[0].stderr
    assert stories[0].stdout == stories[1].stdout != ""


def test_a_head_in_int8_is_a_class_of_its_own(run):
    """The demo model's embedding is also its output head."""
    def told(*options):
        r = run("run", DEMO, PROMPT, "--raw", "--temperature", "0", "-m", "24", "--verbose", "--log-level", "info", *options)
        assert r.returncode == 0, r.stderr
        return r.stdout, re.search(r'numerics="([^"]*)"', r.stderr)[1]
    (stored, f32), (int8, other) = told("--compute", "f32", "--head-dtype", "stored"), told("--compute", "f32", "--head-dtype", "int8")
    assert int8 and stored and other == f32 + " head-int8"


@pytest.mark.parametrize("isa", [None, "avx2", "plain"])
@pytest.mark.parametrize("auto", [[], ["--compute", "auto"]], ids=["default", "auto"])
def test_the_default_is_the_mode_of_the_machine_and_the_log_says_why(run, auto, isa):
    r = run("run", DEMO, PROMPT, "--raw", "-m", "4", "--verbose", "--log-level", "info", *auto, *(["--isa", isa] if isa else []))
    assert r.returncode == 0, r.stderr
    mode, why = re.search(r'option=--compute mode=(\w+) device=cpu worker=1 reason="the worker has (.*)"', r.stderr).groups()
    assert (mode, why) in (("int16", "VNNI or AMX"), ("f32", "no VNNI")) and (isa != "plain" or mode == "f32")
    assert re.search(rf'mode="{mode}( by \w+)?"', r.stderr), r.stderr
    [cpu] = json.loads(run("inspect", "cpu", "--no-probe", "--json").stdout)
    assert isa or cpu["auto"] == mode and cpu["numerics"].startswith(f"cpu {mode} ")


def test_a_mode_without_its_instructions_is_noted(run):
    def log(mode):
        r = run("run", DEMO, PROMPT, "--raw", "-m", "4", "--verbose", "--log-level", "warn", "--isa", "plain", "--compute", mode)
        assert r.returncode == 0, r.stderr
        return r.stderr
    assert "no VNNI" in log("int8") and "no AMX" in log("bf16") and "device=cpu" not in log("f32")


def test_a_type_of_the_head_that_there_is_not_is_refused(run):
    r = run("run", DEMO, PROMPT, "--head-dtype", "int4")
    assert r.returncode == 1
    assert "auto, stored, int8" in r.stderr and len(r.stderr.splitlines()) == 1


def test_a_missing_device_is_named(run):
    r = run("run", DEMO, PROMPT, "--device", "cuda:7")
    assert r.returncode == 1
    assert "cuda:7" in r.stderr and len(r.stderr.splitlines()) == 1


# --- other servers' option names, and the environment ---

@pytest.mark.parametrize("arguments, ours", [
    (["--uds", "/run/s"], "--http unix:PATH"), (["--swap-space", "4"], "--swap-bytes"),
    (["-c", "4096"], "--context"), (["--ctx-size", "4096"], "--context"), (["-ngl", "99"], "--device cuda:0"),
    (["--n-gpu-layers", "99"], "--device cuda:0"), (["-np", "4"], "--max-seqs"), (["--parallel", "4"], "--max-seqs"),
    (["--api-key", "sk"], "--api-key-file"), (["-hf", "a/b"], "MODEL is a directory"),
    (["--dtype", "int3"], "--compute"), (["-O", "3"], "nothing is compiled"), (["--load-format", "pt"], "files say themselves"),
    (["--quantization", "fp8"], "stored as awq"), (["--host", "a,b"], "one host"), (["--port", "70000"], "to 65535"),
    (["--port", "80", "--http", "unix:/run/s"], "is not one HOST:PORT"),
    (["--enable-prefix-caching", "--no-prefix-cache"], "--no-prefix-cache: give one"),
], ids=lambda a: " ".join(a) if isinstance(a, list) else "")
def test_an_option_of_another_server_is_answered_with_ours(run, arguments, ours):
    r = run("serve", DEMO, *arguments)
    assert (r.returncode, r.stdout) == (2, "")
    assert len(r.stderr.splitlines()) == 1
    assert arguments[0].split("=")[0] in r.stderr and ours in r.stderr


def test_every_refusal_of_a_command_line_is_reported_at_once(run):
    r = run("serve", DEMO, "--uds", "/run/s", "--seed", "-1", "--trust-remote-code", "--lora-modules", "a=b", "--nonsense", "-O3")
    lines = r.stderr.splitlines()
    assert (r.returncode, r.stdout, len(lines)) == (2, "", 5)
    for line, name in zip(lines, ("--uds", "--seed", "--lora-modules", "--nonsense", "-O")):
        assert line.startswith(f"quern: unknown option {name}"), line
    assert [line.endswith("; see: quern serve --help") for line in lines] == [False] * 4 + [True]


def test_what_is_done_anyway_is_accepted_with_one_note(run):
    r = run("serve", DEMO.with_name("none"), "--quantization", "awq", "--dtype", "half", "--trust-remote-code", "--host", "0.0.0.0",
            "--port", "8000", "--enable-chunked-prefill", "--tokenizer-mode", "auto")
    note, error = r.stderr.splitlines()
    assert r.returncode == 1 and "no such model" in error
    assert " warn quern/serve: without effect: --dtype half: weights are read as they are stored" in note
    assert all(name in note for name in ("; --trust-remote-code: ", "; --enable-chunked-prefill: ", "; --tokenizer-mode auto: "))


def test_a_start_that_fails_has_its_reason_in_any_bytes(run):
    r = run("serve", DEMO, "--compute", "f\udcff32", "--http", "none", "--jobs", "tcp://127.0.0.1:*")
    assert r.returncode in (1, 2) and '--compute "f\ufffd32": must be one of' in r.stderr


def test_options_of_the_same_meaning_are_accepted(start):
    s = start(None, "-m", DEMO, "--max-model-len", "512", "--max-num-seqs=3", "--tensor-parallel-size", "1", "-t", "1",
              "--served-model-name", "gpt-4o,org/small", "--kv-cache-memory-bytes", "4M", "--enforce-eager", "--host", "localhost",
              "--port", "0", "--quantization", "awq_marlin", "--dtype", "float32", "--data-parallel-size", "1",
              "--tool-call-parser", "qwen3_xml")
    assert s.ready["model"] == "gpt-4o" and s.ready["http"].startswith(("localhost:", "127.0.0.1:"))
    assert "without effect" not in s.log() and " compute=f32 " in s.log()
    (w,) = s.workers()
    assert (w["threads"], s.status()["max_context"]) == (1, 512)
    ids = [m["id"] for m in fetch(s, "/v1/models")["data"]]
    assert ids == ["gpt-4o", "org/small"]
    for name in ids:
        reply = fetch(s, "/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
        assert reply["model"] == name
        assert fetch(s, f"/v1/models/{name}")["id"] == name
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(s, "/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1})


@pytest.mark.parametrize("variable, ours", [
    ("QUERN_DTYPE", "quern has --compute MODE"), ("QUERN_MAX_MODEL_LEN", "did you mean QUERN_CONTEXT?"),
    ("QUERN_UDS", "--http unix:PATH"), ("QUERN_N_GPU_LAYERS", "--device cuda:0")])
def test_a_variable_of_another_server_is_answered_with_ours(run, monkeypatch, variable, ours):
    monkeypatch.setenv(variable, "8")
    r = run("serve", DEMO)
    assert (r.returncode, r.stdout) == (2, "") and len(r.stderr.splitlines()) == 1
    assert f"unknown option {variable}" in r.stderr and ours in r.stderr


def test_a_model_given_twice_is_wrong_usage(run, tmp_path):
    r = run("serve", DEMO, "-m", tmp_path)
    assert r.returncode == 2 and str(tmp_path) in r.stderr and str(DEMO) in r.stderr


def test_options_come_from_the_environment_and_the_command_line_wins(start, monkeypatch, tmp_path):
    config = tmp_path / "quern.ini"
    config.write_text("[serve]\ncontext = 300\nname = file\nmax-seqs = 7\n")
    for name, value in (("MODEL", str(DEMO)), ("CONTEXT", "512"), ("NAME", "environment"), ("THREADS", "1"), ("MAX_SEQS", ""),
                        ("CONFIG", str(config)), ("STRICT", "true"), ("PORT", "tcp://10.0.0.1:8080"), ("HOST", "0.0.0.0")):
        monkeypatch.setenv("QUERN_" + name, value)
    s = start(None, "--name", "line")   # and --http 127.0.0.1:0; the host of the environment is not used
    assert (s.ready["model"], s.ready["max_context"]) == ("line", 512)
    assert [w["threads"] for w in s.workers()] == [1]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        fetch(s, "/v1/completions", {"prompt": "a", "max_tokens": 1, "colour": "red"})


@pytest.mark.parametrize("variable, value", [("QUERN_MAX_SEQS", "many"), ("QUERN_KV_BYTES", "lots"), ("QUERN_STRICT", "perhaps")])
def test_a_wrong_variable_is_named(run, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    r = run("serve", DEMO)
    assert r.returncode == 2 and variable in r.stderr and len(r.stderr.splitlines()) == 1


def test_variables_of_the_shell_that_runs_the_tests_are_no_options():
    """The shell that runs the tests may have variables for its own service."""
    env = {**os.environ, "QUERN_MAX_SEQS": "many", "QUERN_TO": DEAD, "NO_COLOR": "1", "QUERN_TEST_SLOW": "1"}
    script = "import os, service; print(sorted({'QUERN_MAX_SEQS', 'QUERN_TO', 'NO_COLOR', 'QUERN_TEST_SLOW'} & os.environ.keys()))"
    r = subprocess.run([sys.executable, "-c", script], env=env, cwd=ROOT / "tests" / "e2e", capture_output=True,
                       text=True, timeout=90)
    assert r.stdout == "['QUERN_TEST_SLOW']\n", r.stderr


# --- programs that quern starts ---

@pytest.mark.parametrize("arguments, program", [(["bench", "kernels"], "quern-bench"), (["quantize", "a", "b"], "quern-quantize"),
                                                (["inspect", "cpu"], "quern-worker"),
                                                (["run", DEMO, PROMPT], "quern-controller")], ids=lambda a: " ".join(map(str, a[:1])))
def test_a_missing_program_is_named(tmp_path, arguments, program):
    shutil.copy(QUERN, tmp_path / "quern")
    r = subprocess.run([tmp_path / "quern", *arguments], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout) == (1, "")
    assert len(r.stderr.splitlines()) == 1
    assert f"{program} is not next to quern in {tmp_path}" in r.stderr


def stand_in(folder, name, script):
    """A copy of quern with a shell script in place of the program that it starts."""
    shutil.copy(QUERN, folder / "quern")
    program = folder / name
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return folder / "quern"


def test_bench_passes_arguments_and_the_exit_status(tmp_path):
    quern = stand_in(tmp_path, "quern-bench", 'printf "%s|" "$@"; exit 7')
    r = subprocess.run([quern, "bench", "serve", "--model", "a b", ""], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout, r.stderr) == (7, "serve|--model|a b||", "")


def test_quantize_passes_its_name_and_arguments(tmp_path):
    quern = stand_in(tmp_path, "quern-quantize", 'printf "%s|" "$@"; exit 7')
    r = subprocess.run([quern, "quantize", "a b", "", "--type", "x"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout, r.stderr) == (7, "quantize|a b||--type|x|", "")


def test_bench_receives_signals(tmp_path):
    quern = stand_in(tmp_path, "quern-bench", "trap 'echo interrupted; exit 9' INT\necho up\nwhile :; do sleep 0.05; done")
    p = spawn([quern, "bench", "serve"], uuid.uuid4().hex, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "up\n"
    p.send_signal(signal.SIGINT)
    assert p.communicate(timeout=30)[0] == "interrupted\n"
    assert p.returncode == 9


@pytest.mark.parametrize("script, word", [("exit 5", "exit status 5"), ("echo nonsense", "exit status 0"), ("kill -KILL $$", "SIGKILL")],
                         ids=["exits", "nonsense", "killed"])
def test_inspect_reports_a_worker_that_fails(tmp_path, script, word):
    r = subprocess.run([stand_in(tmp_path, "quern-worker", script), "inspect", "cpu"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout) == (1, "")
    assert len(r.stderr.splitlines()) == 1 and "quern-worker" in r.stderr and word in r.stderr


# --- no service ---

@pytest.mark.parametrize("arguments", [["submit", PROMPT], ["status"], ["workers"], ["jobs"], ["attach", "0" * 32], ["scale", "2"], ["drain", "1"],
                                       ["cancel", "0" * 32], ["result", "0" * 32]], ids=lambda a: a[0])
def test_without_a_service_the_error_names_the_remedy(run, arguments):
    r = run(*arguments, "--to", DEAD)
    assert (r.returncode, r.stdout) == (1, "")
    assert len(r.stderr.splitlines()) == 1
    assert DEAD in r.stderr and "quern serve" in r.stderr


@pytest.mark.parametrize("endpoint", ["nonsense", "http://127.0.0.1:80", "unix:/run/http.sock", "tcp://", "tcp://127.0.0.1:x", ""])
def test_an_invalid_endpoint_is_named(run, endpoint):
    r = run("status", "--to", endpoint)
    assert r.returncode in (1, 2)
    assert endpoint in r.stderr and len(r.stderr.splitlines()) == 1
    assert ("is HTTP's address" in r.stderr) == endpoint.startswith(("http", "unix:"))


def test_the_service_may_be_named_by_the_environment(run, service, monkeypatch):
    monkeypatch.setenv("QUERN_TO", service.jobs)
    assert json.loads(run("status", "--json").stdout)["model"] == "demo"
    assert DEAD in run("status", "--to", DEAD).stderr
    monkeypatch.setenv("QUERN_TO", DEAD)
    assert DEAD in run("status").stderr


def test_the_http_port_is_not_a_job_socket(run, service):
    """Pass HTTP's port instead of the job socket's."""
    r = run("status", "--to", service.http.replace("http", "tcp"))
    assert r.returncode == 1
    assert "job socket" in r.stderr or "no service answers" in r.stderr


# --- a running service ---

def test_submit_streams_the_text(run, service, client):
    r = run("submit", "--raw", PROMPT, "--to", service.jobs, "-t", "0", "-m", "20")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == client.generate(PROMPT, temperature=0, max_tokens=20).text + "\n"


def test_a_prompt_is_a_message_where_the_model_has_a_chat_template(run, service, client):
    done = client.generate(messages=[{"role": "user", "content": "Hello!"}], temperature=0, max_tokens=20)
    for options in ((), ("--chat",)):
        r = run("submit", "Hello!", "--to", service.jobs, "-t", "0", "-m", "20", "--json", *options)
        assert json.loads(r.stdout)["outputs"][0]["tokens"] == done.tokens, r.stderr
    r = run("run", DEMO, "Hello!", "-t", "0", "-m", "20", "--json")
    assert json.loads(r.stdout)["outputs"][0]["tokens"] == done.tokens, r.stderr
    raw = run("submit", "Hello!", "--raw", "--to", service.jobs, "-t", "0", "-m", "20", "--json")
    assert json.loads(raw.stdout)["outputs"][0]["tokens"] == client.generate("Hello!", temperature=0, max_tokens=20).tokens


def test_without_a_chat_template_a_prompt_is_completed(run, tmp_path):
    model = demo_with(tmp_path, template=None)
    prompt = ("Once upon a time", "-t", "0", "-m", "8")
    assert run("run", model, *prompt).stdout == run("run", DEMO, "--raw", *prompt).stdout != ""
    r = run("run", model, *prompt, "--chat")
    assert (r.returncode, r.stdout) == (1, "")
    assert "chat template" in r.stderr


def test_every_sampling_option_reaches_the_service(run, service, client):
    r = run("submit", PROMPT, "--raw", "--to", service.jobs, "-n", "2", "-m", "30", "--min-tokens", "4", "-t", "0.9", "--top-p", "0.95",
            "--top-k", "30", "--min-p", "0.01", "--seed", "5", "--stop", "zebra", "--stop", "lion", "--stop-token-ids", "1,2",
            "--ignore-eos", "--presence-penalty", "0.1", "--frequency-penalty", "0.2", "--repetition-penalty", "1.1",
            "--logprobs", "2", "--bad-words", "tiger", "--json")
    assert r.returncode == 0, r.stderr
    done = client.generate(PROMPT, n=2, max_tokens=30, min_tokens=4, temperature=0.9, top_p=0.95, top_k=30, min_p=0.01, seed=5,
                           stop=["zebra", "lion"], stop_token_ids=[1, 2], ignore_eos=True, presence_penalty=0.1,
                           frequency_penalty=0.2, repetition_penalty=1.1, logprobs=2, bad_words=["tiger"])
    result = json.loads(r.stdout)["outputs"]
    assert [o["tokens"] for o in result] == [o["tokens"] for o in done.outputs]
    assert [len(o["logprobs"]) for o in result] == [len(o["logprobs"]) for o in done.outputs]


def test_submit_with_chat_sends_a_message(run, service, client):
    r = run("submit", "Hello!", "--to", service.jobs, "--chat", "--system", "Be kind.", "-t", "0", "-m", "20", "--json")
    done = client.generate(messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}],
                           temperature=0, max_tokens=20)
    result = json.loads(r.stdout)
    assert result["usage"]["prompt_tokens"] == done.usage["prompt_tokens"]
    assert result["outputs"][0]["tokens"] == done.tokens


def test_an_error_of_the_service_is_one_line(run, service):
    r = run("submit", PROMPT, "--to", service.jobs, "--temperature", "-1")
    assert (r.returncode, r.stdout) == (1, "")
    assert "temperature" in r.stderr and len(r.stderr.splitlines()) == 1


def test_detach_attach_result_and_cancel(run, service):
    to = ("--to", service.jobs)
    r = run("submit", PROMPT, *to, "--detach", "-m", "200", "-t", "0", "--ignore-eos")
    job = r.stdout.strip()
    assert r.returncode == 0 and len(job) == 32
    attached = run("attach", job, *to)
    assert attached.returncode == 0
    assert run("result", job, *to).stdout == attached.stdout
    result = json.loads(run("result", job, *to, "--json").stdout)
    assert result["outputs"][0]["text"].strip() == attached.stdout.strip()
    assert len(result["outputs"][0]["tokens"]) == 200
    assert run("attach", job, *to, "--from", "150").stdout.strip() != ""
    assert run("cancel", job, *to).returncode == 0      # it has finished: nothing to do


def test_cancel_ends_a_detached_job(run, service, client):
    to = ("--to", service.jobs)
    job = run("submit", PROMPT, *to, "--detach", "-n", "64", "-m", "2000", "--ignore-eos").stdout.strip()
    r = run("result", job, *to)
    assert r.returncode == 1 and "E_NOT_READY" in r.stderr
    assert run("cancel", job, *to).returncode == 0
    assert client.attach(job).done().finish_reason == "abort"
    service.idle()


def test_an_unknown_job_is_named(run, service):
    for command in ("attach", "result", "cancel"):
        r = run(command, "f" * 32, "--to", service.jobs)
        assert r.returncode == 1
        assert "E_NO_SUCH_JOB" in r.stderr and len(r.stderr.splitlines()) == 1


def test_a_job_is_named_by_the_first_digits_of_its_id(run, service, client):
    to, first = ("--to", service.jobs), run("submit", PROMPT, "--to", service.jobs, "--detach", "-m", "3").stdout.strip()
    by_digit = {first[0]: [first]}
    while max(map(len, by_digit.values())) < 2:      # 17 jobs at most
        job = client.submit(PROMPT, max_tokens=1).accepted().job
        by_digit.setdefault(job[0], []).append(job)
    twins = next(j for j in by_digit.values() if len(j) == 2)
    client.attach(first).done()
    jobs = [j["job"] for j in client.jobs()]
    unique = next(n for n in range(1, 33) if sum(j.startswith(first[:n]) for j in jobs) == 1)
    expected = run("result", first, *to).stdout
    for command in ("attach", "result"):
        r = run(command, first[:unique], *to)
        assert (r.returncode, r.stdout) == (0, expected), r.stderr
    assert run("cancel", first[:unique], *to).returncode == 0
    for command in ("attach", "result", "cancel"):
        r = run(command, twins[0][0], *to)
        assert (r.returncode, r.stdout) == (1, "")
        assert len(r.stderr.splitlines()) == 1
        matches = [j for j in jobs if j.startswith(twins[0][0])]
        assert f"begins {len(matches)} jobs" in r.stderr and sum(j in r.stderr for j in matches) == min(len(matches), 10)


def test_ctrl_c_cancels_a_submitted_job(service):
    p = spawn([QUERN, "submit", PROMPT, "--to", service.jobs, "-n", "64", "-m", "2000", "--ignore-eos"], uuid.uuid4().hex,
              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 1
    assert b"cancelled" in err
    service.idle()


def test_a_killed_submit_cancels_its_job(service):
    p = spawn([QUERN, "submit", PROMPT, "--to", service.jobs, "-n", "64", "-m", "2000", "--ignore-eos"], uuid.uuid4().hex,
              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.read(1)
    p.kill()
    p.communicate(timeout=30)
    service.idle()


def test_a_command_without_stdout_reports_it(service):
    r = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", QUERN, "submit", "--to", service.jobs, "-m", "3", PROMPT],
                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
    assert r.returncode == 1
    assert "cannot write the output: Bad file descriptor" in r.stderr


def test_a_service_without_stdin_stdout_and_stderr_serves(tmp_path):
    mark, jobs = uuid.uuid4().hex, f"ipc://{tmp_path}/jobs"
    p = spawn(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", QUERN, "serve", DEMO, "--jobs", jobs, "--http", "none",
               "--journal", tmp_path / "journal"], mark)
    submit = [QUERN, "submit", "--to", jobs, "--durable", "-m", "3", "-t", "0", PROMPT]
    r = eventually(lambda: (r := subprocess.run(submit, capture_output=True, text=True, timeout=60)).returncode == 0 and r)
    assert r.stdout.strip()
    p.send_signal(signal.SIGINT)
    p.wait(60)
    no_processes_left(mark)


def test_output_into_a_closed_pipe_ends_the_command(service):
    p = spawn([QUERN, "submit", PROMPT, "--to", service.jobs, "-m", "2000", "--ignore-eos"], uuid.uuid4().hex,
              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.read(1)
    p.stdout.close()
    p.wait(60)
    service.idle()


@pytest.mark.parametrize("command, key", [("status", "blocks"), ("workers", "workers"), ("jobs", "jobs")])
def test_json_is_json(run, service, client, command, key):
    client.generate(PROMPT, max_tokens=1)
    r = run(command, "--to", service.jobs, "--json")
    assert (r.returncode, r.stderr) == (0, "")
    assert json.loads(r.stdout)[key]


@pytest.mark.parametrize("command, word", [("status", "demo"), ("workers", "cpu"), ("jobs", "JOB")])
def test_tables_have_headings(run, service, client, command, word):
    client.generate(PROMPT, max_tokens=1)
    r = run(command, "--to", service.jobs)
    assert (r.returncode, r.stderr) == (0, "")
    assert word in r.stdout and "\x1b" not in r.stdout


def test_watch_refreshes_until_ctrl_c(service):
    p = spawn([QUERN, "status", "--to", service.jobs, "--watch", "--interval", "0.05", "--json"], uuid.uuid4().hex,
              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        assert json.loads(p.stdout.readline())["ready"]
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    assert p.returncode == 0


def test_serve_prints_its_endpoints():
    p = spawn([QUERN, "serve", DEMO, "--jobs", "tcp://127.0.0.1:*", "--http", "127.0.0.1:0"], "says", stdin=subprocess.DEVNULL,
              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    first, second, third = (p.stdout.readline() for _ in range(3))
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    assert "demo" in first and "2048" in first
    assert "tcp://127.0.0.1:" in second and "quern submit --to" in second
    assert "http://127.0.0.1:" in third
    no_processes_left("says")


def test_isa_selects_the_kernels_of_the_workers(start, run):
    s = start(DEMO, "--isa", "plain")
    assert [w["isa"] for w in s.workers()] == ["plain"]
    r = run("run", DEMO, PROMPT, "--isa", "sse9")
    assert r.returncode == 1 and "'sse9'" in r.stderr and "avx512, avx2 or plain" in r.stderr


# --- tokens ---

TEXT = "Once upon a time, Lily said: \"Hello!\"\n\n  12 + 10 = 22; café 東京 \U0001f600\n"


def test_tokenize_decode_reverses_tokenize(run):
    ids = run("tokenize", DEMO, "--ids", input=TEXT)
    assert ids.returncode == 0
    assert len(ids.stdout.splitlines()) == 1
    back = run("tokenize", DEMO, "--decode", input=ids.stdout)
    assert (back.returncode, back.stdout) == (0, TEXT)


def test_grammar_shows_what_it_compiles_to_and_accepts(run, tmp_path):
    r = run("grammar", "--regex", "a{0,1000000}b?")
    assert r.returncode == 0 and "expressions" in r.stdout and "ms" in r.stdout
    r = run("grammar", "--regex", "(ab)+c?", "--accepts", input="ab\nababc\nabx\na\n\n")
    assert r.returncode == 0
    assert r.stdout.splitlines() == ["yes", "yes", "no, byte 2", "no, it ends too early", "no, it ends too early"]
    gbnf = tmp_path / "g"
    gbnf.write_text('root ::= "[" (root ("," root)*)? "]"\n')
    r = run("grammar", "--gbnf", gbnf, "--accepts", input="[[],[]]\n[,]\n")
    assert r.stdout.splitlines() == ["yes", "no, byte 1"]
    schema = tmp_path / "s"
    schema.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], '
                      '"additionalProperties": false}')
    r = run("grammar", "--schema", schema, "--accepts", input='{"a": 12}\n{"a": "x"}\n{}\n')
    assert r.stdout.splitlines() == ["yes", "no, byte 6", "no, byte 1"]
    assert "a" in run("grammar", "--schema", schema, "--print").stdout
    composite = tmp_path / "f"
    composite.write_text('{"type": "sequence", "parts": [{"type": "text", "until": ["!"]}, {"type": "literal", "text": "!"}]}')
    for option in ("--composite", "--form"):   # the latter is the name of earlier versions
        r = run("grammar", option, composite, "--accepts", input="a!\n!!\n")
        assert r.stdout.splitlines() == ["yes", "no, byte 1"]


def test_grammar_names_what_is_not_supported(run, tmp_path):
    r = run("grammar", "--regex", "a(?=b)")
    assert r.returncode == 1 and "lookahead" in r.stderr
    r = run("grammar", "--regex", "a", "--gbnf", "b")
    assert r.returncode == 2 and "exclude" in r.stderr
    assert run("grammar").returncode == 2
    schema = tmp_path / "s"
    schema.write_text('{"properties": {"a": {"pattern": "(?=x)"}}}')
    r = run("grammar", "--schema", schema)
    assert r.returncode == 1 and "#/properties/a" in r.stderr


def test_tokenize_agrees_with_the_service(run, client):
    assert [int(i) for i in run("tokenize", DEMO, "--ids", input=TEXT).stdout.split()] == client.tokenize(TEXT)


def test_tokenize_no_special_leaves_special_tokens_plain(run):
    def ids(*options):
        return run("tokenize", DEMO, "--ids", *options, input="<|im_end|>").stdout.split()
    assert len(ids()) == 1
    assert len(ids("--no-special")) > 3


def test_tokenize_adds_bos_only_with_add_special(run, stories_model):
    def ids(*options):
        return run("tokenize", stories_model, "--ids", *options, input=PROMPT).stdout.split()
    assert ids("--add-special") == ["1"] + ids()


def test_tokenize_shows_each_token(run):
    r = run("tokenize", DEMO, input="Hello there")
    assert r.returncode == 0
    assert len(r.stdout.splitlines()) == len(run("tokenize", DEMO, "--ids", input="Hello there").stdout.split())


def test_tokenize_of_empty_input_prints_nothing(run):
    r = run("tokenize", DEMO, "--ids", input="")
    assert r.returncode == 0
    assert r.stdout.strip() == ""


@pytest.mark.parametrize("ids, word", [("99999", "99999"), ("abc", "abc"), ("-1", "-1")])
def test_invalid_ids_are_named(run, ids, word):
    r = run("tokenize", DEMO, "--decode", input=ids)
    assert r.returncode == 1
    assert word in r.stderr


# --- bench kernels ---

def test_bench_kernels_measures_and_draws(run, tmp_path):
    picture = tmp_path / "roofline.svg"
    r = run("bench", "kernels", "--compute", "f32,int8", "--only", "layers,norm,attention", "--rows", "1,16", "--ms", "1",
            "--cold-mb", "0", "--context", "32", "--kv-cache-dtype", "f32", "--json", "--plot", picture)
    assert (r.returncode, r.stderr) == (0, "")
    out = json.loads(r.stdout)
    assert [m["compute"] for m in out["modes"]] == ["f32", "int8"] and out["modes"][1]["mode"].startswith("int8 by ")
    assert out["probes"]["read"]["median"] > 0
    got = {(p["compute"], p["op"], p["kv"], p["rows"]) for p in out["results"]}
    for compute in ("f32", "int8"):
        assert {(compute, op, "", rows) for op in ("qkv", "o", "gate+up", "down", "layer", "norm") for rows in (1, 16)} <= got
        assert (compute, "attention decode", "f32", 16) in got
    assert all(p["us"] > 0 and p["pairs"] >= 3 and p["share_of_roof"] > 0 for p in out["results"])
    assert picture.read_text().startswith("<svg") and "memory: " in picture.read_text()
    (tmp_path / "run.json").write_text(r.stdout)
    again = tmp_path / "again.svg"
    r = run("bench", "kernels", "--from", tmp_path / "run.json", "--plot", again)
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    assert again.read_text().count('class="p c') == picture.read_text().count('class="p c')


@pytest.mark.parametrize("part", ["norm", "attention"])
def test_bench_kernels_measures_a_part_alone(run, part):
    r = run("bench", "kernels", "--compute", "int8", "--only", part, "--rows", "1", "--ms", "1", "--cold-mb", "0", "--context", "32",
            "--kv-cache-dtype", "f32", "--json")
    assert (r.returncode, r.stderr) == (0, "")
    assert {p["op"].split()[0] for p in json.loads(r.stdout)["results"]} == {part}


@pytest.mark.parametrize("dtype", ["q4_0", "q4_k", "q6_k", "iq4_xs", "mxfp4"])
def test_bench_kernels_measures_types_of_gguf(run, dtype):
    r = run("bench", "kernels", "--dtype", dtype, "--compute", "int8", "--only", "layers", "--rows", "1,4", "--ms", "1", "--cold-mb", "0",
            "--json")
    assert (r.returncode, r.stderr) == (0, "")
    layers = [p for p in json.loads(r.stdout)["results"] if p["op"] == "layer"]
    bits = {"q4_0": 4.5, "q4_k": 4.625, "q6_k": 6.5625, "iq4_xs": 8.3125, "mxfp4": 9}[dtype]
    for p in layers:
        held = p["gb_per_s"] * p["us"] * 1e3 * 8 / (1024 * 4096 + 2048 * 1024 + 1024 * 6144 + 3072 * 1024)
        assert held == pytest.approx(bits, rel=0.01)


@pytest.mark.parametrize("arguments, word", [(("--compute", "f32,f64"), "f32,f64"), (("--dtype", "q9_k"), "q9_k"),
                                             (("--dtype", "q4_k", "--tune"), "--tune"), (("--compute", ""), "''"), (("--only", "moon"), "moon"),
                                             (("--head-dtype", "int4"), "int4"), (("--kv-cache-dtype", "f8"), "f8"),
                                             (("--plot", "x", "--tune"), "--plot"), (("--from", "x"), "--plot")], ids=lambda a: a[0])
def test_bench_kernels_refuses_what_it_does_not_have(run, arguments, word):
    r = run("bench", "kernels", *arguments)
    assert (r.returncode, r.stdout) == (2, "")
    assert word in r.stderr


# --- inspect ---

def test_inspect_shows_a_model(run):
    r = run("inspect", DEMO)
    assert (r.returncode, r.stderr) == (0, "")
    for word in ("Qwen3ForCausalLM", "awq", "layers"):
        assert word.lower() in r.stdout.lower()


def test_inspect_shows_the_cache_of_the_default_mode(run):
    memory = json.loads(run("inspect", DEMO, "--no-probe", "--json").stdout)["memory"]
    [cpu] = json.loads(run("inspect", "cpu", "--no-probe", "--json").stdout)
    assert memory["compute"] == cpu["auto"]
    assert memory["kv_type"] == next(m["kv"] for m in cpu["compute"] if m["compute"] == cpu["auto"])
    shown = run("inspect", DEMO, "--no-probe").stdout
    assert f"K and V in {memory['kv_type']}, as --compute {memory['compute']} has them" in shown


def test_inspect_shows_this_machine(run):
    r = run("inspect", "cpu")
    assert (r.returncode, r.stderr) == (0, "")
    for word in ("memory", "cores", "caches", "L2", "huge pages", "compute", "(the default: this CPU has", "probed"):
        assert word in r.stdout


def test_inspect_without_a_probe_measures_nothing(run):
    r = run("inspect", "cpu", "--no-probe", "--json")
    assert (r.returncode, r.stderr) == (0, "")
    [d] = json.loads(r.stdout)
    assert "probes" not in d
    assert d["machine"]["cores"] >= 1 and d["auto"] in ("f32", "int16")
    assert {m["compute"] for m in d["compute"]} >= {"f32", "int16", "int8"} and all(m["mode"].startswith(m["compute"]) for m in d["compute"])
    vnni = d["machine"]["has"]["AVX-512 VNNI"] or d["machine"]["has"]["AVX-VNNI"]
    assert vnni or d["auto"] == "f32"


def test_inspect_gpu_lists_gpus_or_the_reason(run):
    r = run("inspect", "gpu")
    assert r.returncode in (0, 1)
    assert (r.stdout + r.stderr).strip()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_worker_describes_devices_as_json(kind):
    r = subprocess.run([BIN / "quern-worker", "--inspect", kind], capture_output=True, text=True, timeout=60)
    out = json.loads(r.stdout)
    if r.returncode == 0:
        assert all(d["device"].startswith("cpu" if kind == "cpu" else "cuda:") and d["bytes_total"] > 0 for d in out)
    else:
        assert kind == "gpu" and out["error"]


def test_a_worker_refuses_to_inspect_another_kind():
    r = subprocess.run([BIN / "quern-worker", "--inspect", "tpu"], capture_output=True, text=True, timeout=30)
    assert (r.returncode, r.stdout) == (2, "")
    assert "--inspect" in r.stderr


def test_inspect_names_a_missing_model(run):
    r = run("inspect", "/nonexistent")
    assert r.returncode == 1
    assert "/nonexistent" in r.stderr and len(r.stderr.splitlines()) == 1


# --- a terminal ---

def test_run_on_a_terminal_is_a_chat(tmp_path):
    t = Terminal("run", DEMO, "-t", "0", "-m", "30", HOME=str(tmp_path))
    t.expect(">")
    t.type("Hello!\n")
    t.expect("Hello!")          # echo of the terminal
    t.expect("Hello")           # the answer
    t.expect(">")
    t.type("/clear\n")
    t.expect(">")
    t.type("\x04")              # Ctrl-D
    assert t.end() == 0


# --- on a terminal ---

def test_a_terminal_shows_the_prompt_and_breaks_between_words(service):
    fields = ["--raw", PROMPT, "--seed", "7", "--max-tokens", "120", "--to", service.jobs]
    plain = subprocess.run([QUERN, "submit", *fields], capture_output=True, text=True, timeout=100).stdout
    t = Terminal("submit", *fields, NO_COLOR="1")
    text = t.rest().replace("\r\n", "\n")
    assert t.end() == 0
    # A word that is moved to the next line is erased first.
    shown = re.sub(r"[^ \n]*\x1b\[\d+G\x1b\[K", "", text)
    assert shown.split() == (PROMPT + plain).split()
    assert all(len(line) <= 100 for line in shown.split("\n")) and shown.count("\n") > plain.count("\n")


def test_a_table_fits_a_narrow_terminal(service):
    t = Terminal("workers", "--to", service.jobs, NO_COLOR="1")
    lines = t.rest().splitlines()
    assert t.end() == 0
    assert lines[0].split() == ["WORKER", "1"] and ["STATE", "serving"] in [x.split() for x in lines]
    wide = subprocess.run([QUERN, "workers", "--to", service.jobs], capture_output=True, text=True, timeout=60).stdout
    assert wide.splitlines()[0].split()[:3] == ["WORKER", "REPLICA", "HOST"], "whole lines for programs"


def test_a_service_on_a_terminal_logs_what_needs_attention():
    for options, logs in (([], False), (["--log-level", "info"], True)):
        t = Terminal("serve", str(DEMO), "--http", "none", "--jobs", f"ipc://{tempfile.mkdtemp()}/jobs", *options)
        before = t.expect("Ctrl-C ends it.")
        t.type("\x03")
        t.rest()
        assert t.end() == 0 and (" info " in before) == logs, before
