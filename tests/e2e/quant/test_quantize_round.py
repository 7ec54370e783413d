"""`quern quantize` with types that round to nearest: their error per layer and in total, and the layers that are kept.
Weight errors are computed from the files with numpy, independently of the quantizer."""

import json
import re
import signal
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest

from model_files import gguf, safetensors
from service import DEMO, QUERN, ROOT, SLOW, spawn

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import make_model  # noqa: E402
from from_awq import floats, plant, stories, write_model  # noqa: E402
from make_model import family, llama  # noqa: E402
from to_awq import read  # noqa: E402

MIXTURE = family("Qwen3MoeForCausalLM", "qwen3_moe", 64, 96, 2, 4, 2, 331, 512, head_dim=32, num_experts=4, num_experts_per_tok=2,
                 moe_intermediate_size=64, norm_topk_prob=True)
F32, Q8_0 = 0, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models in floats, and a text."""
    d = tmp_path_factory.mktemp("round")
    write_model(DEMO, d / "demo", floats(DEMO), "f32")
    make_model.make(str(d / "llama"), llama(128, 96, 2, 4, 2, 331, 512), "F32", 1)
    make_model.make(str(d / "mixture"), MIXTURE, "F32", 1)
    (d / "text").write_text(stories(77, 4_000))
    (d / "long").write_text(stories(77, 80_000))
    return d


def quantize(run, src, dst, kind, *options):
    r = run("quantize", src, dst, "--type", kind, *options)
    assert r.returncode == 0, r.stderr
    return r.stdout


def measured(run, folder, source, dst, kind, *options):
    """(printed output, report)."""
    report = dst.with_name(dst.name + ".json")
    out = quantize(run, folder / source, dst, kind, "--eval", folder / "text", "--eval-tokens", "300", "--report", report, *options)
    return out, json.loads(report.read_text())


def test_a_report_may_lie_in_the_result(run, folder, tmp_path):
    quantize(run, folder / "llama", tmp_path / "m", "int8", "--eval", folder / "text", "--eval-tokens", "300", "--report", tmp_path / "m" / "report.json", "--report", tmp_path / "m" / "r.html")
    assert json.loads((tmp_path / "m" / "report.json").read_text())["type"] == "int8" and (tmp_path / "m" / "r.html").stat().st_size


def db(w, d):
    return 10 * np.log10(np.sum(w.astype(np.float64) ** 2) / np.sum(d.astype(np.float64) ** 2))


def q8_0(raw, shape):
    blocks = np.frombuffer(raw, np.dtype([("d", np.float16), ("q", np.int8, 32)]))
    return (blocks["d"].astype(np.float32)[:, None] * blocks["q"]).reshape(shape)


def test_the_report_has_the_errors_of_the_files(run, folder, tmp_path):
    """For a GGUF file, in which rows of q and k are permuted, and for a directory."""
    out, report = measured(run, folder, "llama", tmp_path / "m.gguf", "q8_0")
    _, tensors = gguf(tmp_path / "m.gguf")
    source = read(folder / "llama" / "model.safetensors")
    assert len(report["linears"]) == 14 and "14 of 14 linear parts in q8_0" in out and report["type"] == "q8_0"
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "mlp.down_proj": "ffn_down"}
    for x in report["linears"]:
        w, (_, _, layer, part) = source[x["name"] + ".weight"], x["name"].split(".", 3)
        if part in names:
            b = q8_0(tensors[f"blk.{layer}.{names[part]}.weight"][2], w.shape)
            heads = {"q": 4, "k": 2}.get(part[10], 0)
            if heads:
                b = b.reshape(heads, 16, 2, -1).swapaxes(1, 2).reshape(w.shape)
            assert x["weights"]["snr_db"] == pytest.approx(db(w, b - w), abs=0.01), x["name"]
            assert x["weights"]["mean_abs"] == pytest.approx(np.abs(b - w).mean(), rel=1e-3)
        assert x["outputs"]["snr_db"] > 40 and x["outputs_accumulated"] and x["outputs_nearest"] is None and not x["kept"]
    _, report = measured(run, folder, "llama", tmp_path / "int8", "int8")
    found = safetensors(tmp_path / "int8")
    for x in report["linears"]:
        w = source[x["name"] + ".weight"]
        b = np.frombuffer(found[x["name"] + ".weight"][2], np.int8).reshape(w.shape) * \
            np.frombuffer(found[x["name"] + ".weight_scale"][2], np.float32)[:, None]
        assert x["weights"]["snr_db"] == pytest.approx(db(w, b - w), abs=0.01), x["name"]


@pytest.mark.parametrize("kind", ["q4_k", "fp8", "int4-rtn"])
def test_the_text_loses_what_the_report_says(run, folder, tmp_path, kind):
    out, report = measured(run, folder, "demo", tmp_path / "m", kind)
    r = run("quantize", "--compare", folder / "demo", tmp_path / "m", folder / "text", "--json", "--eval-tokens", "300")
    c, network = json.loads(r.stdout), report["network"]
    for key, other in (("perplexity", "perplexity_a"), ("perplexity_quantized", "perplexity_b"), ("kl", "kl"), ("scored", "scored")):
        assert network[key] == pytest.approx(c[other], rel=1e-4), key
    assert [x["residual"]["snr_db"] for x in network["layers"]] == pytest.approx(c["layers_snr_db"], abs=0.01)
    errors = {x["name"]: x["outputs"]["snr_db"] for x in report["linears"]}
    assert report["worst"] == sorted(errors, key=errors.get)[:10]
    assert f"worst {report['worst'][0]}: {errors[report['worst'][0]]:.1f} dB" in out


@pytest.mark.parametrize("kind", ["q4_0", "int4-rtn"])
def test_a_sensitive_part_is_named_first_and_keeping_it_repairs_the_text(run, folder, tmp_path, kind):
    tensors, name, lost = floats(DEMO), "model.layers.4.mlp.down_proj", []
    plant(tensors, name)
    write_model(DEMO, folder / f"planted-{kind}", tensors, "f32")
    for keep in (0, 1):
        _, report = measured(run, folder, f"planted-{kind}", tmp_path / f"m{keep}", kind, "--keep-worst", str(keep),
                             "--report", tmp_path / f"m{keep}.html")
        assert report["worst"][0] == name
        assert [x["name"] for x in report["linears"] if x["kept"]] == [name][:keep]
        lost.append(report["network"]["perplexity_quantized"] / report["network"]["perplexity"] - 1)
        page = (tmp_path / f"m{keep}.html").read_text()
        assert re.search(r'<td class="bad"><code>([^<]*)', page).group(1) == name and page.count("<svg") == 2
    assert lost[0] > 0.1 and abs(lost[1]) < 0.01, lost
    source = safetensors(folder / f"planted-{kind}")[name + ".weight"]
    if kind == "q4_0":
        assert gguf(tmp_path / "m1")[1]["blk.4.ffn_down.weight"] == (F32, *source[1:])
    else:
        assert safetensors(tmp_path / "m1")[name + ".weight"] == source
        assert name in json.loads((tmp_path / "m1" / "config.json").read_text())["quantization_config"]["modules_to_not_convert"]
    assert not list(tmp_path.glob("*.trial"))


def test_experts_are_in_the_report_by_the_rows_that_reach_them(run, folder, tmp_path):
    for kind in ("q8_0", "int8"):
        out, report = measured(run, folder, "mixture", tmp_path / kind, kind)
        experts = [x for x in report["linears"] if ".experts." in x["name"]]
        assert len(experts) == 2 * 4 * 3 and len(report["linears"]) == 2 * 4 + len(experts)
        for layer in (0, 1):
            rows = [x["calibration_rows"] for x in experts if x["layer"] == layer and x["name"].endswith("up_proj")]
            assert sum(rows) == 300 * 2     # two experts for each token
        for x in experts:
            assert x["weights"]["snr_db"] > 35 and x["outputs_accumulated"] is None
            assert (x["outputs"] is not None) == (x["calibration_rows"] > 0)
            assert not x["outputs"] or x["outputs"]["snr_db"] > 35, x


def test_parts_that_a_pattern_names_stay_as_they_were(run, folder, tmp_path):
    source, name = safetensors(folder / "mixture"), "model.layers.{}.mlp.experts.{}.up_proj.weight"
    quantize(run, folder / "mixture", tmp_path / "int8", "int8", "--keep", "layers.1.*experts.2.up", "--keep", "o_proj")
    found = safetensors(tmp_path / "int8")
    for layer in (0, 1):
        for e in range(4):
            assert (found[name.format(layer, e)] == source[name.format(layer, e)]) == ((layer, e) == (1, 2))
        assert found[f"model.layers.{layer}.self_attn.o_proj.weight"] == source[f"model.layers.{layer}.self_attn.o_proj.weight"]
    # A GGUF file stores the experts of a layer in one tensor.
    quantize(run, folder / "mixture", tmp_path / "m.gguf", "q8_0", "--keep", "layers.1.*experts.2.up")
    _, tensors = gguf(tmp_path / "m.gguf")
    assert [tensors[f"blk.{i}.ffn_{part}_exps.weight"][0] for i in (0, 1) for part in ("up", "down")] == [Q8_0, Q8_0, F32, Q8_0]
    assert tensors["blk.1.ffn_up_exps.weight"][2] == b"".join(source[name.format(1, e)][2] for e in range(4))
    _, report = measured(run, folder, "mixture", tmp_path / "worst", "q8_0", "--keep-worst", "2")
    kept = {(x["layer"], x["name"].rpartition(".")[2]) if "experts" in x["name"] else x["name"] for x in report["linears"] if x["kept"]}
    assert len(kept) == 2


def test_options_that_measure_need_a_text(run, folder, tmp_path):
    def fails(status, text, *argv):
        r = run("quantize", folder / "llama", tmp_path / "dst", *argv)
        assert r.returncode == status and text in r.stderr, r.stderr
        assert not (tmp_path / "dst").exists()
    for option in ("report", "keep-worst", "threads", "eval-tokens"):
        fails(2, f"--{option} needs a text to measure on: name one with --eval FILE", "--type", "int8", f"--{option}", "2")
    fails(2, "--eval-tokens of 2 or more", "--type", "int8", "--eval", folder / "text", "--eval-tokens", "1")
    fails(2, "--keep does not go with --compare", "--compare", "--keep", "x")
    fails(1, "none", "--type", "int8", "--eval", tmp_path / "none")
    for kind in ("int8", "int4-rtn", "q8_0", "q4_k"):
        for pattern in ("proj", "*"):     # in a GGUF file, "proj" does not match the embedding and the head
            fails(1, "or --keep names them all", "--type", kind, "--keep", pattern)
    (tmp_path / "dst.trial").mkdir()
    (tmp_path / "dst.trial" / "mine").write_text("mine")
    fails(1, "dst.trial exists, and is not what a run left behind", "--type", "int8", "--eval", folder / "text", "--keep-worst", "1")
    assert (tmp_path / "dst.trial" / "mine").read_text() == "mine"


@pytest.mark.parametrize("kind", ["int8", "q8_0", "awq4"])
def test_a_report_that_cannot_be_written_is_refused_at_once(run, folder, tmp_path, kind):
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "folder").mkdir()
    text = ("--calibrate", folder / "text", "--tokens", "64") if kind == "awq4" else ("--eval", folder / "text")
    for bad in (tmp_path / "no" / "report.html", tmp_path / "folder"):
        r = run("quantize", folder / "demo", tmp_path / "dst", "--type", kind, *text, "--report", tmp_path / "old.json", "--report", bad)
        assert r.returncode == 1 and "--report" in r.stderr and str(bad) in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr
        assert sorted(f.name for f in tmp_path.iterdir()) == ["folder", "old.json"] and (tmp_path / "old.json").read_text() == "old"


def test_the_width_of_a_part_that_is_kept_does_not_set_the_group(run, folder, tmp_path):
    """down_proj has 96 inputs, the other layers 128."""
    for keep, group in (((), 32), (("--keep", "down_proj"), 128)):
        quantize(run, folder / "llama", tmp_path / str(group), "int4-rtn", *keep)
        config = json.loads((tmp_path / str(group) / "config.json").read_text())["quantization_config"]
        assert config["group_size"] == group


# --- runs that end early ---

def started(folder, dst, kind, until, *options):
    """Start a run that measures for a while, and wait until this path exists."""
    p = spawn([QUERN, "quantize", folder / "demo", dst, "--type", kind, "--eval", folder / "long", "--eval-tokens", "60000", *options],
              uuid.uuid4().hex, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and not until.exists():
        time.sleep(0.001)
    assert p.poll() is None, "it ended before it could be stopped"
    return p


def left(dst):
    return sorted(f.name for f in dst.parent.iterdir() if f.name.startswith(dst.name))


@pytest.mark.parametrize("kind", ["q8_0", "int8"])
def test_a_signal_while_a_trial_is_measured_leaves_nothing(folder, tmp_path, kind):
    dst = tmp_path / "dst"
    p = started(folder, dst, kind, tmp_path / "dst.trial" / "model", "--keep-worst", "1")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60 * SLOW)
    assert (p.returncode, out) == (1, "") and "interrupted: nothing was written" in err and left(dst) == []


def test_a_signal_while_the_result_is_measured_leaves_the_result(run, folder, tmp_path):
    dst = tmp_path / "dst"
    p = started(folder, dst, "int8", dst, "--report", tmp_path / "report.json")
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=60 * SLOW)
    assert (p.returncode, out) == (1, "") and "is written, but not measured: interrupted" in err
    assert left(dst) == ["dst"] and not (tmp_path / "report.json").exists()
    assert json.loads(run("inspect", dst, "--no-probe", "--json").stdout)["layers"] == 5


def test_what_a_killed_run_left_is_taken_over(run, folder, tmp_path):
    dst = tmp_path / "dst"
    p = started(folder, dst, "q8_0", tmp_path / "dst.trial" / "model", "--keep-worst", "1")
    p.kill()
    p.communicate(timeout=60 * SLOW)
    assert left(dst) == ["dst.trial"]
    _, report = measured(run, folder, "demo", dst, "q8_0", "--keep-worst", "1")
    assert sum(x["kept"] for x in report["linears"]) == 1 and left(dst) == ["dst", "dst.json"]


def test_two_runs_do_not_share_a_trial(run, folder, tmp_path):
    dst = tmp_path / "dst"
    p = started(folder, dst, "q8_0", tmp_path / "dst.trial" / "model", "--keep-worst", "1")
    r = run("quantize", folder / "demo", dst, "--type", "q8_0", "--eval", folder / "text", "--keep-worst", "1")
    assert r.returncode == 1 and "dst is being written by another run: wait for its end" in r.stderr
    assert p.poll() is None and (tmp_path / "dst.trial" / "model").exists()
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=60 * SLOW)
    assert left(dst) == []
