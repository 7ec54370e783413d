"""Model directories as saved by transformers 5 and other programs give the same tokens as the layout that quern always
read, or as transformers. A directory that would be another model is refused, and the error names the tensor or key."""

import json
import re
import shutil

import numpy as np
import pytest

from model_files import safetensors, write_safetensors
from service import SHARED

FAMILIES = SHARED / "families"
PROMPTS = [list(range(5, 40)), [7, 3, 300, 9]]


def copy_of(model, folder, config=None, tensors=None):
    """Copy a model and modify it: config(dict) and tensors(dict) change in place."""
    shutil.copytree(model, folder)
    if config:
        read = json.loads((folder / "config.json").read_text())
        config(read)
        (folder / "config.json").write_text(json.dumps(read))
    if tensors:
        read = safetensors(folder)
        for f in folder.glob("*.safetensors"):
            f.unlink()
        tensors(read)
        write_safetensors(folder, read)
    return folder


def tokens(start, model, prompts=PROMPTS, n=20):
    s = start(model, "--compute", "f32", "--threads", 1)
    with s.client() as c:
        jobs = [c.submit(None, tokens=p, max_tokens=n, temperature=0, ignore_eos=True) for p in prompts]
        return [j.done().tokens for j in jobs]


def refused(run, model, *words):
    r = run("inspect", model, "--no-probe")
    assert r.returncode == 1, r.stdout
    for word in words:
        assert word in r.stderr, r.stderr


# ---------------------------------------------------------------- as transformers has them

SAVED = ["llama_tied_head.tf5", "vl_gemma3_untied.tf5", "qwen3_moe.tf5", "qwen2_moe.tf5", "gpt_oss.tf5",
         "mixtral_fused.tf5"]


@pytest.mark.parametrize("name", SAVED)
def test_the_tokens_are_those_of_transformers(start, name):
    model = FAMILIES / name
    if not model.is_dir():
        pytest.skip("the test data has no families")
    cases = json.loads((model / "reference.json").read_text())
    got = tokens(start, model, [c["prompt"] for c in cases], len(cases[0]["ids"]))
    for case, ids in zip(cases, got):
        differ = [i for i, (a, b) in enumerate(zip(case["ids"], ids)) if a != b]
        assert not differ or case["margins"][differ[0]] < 0.002, (differ[0], case["margins"][differ[0]])


@pytest.mark.parametrize("name", ["vl_gemma3_untied.tf5", "gpt_oss.tf5"])
def test_windows_in_a_pool_for_one_or_two_sequences_change_no_token(start, name):
    """Layers of full attention and layers with a window of 16 tokens. Prompts share a prefix."""
    model = FAMILIES / name
    prompts = [[(7 * k) % 90 + 3 for k in range(150)] + [(11 * i + k) % 80 + 3 for k in range(60 + i)] for i in range(12)]
    base = (model, "--compute", "f32", "--threads", 1, "--context", 400, "--chunk", 48, "--max-batch-tokens", 64)

    def outputs(s):
        with s.client() as c:
            jobs = [c.submit(None, tokens=p, max_tokens=60, temperature=0, ignore_eos=True) for p in prompts]
            return [j.done().tokens for j in jobs]

    large = start(*base)
    status = large.status()
    want = outputs(large)
    of_block = status["workers"][0]["kv_bytes"] // status["blocks"]["total"]
    small = start(*base, "--kv-bytes", 64 * of_block)
    assert outputs(small) == want
    status = small.status()
    assert status["blocks"]["total"] == 64, status
    assert status["blocks"]["free"] + status["blocks"]["cached"] == 64


IN_GGUF = ["granite", "seed_oss", "ernie4_5", "gemma", "exaone4", "cohere2", "stablelm", "nemotron", "phi"]


@pytest.mark.parametrize("name", IN_GGUF)
def test_gguf_files_and_models_made_of_them_give_the_tokens_of_transformers(run, start, tmp_path, name):
    model = FAMILIES / name
    if not model.is_dir():
        pytest.skip("the test data has no families")
    r = run("convert", model, tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0, r.stderr
    r = run("convert", tmp_path / "m.gguf", tmp_path / "back", "--to", "safetensors")
    assert r.returncode == 0, r.stderr
    cases = json.loads((model / "reference.json").read_text())
    for made in ("m.gguf", "back"):
        got = tokens(start, tmp_path / made, [c["prompt"] for c in cases], len(cases[0]["ids"]))
        for case, ids in zip(cases, got):
            differ = [i for i, (a, b) in enumerate(zip(case["ids"], ids)) if a != b]
            assert not differ or case["margins"][differ[0]] < 0.002, (made, differ[0])


def as_command_r(c):
    c.update(architectures=["CohereForCausalLM"], model_type="cohere", use_qk_norm=False)
    for key in ("layer_types", "sliding_window", "_sliding_window_pattern", "sliding_window_pattern"):
        c.pop(key, None)


@pytest.mark.parametrize("name, config", [("starcoder2", lambda c: c.update(sliding_window=None)), ("cohere2", as_command_r)])
def test_gguf_files_of_families_without_references_give_the_source_s_tokens(run, start, tmp_path, name, config):
    if not (FAMILIES / name).is_dir():
        pytest.skip("the test data has no families")
    model = copy_of(FAMILIES / name, tmp_path / "model", config)
    r = run("convert", model, tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0, r.stderr
    assert tokens(start, tmp_path / "m.gguf") == tokens(start, model)


def test_a_window_that_gguf_files_do_not_have_is_refused(run, tmp_path):
    if not (FAMILIES / "starcoder2").is_dir():
        pytest.skip("the test data has no families")
    r = run("convert", FAMILIES / "starcoder2", tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 1 and "has a sliding window, which GGUF files" in r.stderr, r.stderr


# ---------------------------------------------------------------- heads

def other_head(tensors, name="lm_head.weight"):
    """Permute the rows of the embedding."""
    kind, shape, raw = tensors["model.embed_tokens.weight"]
    rows = np.frombuffer(raw, np.uint8).reshape(shape[0], -1)
    tensors[name] = (kind, shape, rows[::-1].tobytes())


def test_a_head_of_other_values_counts_though_the_configuration_ties(run, start, tiny, tmp_path):
    tied = tiny("qwen3-tied")
    both = copy_of(tied, tmp_path / "both", tensors=other_head)
    untied = copy_of(both, tmp_path / "untied", lambda c: c.update(tie_word_embeddings=False))
    got = tokens(start, both)
    assert got == tokens(start, untied) != tokens(start, tied)
    shown = run("inspect", both, "--no-probe")
    assert "a head of its own, though tie_word_embeddings is true" in shown.stdout
    s = start(both)
    assert "head=own reason=" in s.log()


def test_a_head_that_repeats_the_embedding_is_the_embedding(run, tiny, tmp_path):
    same = copy_of(tiny("qwen3-tied"), tmp_path / "same",
                   tensors=lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))
    shown = json.loads(run("inspect", same, "--no-probe", "--json").stdout)
    assert shown["tied"] and shown["tensors_unused"] == 0
    alone = json.loads(run("inspect", tiny("qwen3-tied"), "--no-probe", "--json").stdout)
    assert shown["parameters"] == alone["parameters"]


def test_a_head_may_be_under_the_prefix_of_the_text(run, start, tiny, tmp_path):
    """The head is separate, and text_config ties it, which the top level overrides."""
    kinds = {"top": ("language_model.lm_head.weight", "language_model.model."), "newer": ("lm_head.weight", "model.language_model.")}
    plain = copy_of(tiny("gemma3"), tmp_path / "plain", lambda c: c.update(tie_word_embeddings=False), other_head)
    want = tokens(start, plain)
    for kind, (head, prefix) in kinds.items():
        def whole(c):
            text = dict(c) | {"tie_word_embeddings": True}
            text.pop("architectures")
            c.clear()
            # A key at the top level that belongs to another component does not apply to the text model.
            c.update(architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", tie_word_embeddings=False,
                     text_config=text, sliding_window=3, vocab_size=9)

        def named(t):
            old = dict(t)
            t.clear()
            for name, value in old.items():
                t[head if name == "lm_head.weight" else prefix + name.removeprefix("model.")] = value
        model = copy_of(plain, tmp_path / kind, whole, named)
        assert tokens(start, model) == want, kind


# ---------------------------------------------------------------- keys

def test_the_number_of_experts_has_several_names(run, start, tiny, tmp_path):
    moe = tiny("qwen3-moe")
    want = tokens(start, moe)

    def renamed(c, name="num_local_experts"):
        c[name] = c.pop("num_experts")
    assert tokens(start, copy_of(moe, tmp_path / "local", renamed)) == want
    assert tokens(start, copy_of(moe, tmp_path / "routed", lambda c: renamed(c, "n_routed_experts"))) == want
    refused(run, copy_of(moe, tmp_path / "two", lambda c: c.update(num_local_experts=3)),
            "num_experts and num_local_experts contradict each other")


# ---------------------------------------------------------------- experts in one tensor

@pytest.mark.parametrize("name", ["qwen3-moe", "qwen2-moe", "mixtral", "olmoe", "glm4-moe"])
def test_experts_in_one_tensor_are_those_of_their_own(start, tiny, tmp_path, name):
    def stacked(t):
        parts = {}
        for key in list(t):
            if ".experts." in key:
                layer, _, rest = key.replace("block_sparse_moe", "mlp").partition(".experts.")
                e, part, _ = rest.split(".")
                part = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}.get(part, part)
                parts[layer, part, int(e)] = t.pop(key)
            elif "block_sparse_moe" in key:
                t[key.replace("block_sparse_moe", "mlp")] = t.pop(key)
        for layer in {k[0] for k in parts}:
            n = 1 + max(k[2] for k in parts if k[0] == layer)
            kind, (inter, hidden), _ = parts[layer, "gate_proj", 0]
            raw = [b"".join(parts[layer, p, e][2] for p in ("gate_proj", "up_proj")) for e in range(n)]
            t[layer + ".experts.gate_up_proj"] = (kind, [n, 2 * inter, hidden], b"".join(raw))
            raw = [parts[layer, "down_proj", e][2] for e in range(n)]
            t[layer + ".experts.down_proj"] = (kind, [n, hidden, inter], b"".join(raw))
    assert tokens(start, copy_of(tiny(name), tmp_path / "stacked", tensors=stacked)) == tokens(start, tiny(name))


MIXTURE = {"hidden_size": 64, "intermediate_size": 32, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 256, "tie_word_embeddings": False,
           "num_experts_per_tok": 2, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}
CHOICE = "mlp.gate.e_score_correction_bias"
# Of each family: keys, tensors that transformers 5 saves by its own names, and the names that the family has in their place.
OWN = {
    "HYV3ForCausalLM": ({"num_experts": 4, "num_shared_experts": 1, "first_k_dense_replace": 0},
                        ["norms", "mlp.gate", "shared", "mlp.e_score_correction_bias"],
                        {"mlp.gate.": "mlp.router.gate.", "e_score_correction_bias": "expert_bias", "shared_experts": "shared_mlp"}),
    "Ernie4_5_MoeForCausalLM": ({"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 0},
                                ["mlp.gate", "shared", "mlp.gate.moe_statics.e_score_correction_bias"],
                                {"mlp.gate.moe_statics": "mlp.moe_statics"}),
    "ExaoneMoeForCausalLM": ({"num_experts": 4, "num_shared_experts": 1, "first_k_dense_replace": 0, "sliding_window": None},
                             ["norms", "mlp.gate", "shared", CHOICE], {CHOICE: "mlp.e_score_correction_bias"}),
    "Glm4MoeForCausalLM": ({"model_type": "sarvam_moe", "num_experts": 4, "first_k_dense_replace": 0},
                           ["norms", "mlp.gate", "shared", CHOICE],
                           {"embed_tokens": "word_embeddings", "self_attn.o_proj": "attention.dense", CHOICE: "mlp.gate.expert_bias",
                            "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
                            "self_attn.qkv": "attention.query_key_value"}),
    "GraniteMoeForCausalLM": ({"num_local_experts": 4}, ["block_sparse_moe.router"],
                              {"router.weight": "router.layer.weight", "experts.gate_up_proj": "input_linear.weight",
                               "experts.down_proj": "output_linear.weight"}),
}


def own_tensors(arch, extra):
    rng, out = np.random.default_rng(7), {}

    def put(name, *shape):
        values = rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1) + (name.endswith("norm.weight"))
        out[name] = ("F32", list(shape), values.astype(np.float32).tobytes())
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        put(name, 512, 64)
    put("model.norm.weight", 64)
    for at in ("model.layers.0.", "model.layers.1."):
        module = "block_sparse_moe" if arch.startswith("Granite") else "mlp"
        put(at + "input_layernorm.weight", 64)
        put(at + "post_attention_layernorm.weight", 64)
        for part, rows in {"q": 64, "k": 32, "v": 32, "o": 64}.items():
            put(f"{at}self_attn.{part}_proj.weight", rows, 64)
        put(f"{at}{module}.experts.gate_up_proj", 4, 64, 64)
        put(f"{at}{module}.experts.down_proj", 4, 64, 32)
        for name in extra:
            if name == "norms":
                put(at + "self_attn.q_norm.weight", 16)
                put(at + "self_attn.k_norm.weight", 16)
            elif name == "shared":
                for part, shape in {"gate": (32, 64), "up": (32, 64), "down": (64, 32)}.items():
                    put(f"{at}mlp.shared_experts.{part}_proj.weight", *shape)
            elif name.endswith("bias"):
                put(at + name, 4)
            else:
                put(at + name + ".weight", 4, 64)
    return out


def family_tensors(arch, own, renamed):
    """The same tensors by the family's names: experts and q, k, v apart or together, as it has them."""
    out = {}
    for name, (kind, shape, raw) in own.items():
        stack = ".experts." in name and "GraniteMoe" not in arch
        parts = {name: (kind, shape, raw)}
        if stack:
            ours = ["gate_proj", "up_proj"] if "gate_up" in name else ["down_proj"]
            rows, each = shape[1] // len(ours), len(raw) // shape[0] // len(ours)
            parts = {f"{name.partition('.experts.')[0]}.experts.{i // len(ours)}.{ours[i % len(ours)]}.weight":
                     (kind, [rows, shape[2]], raw[i * each:(i + 1) * each]) for i in range(shape[0] * len(ours))}
        elif "self_attn.qkv" in renamed and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            if not name.endswith("q_proj.weight"):
                continue
            three = [own[name.replace("q_proj", p)] for p in ("q_proj", "k_proj", "v_proj")]
            parts = {name.replace("q_proj", "qkv"): (kind, [128, 64], b"".join(t[2] for t in three))}
        for key, value in parts.items():
            for old, new in renamed.items():
                key = key.replace(old, new)
            out[key] = value
    return out


@pytest.mark.parametrize("arch", OWN)
def test_a_mixture_by_transformers_own_names_is_that_by_the_family_s(start, tiny, tmp_path, arch):
    keys, extra, renamed = OWN[arch]
    own = own_tensors(arch, extra)

    def model(folder, tensors):
        def config(c):
            c.clear()
            c.update(MIXTURE, architectures=[arch], **keys)

        def all_tensors(t):
            t.clear()
            t.update(tensors)
        return copy_of(tiny("qwen3-moe"), tmp_path / folder, config, all_tensors)
    assert tokens(start, model("own", own)) == tokens(start, model("family", family_tensors(arch, own, renamed)))


# ---------------------------------------------------------------- tensors that are left over

@pytest.mark.parametrize("name, counts", [
    ("model.layers.0.self_attn.q_proj.bias", True),
    ("model.layers.1.self_attn.q_norm.weight", True),
    ("model.layers.0.mlp.experts.0.up_proj.weight", True),
    ("model.layers.0.self_attn.sinks", True),
    ("lm_head.bias", True),
    ("model.layers.0.attn.bias", False),     # a mask: see `added`
    ("model.layers.0.attn.masked_bias", False),
    ("model.layers.0.self_attn.rotary_emb.inv_freq", False),
    ("model.layers.0.self_attn.k_scale", False),
    ("vision_tower.layers.0.self_attn.q_proj.bias", False),
])
def test_a_tensor_that_would_change_the_answers_is_not_passed_over(run, tiny, tmp_path, name, counts):
    def added(value):
        shape = [1, 1, 2, 2] if ".attn." in name else [4]
        return lambda t: t.update({name: ("F32", shape, np.full(4, value, np.float32).tobytes())})
    model = copy_of(tiny("llama-awq-g128"), tmp_path / "model", tensors=added(1))
    if counts:
        refused(run, model, name, "has no place in LlamaForCausalLM")
    else:
        assert run("inspect", model, "--no-probe").returncode == 0
    if name.endswith("bias"):    # older programs write zeros
        assert run("inspect", copy_of(model, tmp_path / "zeros", tensors=added(0)), "--no-probe").returncode == 0


OF_THE_TEXT = ["apertus", "cohere2", "exaone4", "gemma", "gpt2", "gpt_oss.tf5", "granitemoe", "mellum", "mixtral_fused.tf5",
               "nemotron", "olmo3", "phi", "qwen2_moe.tf5", "stablelm", "starcoder2", "vl_gemma3_untied.tf5", "vl_qwen3"]


@pytest.mark.parametrize("name", OF_THE_TEXT)
def test_no_family_passes_over_a_tensor_of_the_text(run, tmp_path, name):
    """Whatever its name: in a layer, beside the layers; also where layers are transposed, stacked or one of several parts."""
    model = FAMILIES / name
    if not model.is_dir():
        pytest.skip("the test data has no families")
    table = next(t for t in safetensors(model) if t.endswith(("embed_tokens.weight", "wte.weight")))
    text = table.removesuffix("embed_tokens.weight").removesuffix("wte.weight")
    layer = text + ("h.1." if table.endswith("wte.weight") else "layers.1.")
    for i, extra in enumerate([layer + "mlp.alpha", layer + "extra_norm.weight", text + "extra_norm.weight"]):
        added = copy_of(model, tmp_path / str(i), tensors=lambda t: t.update({extra: ("F32", [1], b"\0\0\x80?")}))
        refused(run, added, extra, "has no place in")
        shutil.rmtree(added)


# ---------------------------------------------------------------- quantized

@pytest.mark.parametrize("name, file, rename", [
    ("llama-gptq3", "quantize_config.json", {}),
    ("llama-gptq8-rows", "quantize_config.json", {}),
    ("llama-awq-g128", "quant_config.json", {"bits": "w_bit", "group_size": "q_group_size"}),
])
def test_a_quantizer_s_own_file_says_what_config_json_does_not(run, start, tiny, tmp_path, name, file, rename):
    model = tiny(name)
    want = tokens(start, model)
    read = json.loads((model / "config.json").read_text())["quantization_config"]

    def apart(folder, written):
        out = copy_of(model, tmp_path / folder, lambda c: c.pop("quantization_config"))
        (out / file).write_text(json.dumps(written))
        return out
    read.pop("quant_method")
    unnamed = copy_of(model, tmp_path / "unnamed", lambda c: c["quantization_config"].pop("quant_method"))
    own = apart("own", {rename.get(k, k): v for k, v in read.items()})
    assert tokens(start, unnamed) == tokens(start, own) == want
    r = run("convert", own, tmp_path / "copy", "--to", "safetensors")
    assert r.returncode == 0 and tokens(start, tmp_path / "copy") == want
    refused(run, apart("odd", read | {"bits": 77}), file, "bits")


def values(tensor):
    kind, shape, raw = tensor
    if kind == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(raw, {"F32": np.float32, "F16": np.float16, "I8": np.int8}[kind]).reshape(shape).astype(np.float32)


def nibbles(tensor, n):
    """The 4-bit values of AWQ's words, [rows, n]."""
    words = np.frombuffer(tensor[2], np.uint32).reshape(-1, n // 8)
    out = np.zeros((len(words), n), np.float32)
    for place, output in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
        out[:, output::8] = words >> (4 * place) & 15
    return out


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4-rtn"])
def test_layers_stored_by_input_are_quantized_by_output(run, start, tmp_path, kind):
    model = FAMILIES / "gpt2"
    if not model.is_dir():
        pytest.skip("the test data has no families")
    r = run("quantize", model, tmp_path / "out", "--type", kind)
    assert r.returncode == 0, r.stderr
    old, new = safetensors(model), safetensors(tmp_path / "out")
    ending = ".scales" if kind == "int4-rtn" else ".weight_scale"
    modules = [n.removesuffix(ending) for n in new if n.endswith(ending)]
    assert len(modules) == 12 and any(n.endswith("c_attn") for n in modules)
    for m in modules if kind != "fp8" else []:
        want, scale = values(old[m + ".weight"]).T, values(new[m + ending])
        if kind == "int8":
            got = values(new[m + ".weight"]) * scale
        else:
            scale = np.repeat(scale, want.shape[1] // len(scale), 0).T
            codes, zeros = (nibbles(new[m + part], want.shape[0]) for part in (".qweight", ".qzeros"))
            got = (codes - np.repeat(zeros, len(codes) // len(zeros), 0)).T * scale
        # Zero points are rounded, too.
        assert got.shape == want.shape and np.all(np.abs(got - want) <= scale * 1.01), m
    cases = json.loads((model / "reference.json").read_text())
    sure = max(cases, key=lambda c: c["margins"][0])
    got = tokens(start, tmp_path / "out", [sure["prompt"]], 1)
    assert got == [sure["ids"][:1]] or kind == "int4-rtn"    # too coarse for these weights


@pytest.mark.parametrize("name", ["starcoder2", "nemotron", "gpt2"])
def test_awq_of_layers_without_a_gate(run, start, tmp_path, name):
    model = FAMILIES / name
    if not model.is_dir():
        pytest.skip("the test data has no families")
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog, and what it says is not known. " * 20)
    r = run("quantize", model, tmp_path / "out", "--type", "awq4", "--group", "32", "--calibrate", text, "--tokens", "200",
            "--eval-tokens", "100")
    assert r.returncode == 0 and float(re.search("; KL ([0-9.]+);", r.stdout)[1]) < 1, (r.stdout, r.stderr)
    new = safetensors(tmp_path / "out")
    assert sum(n.endswith(("c_fc.qweight", "up_proj.qweight")) for n in new) == 3
    assert len(tokens(start, tmp_path / "out", n=4)) == len(PROMPTS)


def test_awq_scales_floats_that_are_stored_by_input(run, tmp_path):
    """Of a matrix that stays in floats, each input and each output is multiplied by its own factor."""
    model = FAMILIES / "gpt2"
    if not model.is_dir():
        pytest.skip("the test data has no families")
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog, and what it says is not known. " * 20)
    r = run("quantize", model, tmp_path / "out", "--type", "awq4", "--group", "32", "--calibrate", text, "--tokens", "200",
            "--eval-tokens", "100", "--keep", "c_attn")
    assert r.returncode == 0 and float(re.search("; KL ([0-9.]+);", r.stdout)[1]) < 1, (r.stdout, r.stderr)
    old, new = safetensors(model), safetensors(tmp_path / "out")
    changed = 0
    for i in range(3):
        was, now = (values(t[f"transformer.h.{i}.attn.c_attn.weight"]) for t in (old, new))
        factor = now / np.where(was == 0, 1, was)
        apart = np.abs(factor / np.outer(np.median(factor, 1), np.median(factor, 0)) * np.median(factor) - 1)
        assert np.percentile(apart[was != 0], 99) < 0.02, i     # BF16 has 8 bits
        changed += not np.allclose(was, now)
    assert changed


@pytest.mark.parametrize("kind", ["int8", "int4-rtn"])
def test_rows_of_q_k_and_v_in_turns_stay_in_floats(run, start, tiny, tmp_path, kind):
    rng = np.random.default_rng(3)

    def made(t):
        def put(name, *shape):
            data = rng.standard_normal(shape) * (0.2 if len(shape) > 1 else 0.1) + ("norm.weight" in name)
            t[name] = ("F32", list(shape), data.astype(np.float32).tobytes())
        t.clear()
        put("gpt_neox.embed_in.weight", 512, 64)
        put("embed_out.weight", 512, 64)
        norms = ["gpt_neox.final_layer_norm"]
        for i in range(2):
            at = f"gpt_neox.layers.{i}."
            norms += [at + "input_layernorm", at + "post_attention_layernorm"]
            for name, rows, columns in (("attention.query_key_value", 192, 64), ("attention.dense", 64, 64),
                                        ("mlp.dense_h_to_4h", 128, 64), ("mlp.dense_4h_to_h", 64, 128)):
                put(at + name + ".weight", rows, columns)
                put(at + name + ".bias", rows)
        for name in norms:
            put(name + ".weight", 64)
            put(name + ".bias", 64)

    def config(c):
        c.clear()
        c.update(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", hidden_size=64, intermediate_size=128,
                 num_hidden_layers=2, num_attention_heads=4, vocab_size=512, max_position_embeddings=256, rotary_pct=0.5,
                 tie_word_embeddings=False, torch_dtype="float32")
    model = copy_of(tiny("llama2"), tmp_path / "model", config, made)
    r = run("quantize", model, tmp_path / "out", "--type", kind)
    assert r.returncode == 0, r.stderr
    old, new = safetensors(model), safetensors(tmp_path / "out")
    for i in range(2):
        at = f"gpt_neox.layers.{i}."
        assert new[at + "attention.query_key_value.weight"] == old[at + "attention.query_key_value.weight"]
        assert at + "mlp.dense_h_to_4h." + ("weight_scale" if kind == "int8" else "qweight") in new
    scheme = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    kept = scheme["ignore" if kind == "int8" else "modules_to_not_convert"]
    assert "gpt_neox.layers.0.attention.query_key_value" in kept
    assert len(tokens(start, tmp_path / "out", n=4)) == len(PROMPTS)


# ---------------------------------------------------------------- conversion

def half(layers):
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]


UNSAID = [
    ("smollm3", lambda c: c.update(no_rope_layers=[0, 1, 0]), "no_rope_layers"),
    ("smollm3", lambda c: c.update(no_rope_layer_interval=2), "no_rope_layers"),
    ("llama3", lambda c: c.update(eos_token_id=[1, 2, 3, 4]), "4 ends in eos_token_id"),
]


@pytest.mark.parametrize("name, config, words", UNSAID)
def test_what_gguf_would_say_otherwise_is_refused(run, tiny, tmp_path, name, config, words):
    model = copy_of(tiny(name), tmp_path / "model", config)
    (model / "generation_config.json").unlink()
    r = run("convert", model, tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 1 and words in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr
    assert not list(tmp_path.glob("m.gguf*"))


SAID = [
    ("gemma3", lambda c: c.update(rope_local_base_freq=700.0, query_pre_attn_scalar=32)),
    ("gemma3", lambda c: c.update(layer_types=["full_attention"] * 3, query_pre_attn_scalar=32)),
    ("gemma2", lambda c: c.update(layer_types=["full_attention"] * 3, query_pre_attn_scalar=32)),
    ("gemma2", lambda c: c.update(layer_types=half(3), sliding_window=5, query_pre_attn_scalar=32)),
    ("smollm3", lambda c: c.update(no_rope_layer_interval=4)),
    ("llama3", lambda c: None),
]


@pytest.mark.parametrize("case", range(len(SAID)))
def test_what_gguf_says_gives_the_same_tokens(run, start, tiny, tmp_path, case):
    name, config = SAID[case]
    # F32, in which both scale Gemma's embedding without rounding.
    def widened(t):
        for key, (kind, shape, raw) in t.items():
            wide = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16 if kind == "BF16" else np.frombuffer(
                raw, np.float16 if kind == "F16" else np.float32).astype(np.float32)
            t[key] = ("F32", shape, wide.tobytes())
    model = copy_of(tiny(name), tmp_path / "model", lambda c: (config(c), c.update(torch_dtype="float32")), widened)
    r = run("convert", model, tmp_path / "m.gguf", "--to", "gguf")
    assert r.returncode == 0, r.stderr
    assert tokens(start, tmp_path / "m.gguf") == tokens(start, model)


# ---------------------------------------------------------------- a known class with other names

def test_tensors_of_another_model_type_are_named_at_once(run, start, tiny, tmp_path):
    def named(t):
        for name in list(t):
            t[name.replace("model.layers", "transformer.h").replace("model.embed_tokens", "transformer.wte")] = t.pop(name)
    llama = tiny("llama2")
    other = copy_of(llama, tmp_path / "other", lambda c: c.update(model_type="other"), named)
    refused(run, other, "config.json: model_type other is not supported", "its tensors (transformer.h.", "LlamaForCausalLM")
    same = copy_of(llama, tmp_path / "same", lambda c: c.update(model_type="internlm3"))
    assert tokens(start, same) == tokens(start, llama)


def test_layers_beyond_the_configuration_are_told(run, tiny, tmp_path):
    short = copy_of(tiny("llama2"), tmp_path / "short", lambda c: c.update(num_hidden_layers=1))
    assert "1 layers that the files have beyond those of config.json" in run("inspect", short, "--no-probe").stdout


def test_the_factors_of_longrope_are_told(run, start, tiny):
    model = tiny("phi3-longrope")
    original = json.loads((model / "config.json").read_text())["original_max_position_embeddings"]
    assert f"--context {original} has the short ones" in run("inspect", model, "--no-probe").stdout
    assert f"rope=longrope factors=long context=128 original={original}" in start(model).log()
    assert "factors=long" not in start(model, "--context", original).log()
