"""The graph that `quern inspect --graph` lists is the graph that is computed: ONNX Runtime computes the same logits from it.

tests/tools/graph_onnx.py writes the list with ONNX's operators, without knowledge of the family; both sides compute in
float32.
"""

import json
import sys

import numpy as np
import onnxruntime as ort
import pytest

from service import DEMO, ROOT, SHARED, served

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import graph_onnx  # noqa: E402
import make_model  # noqa: E402

TOKENS = [7, 21, 300, 5, 5, 64, 128, 9, 250, 33, 2, 17, 310, 90, 41, 8, 77, 6, 199, 3, 120, 45, 11, 260]
FAMILIES = ["apertus", "cohere2", "granitemoe", "nemotron", "olmoe_clip.tf5", "phi"]
KINDS = ["qwen3-odd", "qwen3-window", "llama3", "gemma3", "olmo2", "qwen3-awq-g32", "qwen2-moe", "glm4-moe"]


def logprobs_of(logits):
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


@pytest.fixture(params=KINDS)
def model(request, tmp_path):
    config, dtype = make_model.TINY[request.param]
    make_model.make(str(tmp_path / "model"), config, dtype.upper(), seed=3)
    return tmp_path / "model"


def check(run, model, tmp_path):
    r = run("inspect", model, "--graph", tmp_path / "step.json")
    assert r.returncode == 0, r.stderr
    listed = json.loads((tmp_path / "step.json").read_text())
    built = graph_onnx.build(listed, model, len(TOKENS))
    options = ort.SessionOptions()      # optimized, it would compute AWQ's products in 8 bits
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(built.SerializeToString(), options, providers=["CPUExecutionProvider"])
    known = logprobs_of(session.run(["logits"], {"tokens": np.array(TOKENS, np.int64)})[0].astype(np.float64))
    for service in served(model, ("--compute", "f32", "--kv-cache-dtype", "f32")):
        with service.client() as client:
            done = client.generate(tokens=TOKENS, max_tokens=1, temperature=0, prompt_logprobs=5)
    worst = 0
    assert len(done.reply["prompt_logprobs"]) == len(TOKENS)
    for row, entry in zip(known, done.reply["prompt_logprobs"][1:]):
        pairs = [(entry["token"], entry["logprob"]), *((t["token"], t["logprob"]) for t in entry["top"])]
        worst = max([worst, *(abs(row[token] - logprob) / max(1, abs(logprob)) for token, logprob in pairs)])
    assert worst < 1e-4
    return listed, built


def test_onnx_runtime_computes_the_same_logits_from_the_graph(run, model, tmp_path):
    listed, built = check(run, model, tmp_path)
    assert ("DequantizeLinear" in {n.op_type for n in built.graph.node}) == ("awq" in json.dumps(listed).lower())


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_shared_data(run, tmp_path, family):
    if not (SHARED / "families" / family).is_dir():
        pytest.skip(f"families/{family} is not here")
    check(run, SHARED / "families" / family, tmp_path)


def test_the_demo_model_is_what_its_graph_says(run, tmp_path):
    check(run, DEMO, tmp_path)
