"""quern.LLM: the same outputs as `quern submit --batch` and HTTP, also after kills; refusals; clean-up."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid

import pytest

import quern
from quern import BeamSearchParams, SamplingParams, StructuredOutputsParams
from service import BIN, DEMO, MARK, QUERN, ROOT, eventually, marked, no_processes_left

PROMPT = "Once upon a time"
# generation_config.json has other values. SamplingParams overrides them, as in vLLM.
NEUTRAL = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
KINDS = [
    {}, {"temperature": 0}, {"n": 2, "logprobs": 2}, {"stop": ["a", " the"]}, {"top_p": 0.8, "top_k": 20},
    {"structured_outputs": {"choice": ["yes", "no"]}}, {"structured_outputs": {"regex": "[a-c]{3,6}"}},
    {"repetition_penalty": 1.2, "min_tokens": 4}, {"logit_bias": {"11": 4}, "ignore_eos": True}, {"bad_words": ["was"]},
]


def mixed(n):
    """Make n prompts, and the fields of a request for each."""
    rng = random.Random(3)
    words = ["dog", "girl", "tree", "boat", "ball", "bird"]
    return [(f"{PROMPT} a {rng.choice(words)} {i}", {**NEUTRAL, "seed": i, "max_tokens": rng.randrange(4, 24),
                                                     **KINDS[i % len(KINDS)]}) for i in range(n)]


def params_of(fields):
    fields = dict(fields)
    form = fields.pop("structured_outputs", None)
    return SamplingParams(**fields, structured_outputs=StructuredOutputsParams(**form) if form else None)


def batch(service, tmp_path, lines):
    """Return the choices of each line, by `quern submit --batch`."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                                        "body": {"prompt": p, "return_tokens_as_token_ids": True, **fields}}) + "\n" for i, (p, fields) in enumerate(lines)))
    subprocess.run([QUERN, "submit", "--batch", path, "--to", service.jobs], check=True, capture_output=True, timeout=150)
    return [json.loads(x)["response"]["body"]["choices"] for x in (tmp_path / "in.out.jsonl").read_text().splitlines()]


def same(outputs, lines, choices):
    assert len(outputs) == len(lines) == len(choices)
    for output, (prompt, fields), wanted in zip(outputs, lines, choices):
        assert output.prompt == prompt and output.finished
        assert [(o.index, o.text, o.finish_reason) for o in output.outputs] == \
            [(c["index"], c["text"], c["finish_reason"]) for c in wanted]
        for o, c in zip(output.outputs, wanted):
            if "logprobs" not in fields:
                assert o.logprobs is None and o.cumulative_logprob is None
                continue
            assert [f"token_id:{t}" for t in o.token_ids] == c["logprobs"]["tokens"]
            # HTTP writes floats with nine digits, which identify them.
            assert [place[t].logprob for t, place in zip(o.token_ids, o.logprobs)] == \
                pytest.approx(c["logprobs"]["token_logprobs"], rel=1e-7)
            assert abs(o.cumulative_logprob - sum(c["logprobs"]["token_logprobs"])) < 1e-3
            for place, top in zip(o.logprobs, c["logprobs"]["top_logprobs"]):
                for name, logprob in top.items():
                    assert place[int(name.split(":")[1])].logprob == pytest.approx(logprob, rel=1e-7)


def test_a_thousand_prompts_equal_submit_batch(llm, service, tmp_path):
    lines = mixed(1000)
    outputs = llm.generate([p for p, _ in lines], [params_of(f) for _, f in lines], use_tqdm=False)
    same(outputs, lines, batch(service, tmp_path, lines))


@pytest.mark.parametrize("victim", ["quern-contr", "quern-worker"])
def test_a_kill_in_the_middle_changes_nothing(service, tmp_path, victim, monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    lines = mixed(300)
    killed = []

    class Bar:
        def __init__(self, total, desc):
            self.done = 0

        def update(self, n):
            self.done += n
            if self.done in (60, 170):
                for pid, name in marked(mark).items():
                    if name.startswith(victim):
                        killed.append(pid)
                        os.kill(pid, signal.SIGKILL)

        def close(self):
            assert self.done == 300
    with quern.LLM(str(DEMO), max_in_flight=40) as llm:
        outputs = llm.generate([p for p, _ in lines], [params_of(f) for _, f in lines], use_tqdm=Bar)
    assert len(set(killed)) == 2
    same(outputs, lines, batch(service, tmp_path, lines))
    no_processes_left(mark)


def test_vectors_survive_a_kill_in_the_middle(tmp_path, monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    texts, killed = [f"{PROMPT} {i}" for i in range(1000)], []

    class Bar:
        def __init__(self, total, desc):
            self.done, self.total = 0, total

        def update(self, n):
            self.done += n
            if self.done in (100, 600):
                victim = "quern-contr" if self.done == 100 else "quern-worker"
                killed.extend(pid for pid, name in marked(mark).items() if name.startswith(victim))
                os.kill(killed[-1], signal.SIGKILL)

        def close(self):
            assert self.done == self.total
    with quern.LLM(str(DEMO)) as llm:
        quiet = llm.embed(texts, use_tqdm=False)
        assert [o.outputs for o in llm.embed(texts, use_tqdm=Bar)] == [o.outputs for o in quiet]
    assert len(set(killed)) == 2
    no_processes_left(mark)


def test_prompts_of_every_kind_are_the_same(llm):
    ids = llm.get_tokenizer().encode(PROMPT)
    prompts = [PROMPT, ids, {"prompt": PROMPT}, {"prompt_token_ids": ids}, quern.TokensPrompt(prompt_token_ids=ids, prompt="x")]
    outputs = llm.generate(prompts, SamplingParams(seed=1, max_tokens=9))
    assert len({o.outputs[0].text for o in outputs}) == 1
    assert [o.prompt for o in outputs] == [PROMPT, None, PROMPT, None, "x"]
    assert all(o.prompt_token_ids == ids for o in outputs)
    for one in (PROMPT, ids, {"prompt": PROMPT}):
        assert [o.outputs[0].text for o in llm.generate(one, SamplingParams(seed=1, max_tokens=9))] == \
            [outputs[0].outputs[0].text]
    assert llm.generate([]) == []
    assert len(llm.generate(PROMPT)[0].outputs[0].token_ids) == 16


def test_prompt_logprobs_and_their_texts(llm):
    o = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=3, logprobs=2, prompt_logprobs=1))[0]
    assert o.prompt_logprobs[0] is None and len(o.prompt_logprobs) == len(o.prompt_token_ids)
    assert o.prompt_logprobs[1][o.prompt_token_ids[1]].decoded_token == " upon"
    out = o.outputs[0]
    assert "".join(place[t].decoded_token for t, place in zip(out.token_ids, out.logprobs)) == out.text
    assert [place[t].rank for t, place in zip(out.token_ids, out.logprobs)] == [1, 1, 1]
    m = o.metrics
    assert m.arrival_time <= m.first_scheduled_time + 1e-3 and m.first_token_time <= m.finished_time == m.last_token_time


def test_parameters_that_the_package_honours_itself(llm):
    ids = llm.get_tokenizer().encode("One day, " + PROMPT)
    cut = llm.generate([ids], SamplingParams(seed=2, max_tokens=6, truncate_prompt_tokens=4))[0]
    assert cut.prompt_token_ids == ids[-4:]
    assert cut.outputs[0].text == llm.generate([ids[-4:]], SamplingParams(seed=2, max_tokens=6))[0].outputs[0].text
    silent = llm.generate([ids], SamplingParams(seed=2, max_tokens=6, detokenize=False))[0].outputs[0]
    assert silent.text == "" and len(silent.token_ids) == 6
    seeded = [[o.outputs[0].text for o in quern_llm.generate([PROMPT] * 5)] for quern_llm in
              (_joined(llm, 4), _joined(llm, 4), _joined(llm, 5))]
    assert seeded[0] == seeded[1] != seeded[2] and len(set(seeded[0])) > 1


def _joined(llm, seed):
    return quern.LLM(address=llm.address, seed=seed)


def post(service, path, body):
    request = urllib.request.Request(service.http + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return json.load(r)


def test_beam_search_equals_http(llm, service):
    for prompt, width, more in ((PROMPT, 4, {}), ("The dog", 3, {"length_penalty": 0.5}), ("x", 2, {"early_stopping": True})):
        want = post(service, "/v1/completions", {"prompt": prompt, "use_beam_search": True, "beam_width": width, "n": width,
                                                 "temperature": 0, "max_tokens": 12, "logprobs": 0, **more})
        got = llm.beam_search([prompt], BeamSearchParams(beam_width=width, max_tokens=12, include_stop_str_in_output=True,
                                                         **more))[0].sequences
        assert [s.text for s in got] == [prompt + c["text"] for c in want["choices"]] or \
            [s.text.replace("<|endoftext|>", "").replace("<|im_end|>", "") for s in got] == \
            [prompt + c["text"] for c in want["choices"]]
        assert [s.finish_reason for s in got] == [c["finish_reason"] for c in want["choices"]]
        for s, c in zip(got, want["choices"]):
            assert abs(s.cum_logprob - sum(c["logprobs"]["token_logprobs"])) < 1e-3
        assert [s.cum_logprob for s in got] == sorted((s.cum_logprob for s in got), reverse=True) or more


def test_a_stop_token_ends_a_beam_as_asked(llm):
    prompt = "<|im_start|>user\nTell<|im_end|>\n<|im_start|>assistant\n"
    with_it, without = (llm.beam_search(prompt, BeamSearchParams(3, 40, include_stop_str_in_output=keep))[0].sequences
                        for keep in (True, False))
    stopped = [i for i, s in enumerate(with_it) if s.finish_reason == "stop"]
    assert stopped and len(with_it) == len(without) == 3
    for i in stopped:
        assert with_it[i].tokens[:-1] == without[i].tokens and with_it[i].tokens[-1] == with_it[i].stop_reason


def test_chats_equal_http(llm, service):
    chats = [[{"role": "user", "content": f"Tell me of {w}."}] for w in ("dogs", "<|im_end|>", "a boat")]
    outputs = llm.chat(chats, SamplingParams(seed=3, max_tokens=20))
    for chat, output in zip(chats, outputs):
        want = post(service, "/v1/chat/completions", {"messages": chat, "seed": 3, "max_tokens": 20, **NEUTRAL})
        assert output.outputs[0].text == want["choices"][0]["message"]["content"]
        assert output.prompt.endswith("<|im_start|>assistant\n") and len(output.prompt_token_ids) == \
            want["usage"]["prompt_tokens"]
    one = llm.chat(chats[0], SamplingParams(seed=3, max_tokens=20))
    assert [o.outputs[0].text for o in one] == [outputs[0].outputs[0].text]
    begun = chats[0] + [{"role": "assistant", "content": "There"}]
    went_on = llm.chat(begun, SamplingParams(seed=3, max_tokens=9), add_generation_prompt=False, continue_final_message=True)
    assert went_on[0].prompt.endswith("assistant\nThere")


def test_forms(llm):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    form = StructuredOutputsParams(json=schema)
    for o in llm.generate(["a", "b", "c"], SamplingParams(seed=1, max_tokens=60, structured_outputs=form)):
        if o.outputs[0].finish_reason == "stop":
            assert isinstance(json.loads(o.outputs[0].text)["age"], int)
        else:
            assert o.outputs[0].text.startswith("{")
    older = quern.GuidedDecodingParams(regex="[0-9]{4}", backend="xgrammar")
    assert len(llm.generate("x", SamplingParams(guided_decoding=older))[0].outputs[0].text) == 4


def test_vectors_equal_http(llm, service):
    texts = [PROMPT, "The dog", "x"]
    want = [row["embedding"] for row in post(service, "/v1/embeddings", {"input": texts, "dimensions": 8})["data"]]
    got = llm.embed(texts, dimensions=8)
    assert [o.outputs.embedding for o in got] == want and got[0].outputs.hidden_size == 8
    assert llm.encode(PROMPT, dimensions=8)[0].outputs.embedding == want[0]
    with pytest.raises(quern.BadRequest, match="cannot score"):     # the demo model has neither "yes" nor "no"
        llm.score("a", ["b", "c"])


def test_parameters_of_vectors(llm):
    short, whole = quern.PoolingParams(dimensions=8), quern.PoolingParams()
    got = llm.embed([PROMPT, "x", "x"], pooling_params=[short, short, whole])
    assert [o.outputs.hidden_size for o in got][:2] == [8, 8] and got[2].outputs.hidden_size > 8
    assert got[1].outputs.embedding == llm.embed("x", dimensions=8)[0].outputs.embedding
    assert llm.encode("x", whole, pooling_task="embed")[0].outputs.embedding == got[2].outputs.embedding
    ids = llm.get_tokenizer().encode(PROMPT)
    for side, kept in (("right", ids[:2]), ("left", ids[-2:])):
        o = llm.embed(PROMPT, tokenization_kwargs={"truncate_prompt_tokens": 2, "truncation_side": side})[0]
        assert o.prompt_token_ids == kept and o.outputs.embedding == llm.embed([kept])[0].outputs.embedding


def test_the_model_and_its_defaults(llm):
    p = llm.get_default_sampling_params()
    assert (p.temperature, p.top_k, p.top_p, p.max_tokens) == (0.7, 40, 0.9, 16)    # models/demo/generation_config.json
    p.seed = 5
    assert llm.generate(PROMPT, p)[0].outputs[0].text == llm.client.generate(PROMPT, {"seed": 5, "max_tokens": 16}).text
    assert llm.get_world_size() == llm.get_world_size(include_dp=False) == 1
    assert not hasattr(llm, "sleep")


def test_prompts_that_are_put_aside(llm):
    params = SamplingParams(seed=1, max_tokens=6)
    chat = [{"role": "user", "content": "Hi"}]
    numbers = llm.enqueue([PROMPT, "The dog"], params) + llm.enqueue_chat(chat, params)
    outputs = llm.wait_for_completion()
    assert [o.request_id for o in outputs] == numbers and llm.wait_for_completion(quern.RequestOutput) == []
    assert [o.outputs for o in outputs] == [o.outputs for o in llm.generate([PROMPT, "The dog"], params) + llm.chat(chat, params)]


def test_prompts_are_cut_as_asked(llm):
    text = "<|im_start|>One day, " + PROMPT
    ids = llm.get_tokenizer().encode(text)
    for side, kept in (("left", ids[-3:]), ("right", ids[:3])):
        for source in (text, ids):
            cut = {"truncate_prompt_tokens": 3, "truncation_side": side}
            assert llm.generate([source], tokenization_kwargs=cut)[0].prompt_token_ids == kept
    assert llm.generate(text, tokenization_kwargs={"truncate_prompt_tokens": 3})[0].prompt_token_ids == ids[-3:]
    assert llm.chat([{"role": "user", "content": "Hi"}], tokenization_kwargs={"truncate_prompt_tokens": 2}
                    )[0].prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_prefixes_are_shared_within_a_cache_salt(service):
    """A prompt of some blocks is wholly cached, but only for requests with its salt."""
    with quern.LLM(address=service.jobs) as m:
        ids = m.get_tokenizer().encode(PROMPT * 20)

        def cached(salt):
            return m.generate({"prompt_token_ids": ids, "cache_salt": salt})[0].num_cached_tokens
        assert cached("a") == 0 and cached("b") == 0 and cached("a") > 0


def test_special_tokens_of_beams_are_shown_as_asked(llm):
    prompt = "<|im_start|>user\nTell<|im_end|>\n"
    shown, hidden = (llm.beam_search(prompt, BeamSearchParams(2, 5, skip_special_tokens=skip))[0].sequences for skip in (False, True))
    assert [s.tokens for s in shown] == [s.tokens for s in hidden]
    assert all(s.text.startswith(prompt) for s in shown) and all(s.text.startswith("user\nTell\n") for s in hidden)
    assert hidden[0].orig_prompt["prompt"] == prompt


def test_the_tokenizer(llm):
    t = llm.get_tokenizer()
    assert t.decode(t.encode(PROMPT)) == PROMPT == "".join(t.convert_ids_to_tokens(t.encode(PROMPT)))
    chat = [{"role": "user", "content": "Hi"}]
    assert t.apply_chat_template(chat, tokenize=False) == "<|im_start|>user\nHi<|im_end|>\n"
    assert t.decode(t.apply_chat_template(chat, add_generation_prompt=True)).endswith("assistant\n")
    assert t.decode(t.apply_chat_template(chat), skip_special_tokens=True) == "user\nHi\n"


# --- errors ---

def test_an_error_names_the_prompt_and_the_field(llm):
    params = [SamplingParams(), SamplingParams(allowed_token_ids=[99999])]
    with pytest.raises(quern.BadRequest) as e:
        llm.generate([PROMPT, PROMPT], params)
    assert (e.value.prompt_index, e.value.field, e.value.code) == (1, "allowed_token_ids", "E_BAD_REQUEST")
    with pytest.raises(quern.TooLong) as e:
        llm.generate([[11] * 3000])
    assert e.value.prompt_index == 0
    with pytest.raises(ValueError, match="2 elements, and there are 1 prompts"):
        llm.generate([PROMPT], params)
    with pytest.raises(ValueError, match=r"prompts\[1\] must be a text"):
        llm.generate([PROMPT, [1.5]])
    with pytest.raises(quern.BadRequest, match="content"):
        llm.chat([{"role": "user"}])
    assert llm.generate(PROMPT)[0].outputs


@pytest.mark.parametrize("ask, field", [
    (lambda m: m.generate("a", lora_request=1), "lora_request"),
    (lambda m: m.generate([{"prompt": "a", "multi_modal_data": {}}]), "prompts[0].multi_modal_data"),
    (lambda m: m.chat([{"role": "user", "content": "a"}], chat_template="x"), "chat_template"),
    (lambda m: m.chat([{"role": "user", "content": "a"}], mm_processor_kwargs={"x": 1}), "mm_processor_kwargs"),
    (lambda m: m.encode("a", pooling_task="classify"), "pooling_task"),
    (lambda m: m.classify(["a"]), "classify"), (lambda m: m.sleep(), "sleep"),
    (lambda m: m.generate("a", tokenization_kwargs={"padding": True}), "tokenization_kwargs.padding"),
    (lambda m: m.chat([{"role": "user", "content": "a"}], tokenization_kwargs={"add_special_tokens": True}),
     "tokenization_kwargs.add_special_tokens"),
    (lambda m: m.score("a", "b", tokenization_kwargs={"padding": True}), "tokenization_kwargs.padding"),
    (lambda m: m.score("a", "b", pooling_params=quern.PoolingParams(use_activation=False)), "pooling_params.use_activation"),
    (lambda m: m.embed("a", pooling_params=quern.PoolingParams(task="classify")), "pooling_params.task"),
    (lambda m: m.wait_for_completion(quern.EmbeddingRequestOutput), "output_type"),
    (lambda m: quern.LLM(address=m.address).embed("a"), "http"),
    (lambda m: quern.LLM(address=m.address, max_num_seqs=3), "max_num_seqs"),
    (lambda m: quern.LLM("x", trust_remote_code="maybe"), "trust_remote_code"),
    (lambda m: quern.LLM("x", host="0.0.0.0"), "host"),
    (lambda m: quern.LLM("x", http_port=3) if False else quern.LLM("x", jobs="tcp://*:1"), "jobs"),
    (lambda m: quern.LLM("x", dtype="float8"), "dtype"), (lambda m: quern.LLM("x", kv_cache_dtype="half"), "kv_cache_dtype"),
])
def test_what_cannot_be_honoured_is_refused_by_name(llm, ask, field):
    with pytest.raises(quern.Unsupported) as e:
        ask(llm)
    assert e.value.field == field and str(e.value).startswith(field + ": ")


def test_a_service_that_cannot_start_says_why(tmp_path, monkeypatch):
    with pytest.raises(quern.StartError, match="no such model"):
        quern.LLM(str(tmp_path / "none"))
    with pytest.raises(quern.StartError, match="--nonsense"):
        quern.LLM(str(DEMO), nonsense=3)
    with pytest.raises(quern.StartError, match="not ready within 0"):
        quern.LLM(str(DEMO), start_timeout=0)
    with pytest.raises(quern.StartError, match="is not a program"):
        quern.LLM(str(DEMO), bin=str(tmp_path))
    monkeypatch.delenv("QUERN_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    from quern._service import find_program
    assert find_program() == str(ROOT / "build" / "bin" / "quern") or not (ROOT / "build" / "bin").exists()
    (tmp_path / "quern").write_text("#!/bin/sh\n")
    (tmp_path / "quern").chmod(0o755)
    assert find_program() == str(tmp_path / "quern")
    for wrong in ({}, {"model": "a", "address": "b"}):
        with pytest.raises(ValueError, match="exactly one of model and address"):
            quern.LLM(**wrong)


def test_all_options_that_are_refused_are_named_at_once():
    from quern._service import serve_options
    with pytest.raises(quern.Unsupported) as e:
        serve_options({"max_seqs": 3, "enable_lora": True, "dtype": "float8", "jobs": "x", "task": "classify", "revision": "main"})
    assert list(e.value.fields) == ["enable_lora", "dtype", "jobs", "task", "revision"]
    assert e.value.field == "enable_lora" and str(e.value) == "; ".join(f"{n}: {why}" for n, why in e.value.fields.items())
    again = pickle.loads(pickle.dumps(e.value))
    assert (str(again), again.fields, again.reason) == (str(e.value), e.value.fields, e.value.reason)


def test_what_is_done_anyway_is_taken_with_one_line_of_the_log(caplog):
    from quern._service import serve_options
    assert serve_options({"quantization": "awq", "dtype": "half", "trust_remote_code": True}) == ["--quantization", "awq"]
    (line,) = [r.getMessage() for r in caplog.records if r.name == "quern"]
    assert line.startswith("without effect: dtype='half': compute: ") and "; trust_remote_code=True: no code of a model is run" in line
    caplog.clear()
    assert serve_options({"dtype": "torch.float16"}) == [] and "dtype='float16'" in caplog.text
    caplog.clear()
    assert serve_options({"trust_remote_code": False, "dtype": "auto"}) == [] and not caplog.records


def test_options_of_vllm_are_those_of_serve():
    from quern._service import serve_options
    assert serve_options({"tensor_parallel_size": 2, "max_model_len": 100, "gpu_memory_utilization": 0.5, "swap_space": 4,
                          "enable_prefix_caching": False, "dtype": "bfloat16", "enforce_eager": True, "device": ["cpu", "cpu"],
                          "quantization": None, "disable_log_stats": True, "max_seqs": 3, "kv_cache_dtype": None}) == \
        ["--tp", "2", "--context", "100", "--memory-fraction", "0.5", "--swap-bytes", str(4 << 30), "--no-prefix-cache",
         "--compute", "bf16", "--no-graphs", "--device", "cpu,cpu", "--max-seqs", "3"]
    assert serve_options({"enable_prefix_caching": True, "dtype": "auto", "enforce_eager": False}) == []


# --- load, and clean-up ---

@pytest.mark.parametrize("service", [("--max-queued-jobs", "3", "--max-seqs", "2")], indirect=True)
def test_a_full_queue_is_waited_for(service):
    with quern.LLM(address=service.jobs) as llm:
        outputs = llm.generate([f"{PROMPT} {i}" for i in range(150)], SamplingParams(seed=1, max_tokens=3, ignore_eos=True))
    assert len(outputs) == 150 and all(len(o.outputs[0].token_ids) == 3 for o in outputs)


def script(body):
    """A program that has an LLM, and prints "ready" before its last part."""
    mark = uuid.uuid4().hex
    env = {**os.environ, MARK: mark, "QUERN_BIN": str(BIN), "PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
    p = subprocess.Popen([sys.executable, "-c", f"import os, signal, sys, threading, time\nfrom quern import *\n"
                          f"MODEL = {str(DEMO)!r}\nLONG = SamplingParams(max_tokens=2000, ignore_eos=True)\n{body}"],
                         env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    return p, mark


WORK = """
llm = LLM(MODEL)
print("ready", llm.address, flush=True)
llm.generate(["a"] * 5000, LONG)
"""


def works(p):
    """Check that the program has printed its service's address, and that its jobs run there."""
    ready, address = p.stdout.readline().split()
    assert ready == "ready"
    with quern.Client(address) as c:
        eventually(lambda: c.status()["running"], what="jobs that run")


def test_ctrl_c_ends_it_and_its_service():
    p, mark = script(WORK)
    works(p)
    os.killpg(p.pid, signal.SIGINT)     # as a terminal does
    out, err = p.communicate(timeout=60)
    assert p.returncode in (130, -signal.SIGINT) and "KeyboardInterrupt" in err
    no_processes_left(mark)


def test_ctrl_c_leaves_the_llm_usable():
    p, mark = script("""
with LLM(MODEL) as llm:
    print("ready", llm.address, flush=True)
    try:
        llm.generate(["a"] * 5000, LONG)
    except KeyboardInterrupt:
        print(len(llm.generate("a", SamplingParams(max_tokens=7))[0].outputs[0].token_ids))
        while llm.client.status()["running"] or llm.client.status()["waiting"]:
            time.sleep(0.05)
        print("idle")
""")
    works(p)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert (p.returncode, out.split()) == (0, ["7", "idle"]), err
    no_processes_left(mark)


@pytest.mark.parametrize("end", [
    "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "sys.exit(0)", "raise RuntimeError", "del llm",
    "os.kill(llm._service.pid, signal.SIGKILL); time.sleep(1); os._exit(0)",
    "os.fork() or time.sleep(3); os._exit(0)",
])
def test_the_service_ends_with_its_process(end):
    p, mark = script(f"llm = LLM(MODEL)\nprint('ready', llm._service._dir, flush=True)\nsys.stdin.close()\n{end}\n")
    ready, directory = p.stdout.readline().split()
    assert ready == "ready"
    p.communicate(timeout=60)
    no_processes_left(mark)
    if "_service.pid" not in end:   # neither process is left to remove it
        eventually(lambda: not os.path.exists(directory), what="no directory")


def test_a_forked_child_that_ends_leaves_its_parents_service_alone():
    p, mark = script("""
with LLM(MODEL) as llm:
    if os.fork() == 0:
        sys.exit(0)     # leaves the block, and runs what is to run at the exit
    os.wait()
    print(os.path.exists(llm._service._dir), Client(llm.address).ping()["ready"])
""")
    out, err = p.communicate(timeout=60)
    assert out.split() == ["True", "True"], err
    no_processes_left(mark)


def test_a_thread_that_ends_does_not_end_the_service():
    p, mark = script("""
made = []
t = threading.Thread(target=lambda: made.append(LLM(MODEL)))
t.start(); t.join()
time.sleep(1.5)
print(len(made[0].generate("a", SamplingParams(max_tokens=5))[0].outputs[0].token_ids))
""")
    out, err = p.communicate(timeout=60)
    assert out == "5\n", err
    no_processes_left(mark)


def test_a_run_that_is_left_leaves_no_jobs_in_a_joined_service(service):
    p, mark = script(f"llm = LLM(address={service.jobs!r})\nprint('ready', flush=True)\nllm.generate(['a'] * 5000, LONG)\n")
    assert p.stdout.readline() == "ready\n"
    eventually(lambda: service.status()["running"] > 0)
    p.kill()
    p.communicate(timeout=30)
    service.idle()
    assert service.process.poll() is None


def test_two_threads_share_an_llm(llm):
    got = {}

    def work(i):
        got[i] = [o.outputs[0].text for o in llm.generate([f"{PROMPT} {k}" for k in range(50)],
                                                          SamplingParams(seed=i, max_tokens=5))]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(2):
        assert got[i] == [o.outputs[0].text for o in llm.generate([f"{PROMPT} {k}" for k in range(50)],
                                                                  SamplingParams(seed=i, max_tokens=5))]


LONG = PROMPT + " a" * 3000      # more than the demo model's context


def test_errors_of_single_prompts_are_returned(service):
    good = SamplingParams(max_tokens=5, seed=1)
    with quern.LLM(address=service.jobs) as raises, quern.LLM(address=service.jobs, errors="return", max_in_flight=2) as llm:
        with pytest.raises(quern.TooLong) as e:
            raises.generate([PROMPT, LONG, PROMPT], good, use_tqdm=False)
        assert e.value.prompt_index == 1
        bad = SamplingParams(max_tokens=5, extra_args={"no_such_parameter": 1})
        outputs = llm.generate([PROMPT, LONG, PROMPT, PROMPT], [good, good, bad, good], use_tqdm=False)
        assert [type(o.error) for o in outputs] == [type(None), quern.TooLong, quern.BadRequest, type(None)]
        assert [len(o.outputs) for o in outputs] == [1, 0, 0, 1] and all(o.finished for o in outputs)
        assert outputs[0].outputs == outputs[3].outputs and "no_such_parameter" in str(outputs[2].error)
        beams = llm.beam_search([LONG, PROMPT], BeamSearchParams(beam_width=2, max_tokens=3))
        assert isinstance(beams[0].error, quern.TooLong) and not beams[0].sequences and len(beams[1].sequences) == 2
    with pytest.raises(ValueError, match="errors must be"):
        quern.LLM(address=service.jobs, errors="ignore")


def test_a_reset_prefix_cache_is_empty(service):
    prompt, params = {"prompt": " ".join(["A dog and a cat."] * 40), "cache_salt": "reset"}, SamplingParams(max_tokens=2)
    with quern.LLM(address=service.jobs) as llm:
        cached = [llm.generate(prompt, params, use_tqdm=False)[0].num_cached_tokens for _ in range(2)]
        assert cached[0] == 0 and cached[1] > 100
        assert llm.reset_prefix_cache() is True
        assert llm.generate(prompt, params, use_tqdm=False)[0].num_cached_tokens == 0
        assert llm.generate(prompt, params, use_tqdm=False)[0].num_cached_tokens == cached[1]


def test_metrics_are_those_of_the_service(llm):
    def find(name, kind, **labels):
        m, = (m for m in llm.get_metrics() if m.name == name and labels.items() <= m.labels.items())
        assert isinstance(m, kind)
        return m
    before = find("quern:generation_tokens_total", quern.Counter).value
    llm.generate(PROMPT, SamplingParams(max_tokens=7, ignore_eos=True), use_tqdm=False)
    assert find("quern:generation_tokens_total", quern.Counter).value == before + 7
    h = find("quern:time_to_first_token_seconds", quern.Histogram)
    assert h.count == h.buckets["+Inf"] > 0 and sorted(h.buckets.values()) == list(h.buckets.values())
    assert find("quern:num_requests_running", quern.Gauge).value == 0
