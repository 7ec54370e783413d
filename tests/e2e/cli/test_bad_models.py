"""A model that cannot be served is refused in one plain line that names the error."""

import json
import shutil
import struct

import pytest

from service import DEMO, QUERN, no_processes_left, spawn


@pytest.fixture
def model(tmp_path):
    """A copy of the demo model for a test to damage."""
    copy = tmp_path / "broken"
    copy.mkdir()
    for f in DEMO.iterdir():
        if f.suffix in (".json", ".safetensors"):
            shutil.copy(f, copy / f.name)
    return copy


def edit(path, change):
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def header(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + n]), data[8 + n:]


def write_header(path, tree, body):
    text = json.dumps(tree).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def first_tensor(tree):
    return next(k for k in tree if k != "__metadata__")


# --- faults: each function plants a fault and returns words, one of which the error must contain ---

def truncated_weights(m):
    path = m / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    return ["model.safetensors"]


def weights_cut_in_the_header(m):
    path = m / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    return ["model.safetensors"]


def empty_weights(m):
    (m / "model.safetensors").write_bytes(b"")
    return ["model.safetensors"]


def no_weights(m):
    (m / "model.safetensors").unlink()
    return ["safetensors"]


def a_huge_header_length(m):
    path = m / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63) + path.read_bytes()[8:])
    return ["model.safetensors"]


def a_header_that_is_not_json(m):
    path = m / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8:40] = b"\xff" * 32
    path.write_bytes(data)
    return ["model.safetensors"]


def offsets_outside_the_file(m):
    path = m / "model.safetensors"
    tree, body = header(path)
    name = first_tensor(tree)
    begin, end = tree[name]["data_offsets"]
    tree[name]["data_offsets"] = [begin + 2**40, end + 2**40]
    write_header(path, tree, body)
    return [name]


def overlapping_tensors(m):
    path = m / "model.safetensors"
    tree, body = header(path)
    a, b = [k for k in tree if k != "__metadata__"][:2]
    tree[b]["data_offsets"] = [tree[a]["data_offsets"][0], tree[a]["data_offsets"][0]
                               + tree[b]["data_offsets"][1] - tree[b]["data_offsets"][0]]
    write_header(path, tree, body)
    return [a, b, "model.safetensors"]


def a_shape_with_an_overflowing_product(m):
    path = m / "model.safetensors"
    tree, body = header(path)
    name = first_tensor(tree)
    tree[name]["shape"] = [2**62, 2**62]
    write_header(path, tree, body)
    return [name]


def a_negative_shape(m):
    path = m / "model.safetensors"
    tree, body = header(path)
    name = first_tensor(tree)
    tree[name]["shape"] = [-1, 5]
    write_header(path, tree, body)
    return [name]


def a_missing_tensor(m):
    path = m / "model.safetensors"
    tree, body = header(path)
    name = next(k for k in tree if "layers.1." in k)
    tree[name.replace("layers.1.", "layers.77.")] = tree.pop(name)
    write_header(path, tree, body)
    return [name, "layers.1."]


def no_config(m):
    (m / "config.json").unlink()
    return ["config.json"]


def config_that_is_no_json(m):
    (m / "config.json").write_text('{"architectures": [')
    return ["config.json"]


def an_unsupported_architecture(m):
    edit(m / "config.json", lambda t: t.update(architectures=["MambaForCausalLM"], model_type="mamba"))
    return ["MambaForCausalLM", "mamba"]


def no_layers(m):
    edit(m / "config.json", lambda t: t.update(num_hidden_layers=0))
    return ["num_hidden_layers"]


def negative_heads(m):
    edit(m / "config.json", lambda t: t.update(num_attention_heads=-4))
    return ["num_attention_heads"]


def a_billion_layers(m):
    edit(m / "config.json", lambda t: t.update(num_hidden_layers=10**9))
    return ["num_hidden_layers"]


def more_layers_than_weights(m):
    edit(m / "config.json", lambda t: t.update(num_hidden_layers=t["num_hidden_layers"] + 1))
    return ["layers."]


def another_hidden_size(m):
    edit(m / "config.json", lambda t: t.update(hidden_size=t["hidden_size"] * 2))
    return ["shape", "hidden_size"]


def an_unknown_quantization(m):
    edit(m / "config.json", lambda t: t["quantization_config"].update(quant_method="magic"))
    return ["magic"]


def a_tokenizer_with_more_tokens_than_the_model(m):
    def add(t):
        t["added_tokens"].append({"id": 1664, "content": "<|extra|>", "single_word": False, "lstrip": False,
                                  "rstrip": False, "normalized": False, "special": True})
    edit(m / "tokenizer.json", add)
    return ["the tokenizer does not fit the model"]


def no_tokenizer(m):
    (m / "tokenizer.json").unlink()
    return ["tokenizer.json"]


def tokenizer_that_is_no_json(m):
    (m / "tokenizer.json").write_text("{")
    return ["tokenizer.json"]


def a_tokenizer_of_unknown_kind(m):
    edit(m / "tokenizer.json", lambda t: t["model"].update(type="Telepathy"))
    return ["Telepathy"]


WAYS = [truncated_weights, weights_cut_in_the_header, empty_weights, no_weights, a_huge_header_length,
        a_header_that_is_not_json, offsets_outside_the_file, overlapping_tensors, a_shape_with_an_overflowing_product,
        a_negative_shape, a_missing_tensor, no_config, config_that_is_no_json, an_unsupported_architecture, no_layers,
        negative_heads, a_billion_layers, more_layers_than_weights, another_hidden_size, an_unknown_quantization,
        a_tokenizer_with_more_tokens_than_the_model, no_tokenizer, tokenizer_that_is_no_json,
        a_tokenizer_of_unknown_kind]


def assert_plain(line, words):
    assert any(w in line for w in words), line
    assert not any(w in line for w in ("Assertion", "Sanitizer", "core dumped", "SIGSEGV", "SIGABRT")), line


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_run_names_the_fault_of_the_model(run, model, way):
    words = way(model)
    r = run("run", model, "Once upon a time", "-m", "3")
    assert r.returncode == 1
    assert r.stdout == ""
    assert len(r.stderr.splitlines()) == 1, r.stderr
    assert r.stderr.startswith("quern: ")
    assert_plain(r.stderr, words)


@pytest.mark.parametrize("way", [truncated_weights, no_config, an_unsupported_architecture, a_header_that_is_not_json,
                                 a_tokenizer_with_more_tokens_than_the_model], ids=lambda w: w.__name__)
def test_serve_names_the_fault_of_the_model_and_ends(model, way):
    words = way(model)
    p = spawn([QUERN, "serve", model, "--http", "none", "--jobs", "tcp://127.0.0.1:*"], way.__name__, stdin=-3,
              stdout=-1, stderr=-1, text=True)
    out, err = p.communicate(timeout=90)
    assert p.returncode == 1
    assert out == ""
    errors = [line for line in err.splitlines() if line.startswith("quern: ")]
    assert len(errors) == 1, err
    assert_plain(errors[0] if any(w in errors[0] for w in words) else err, words)
    no_processes_left(way.__name__)


@pytest.mark.parametrize("path, words", [("/nonexistent", ["no such model"]), ("/dev/null", ["not built", "directory"]),
                                         ("/", ["config.json"])], ids=["nowhere", "a file", "an empty directory"])
def test_a_path_without_a_model_is_named(run, path, words):
    r = run("run", path, "Once upon a time")
    assert r.returncode == 1
    assert len(r.stderr.splitlines()) == 1
    assert path in r.stderr
    assert_plain(r.stderr, words)


def a_git_lfs_pointer(m):
    (m / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
    return ["git lfs pull"]


def a_lora_adapter(m):
    (m / "config.json").unlink()
    (m / "model.safetensors").rename(m / "adapter_model.safetensors")
    (m / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    return ["LoRA adapter of org/base"]


def nothing(m):
    for f in list(m.iterdir()):
        f.unlink()
    return ["is empty"]


@pytest.mark.parametrize("command, way", [
    *((c, w) for c in ("serve", "run", "inspect") for w in (a_git_lfs_pointer, a_lora_adapter, nothing)),
    ("serve", no_tokenizer), ("run", no_tokenizer),
], ids=lambda x: getattr(x, "__name__", x))
def test_what_is_not_a_model_is_named_as_what_it_is(run, model, command, way):
    words = way(model)
    r = run(command, model, *(["a"] if command == "run" else []))
    assert (r.returncode, r.stdout) == (1, "")
    assert len(r.stderr.splitlines()) == 1, r.stderr
    assert str(model) in r.stderr and any(w in r.stderr for w in words), r.stderr


def test_a_single_file_is_refused_by_name(run, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 100)
    r = run("run", path, "Once upon a time")
    assert r.returncode == 1
    assert "model.gguf: GGUF version 0 is not supported (supported: 2 and 3)" in r.stderr


# --- faults that are not visible in the files ---

@pytest.mark.parametrize("keys", [{}, {"logprobs": 3}, {"prompt_logprobs": 2, "logprobs": 0}, {"temperature": 0},
                                  {"use_beam_search": True, "beam_width": 3, "n": 2}])
def test_logits_that_are_not_numbers_cost_no_worker(model, start, keys):
    path = model / "model.safetensors"
    tree, body = header(path)
    at, end = tree["model.norm.weight"]["data_offsets"]
    write_header(path, tree, body[:at] + b"\x00\x7e" * ((end - at) // 2) + body[end:])
    s = start(model)
    with s.client() as c:
        (before,) = s.workers()
        done = c.generate("Once upon a time", max_tokens=4, ignore_eos=True, **keys)
        assert len(done.outputs) == keys.get("n", 1)
        (after,) = s.workers()
    assert after["pid"] == before["pid"] and "worker lost" not in s.log()
