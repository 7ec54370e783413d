"""`quern convert` of mixtures: the routing parameters are kept, or the conversion is refused with the reason. Missing
tensors are named. Layers that predict further tokens are omitted, and a line says so."""

import json
import sys

import numpy as np
import pytest

from model_files import gguf, safetensors, write_gguf, write_safetensors
from service import ROOT

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_gguf_family  # noqa: E402
import make_model  # noqa: E402
from make_gguf_family import FAMILIES  # noqa: E402

ADDED = ("quern.", "tokenizer.huggingface.")     # added by quern to its files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """GGUF files of mixtures as (keys, tensors), each made once."""
    folder, made = tmp_path_factory.mktemp("mixtures"), {}

    def get(run, name, foreign=True):
        if name not in made:
            make_model.make(str(folder / name), FAMILIES[name], "F32", 1)
            r = run("convert", folder / name, folder / f"{name}.gguf", "--to", "gguf")
            assert r.returncode == 0, r.stderr
            made[name] = gguf(folder / f"{name}.gguf")
        keys, tensors = made[name]
        return {k: v for k, v in keys.items() if not (foreign and k.startswith(ADDED))}, dict(tensors)
    get.folder = folder
    return get


def edited(name, keys, edits):
    """Edit keys of the file's architecture; None removes a key."""
    keys = keys | {f"{make_gguf_family.arch_of(name)}.{k}": v for k, v in edits.items()}
    return {k: v for k, v in keys.items() if v is not None}


def refused(run, src, dst, to, *words):
    r = run("convert", src, dst, "--to", to)
    assert (r.returncode, r.stdout) == (1, "") and len(r.stderr.splitlines()) == 1, r.stderr
    for word in words:
        assert word in r.stderr
    assert not dst.exists() and not dst.with_name(dst.name + ".partial").exists()


THROUGH = [
    ("glm4moe", {"expert_weights_scale": 2.5}, {"routed_scaling_factor": 2.5}),
    ("glm4moe", {"expert_weights_norm": False}, {"norm_topk_prob": False}),
    ("glm4moe", {"expert_group_count": 2, "expert_group_used_count": 1}, {"n_group": 2, "topk_group": 1}),
    ("glm4moe", {"expert_group_count": None}, {"n_group": 1}),
    ("glm4moe", {"expert_used_count": 2}, {"num_experts_per_tok": 2}),
    ("qwen3moe", {"expert_weights_norm": False}, {"norm_topk_prob": False}),
    ("qwen3moe", {"expert_used_count": 1}, {"num_experts_per_tok": 1}),
    ("qwen2moe", {"expert_weights_norm": True}, {"norm_topk_prob": True}),
    ("olmoe", {"expert_gating_func": 3}, {"norm_topk_prob": True}),     # a softmax over the chosen experts
    ("llama-mixtral", {"expert_used_count": 1}, {"num_experts_per_tok": 1}),
]


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize("name, edits, want", THROUGH)
def test_what_the_keys_say_of_routing_comes_through(run, files, tmp_path, name, edits, want, foreign):
    """Also for a file that quern made, with edited keys but the original embedded config.json."""
    keys, tensors = files(run, name, foreign)
    file = write_gguf(tmp_path / "m.gguf", edited(name, keys, edits), tensors)
    r = run("convert", file, tmp_path / "back", "--to", "safetensors")
    assert (r.returncode, r.stderr) == (0, "")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {k: config[k] for k in want} == want


REFUSED = [
    ("qwen3moe", {"expert_gating_func": 2}, "chosen by a sigmoid"),
    ("qwen3moe", {"expert_weights_scale": 2.0}, "scaled by 2"),
    ("qwen3moe", {"expert_group_count": 2, "expert_group_used_count": 1}, "experts in 2 groups"),
    ("llama-mixtral", {"expert_weights_norm": False}, "not divided by their sum"),
    ("llama-mixtral", {"expert_weights_scale": 0.5}, "scaled by 0.5"),
    ("glm4moe", {"expert_gating_func": 1}, "chosen by a softmax"),
    ("glm4moe", {"expert_count": None}, "no experts"),
]


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize("name, edits, words", REFUSED)
def test_routing_that_a_directory_cannot_hold_is_refused(run, files, tmp_path, name, edits, words, foreign):
    keys, tensors = files(run, name, foreign)
    file = write_gguf(tmp_path / "m.gguf", edited(name, keys, edits), tensors)
    refused(run, file, tmp_path / "dst", "safetensors", words, "config.json of")


def test_parts_of_a_mixture_that_a_directory_cannot_hold_are_refused(run, files, tmp_path):
    def of(name, change, *words):
        keys, tensors = files(run, name)
        change(tensors)
        refused(run, write_gguf(tmp_path / "m.gguf", keys, tensors), tmp_path / "dst", "safetensors", *words)
    bias = (0, [FAMILIES["olmoe"]["num_experts"]], np.ones(FAMILIES["olmoe"]["num_experts"], np.float32).tobytes())
    of("olmoe", lambda t: t.update({f"blk.{i}.exp_probs_b.bias": bias for i in (0, 1)}), "a bias for the choice")
    of("glm4moe", lambda t: t.pop("blk.1.exp_probs_b.bias"), "no bias for the choice")
    of("qwen2moe", lambda t: [t.pop(k) for k in list(t) if "ffn_gate_inp_shexp" in k], "without a gate")

    def dense(t):
        one = FAMILIES["olmoe"]["num_experts"]
        for part in ("gate", "up", "down"):
            kind, shape, raw = t.pop(f"blk.0.ffn_{part}_exps.weight")
            t[f"blk.0.ffn_{part}.weight"] = (kind, shape[1:], raw[:len(raw) // one])
        t.pop("blk.0.ffn_gate_inp.weight")
    of("olmoe", dense, "no experts in layer 0")


MISSING = ["mlp.gate.", "up_proj", "down_proj", "self_attn.q_proj", "input_layernorm"]


@pytest.mark.parametrize("part", MISSING)
def test_a_part_that_is_missing_as_a_whole_is_named(run, files, tmp_path, part):
    """The router, one matrix of all experts, ...: no other tensor reveals that they are missing."""
    files(run, "qwen3moe")
    source = files.folder / "qwen3moe"
    gone = [k for k in safetensors(source) if k.startswith("model.layers.1.") and part in k]
    src = tmp_path / "src"
    src.mkdir()
    (src / "config.json").write_bytes((source / "config.json").read_bytes())
    write_safetensors(src, {k: t for k, t in safetensors(source).items() if k not in gone})
    refused(run, src, tmp_path / "m.gguf", "gguf", gone[0], "missing")
    r = run("quantize", src, tmp_path / "m.gguf", "--type", "q8_0")
    assert r.returncode == 1 and gone[0] in r.stderr and not list(tmp_path.glob("m.gguf*"))


@pytest.mark.parametrize("part", ["ffn_up_exps.weight", "attn_q.weight", "attn_norm.weight"])
def test_a_part_that_a_gguf_file_lacks_is_named(run, files, tmp_path, part):
    keys, tensors = files(run, "qwen3moe")
    tensors.pop(f"blk.1.{part}")
    refused(run, write_gguf(tmp_path / "m.gguf", keys, tensors), tmp_path / "dst", "safetensors", f"blk.1.{part}", "missing")


# --- GLM-4.5's layer after the others ---

def predicting(folder, layers=1):
    """A model with layers that predict further tokens; config.json counts one."""
    config = FAMILIES["glm4moe"] | {"num_nextn_predict_layers": 1}
    n, h, vocab = config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]
    make_model.make(str(folder), config, "F32", 1)
    tensors = safetensors(folder)
    for i in range(n, n + layers):
        at = f"model.layers.{i}."
        tensors |= {at + k.split(".", 3)[3]: t for k, t in tensors.items() if k.startswith(f"model.layers.{n - 1}.")}
        tensors |= {at + "eh_proj.weight": ("F32", [h, 2 * h], bytes(8 * h * h)), at + "enorm.weight": ("F32", [h], bytes(4 * h)),
                    at + "embed_tokens.weight": ("F32", [vocab, h], bytes(4 * vocab * h)),
                    at + "shared_head.head.weight": ("F32", [vocab, h], bytes(4 * vocab * h))}
    write_safetensors(folder, tensors)
    return n, sum(k.startswith(f"model.layers.{n}.") for k in tensors)


def test_layers_that_predict_further_tokens_are_left_out_of_a_gguf_file(run, files, tmp_path):
    n, count = predicting(tmp_path / "src")
    r = run("convert", tmp_path / "src", tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0 and len(r.stderr.splitlines()) == 1, r.stderr
    assert f"left out, since quern does not read them: layers from {n} on" in r.stderr and f"tensors={count}" in r.stderr
    assert gguf(tmp_path / "m.gguf")[1] == files(run, "glm4moe")[1]
    r = run("convert", tmp_path / "m.gguf", tmp_path / "back", "--to", "safetensors")
    assert (r.returncode, r.stderr) == (0, "")
    assert safetensors(tmp_path / "back") == safetensors(files.folder / "glm4moe")
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == \
        json.loads((tmp_path / "src" / "config.json").read_text()) | {"num_nextn_predict_layers": 0}


def test_layers_that_predict_further_tokens_are_left_out_of_a_directory(run, files, tmp_path):
    keys, tensors = files(run, "glm4moe")
    n, h = FAMILIES["glm4moe"]["num_hidden_layers"], FAMILIES["glm4moe"]["hidden_size"]
    tensors |= {f"blk.{n}.nextn.eh_proj.weight": (0, [h, 2 * h], bytes(8 * h * h)), f"blk.{n}.attn_norm.weight": tensors["blk.0.attn_norm.weight"]}
    keys = edited("glm4moe", keys, {"block_count": n + 1, "nextn_predict_layers": 1})
    r = run("convert", write_gguf(tmp_path / "m.gguf", keys, tensors), tmp_path / "back", "--to", "safetensors")
    assert r.returncode == 0 and f"layers from {n} on" in r.stderr and "tensors=2" in r.stderr, r.stderr
    assert safetensors(tmp_path / "back") == safetensors(files.folder / "glm4moe")


def test_a_layer_that_no_key_counts_is_refused(run, tmp_path):
    n, _ = predicting(tmp_path / "src", 2)
    refused(run, tmp_path / "src", tmp_path / "m.gguf", "gguf", f"model.layers.{n + 1}.")


def test_a_quantized_directory_names_the_layers_that_stay_as_they_are(run, tmp_path):
    n, _ = predicting(tmp_path / "src")
    r = run("quantize", tmp_path / "src", tmp_path / "int8", "--type", "int8")
    assert r.returncode == 0, r.stderr
    found, source = safetensors(tmp_path / "int8"), safetensors(tmp_path / "src")
    ignored = json.loads((tmp_path / "int8" / "config.json").read_text())["quantization_config"]["ignore"]
    matrices = [k for k, t in source.items() if k.startswith(f"model.layers.{n}.") and len(t[1]) == 2 and "embed_tokens" not in k]
    assert len(matrices) > 10
    for k in matrices:
        assert found[k] == source[k] and k.removesuffix(".weight") in ignored
