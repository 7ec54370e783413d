"""`quern quantize --type awq4` and --compare, on the demo model in floats and on a tiny model of each family. Expected
values are computed from the files with numpy, independently of the quantizer's report."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from service import BIN, DEMO, ROOT, TRIES

sys.path[:0] = [str(ROOT / "tests" / "tools"), str(ROOT / "tests" / "e2e" / "http")]
import make_model  # noqa: E402
from from_awq import dequantize, floats, plant, stories, write_model  # noqa: E402
from to_awq import read, read_raw  # noqa: E402

FAMILIES = ["qwen2", "qwen3-yarn", "llama2", "llama3", "mistral", "olmo2", "smollm3", "phi3", "glm", "glm4", "gemma2", "gemma3",
            "qwen2-moe", "qwen3-moe", "mixtral", "olmoe", "glm4-moe"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo model in floats, and texts."""
    d = tmp_path_factory.mktemp("quantize")
    write_model(DEMO, d / "demo", floats(DEMO), "f32")
    (d / "text").write_text(stories(5, 20_000))
    (d / "eval").write_text(stories(77, 8_000))
    return d


def quantize(run, folder, dst, *options, source="demo"):
    r = run("quantize", folder / source, dst, "--type", "awq4", "--calibrate", folder / "text", *options)
    assert r.returncode == 0, r.stderr
    return r


def compare(run, folder, a, b, n=2048):
    r = run("quantize", "--compare", a, b, folder / "eval", "--json", "--eval-tokens", str(n))
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


@pytest.fixture(scope="module")
def result(folder):
    """(directory, report) of the demo model in groups of 128."""
    argv = [BIN / "quern", "quantize", folder / "demo", folder / "awq", "--type", "awq4", "--calibrate", folder / "text",
            "--tokens", "1024", "--eval", folder / "eval", "--eval-tokens", "1024",
            "--report", folder / "report.json", "--report", folder / "report.html"]
    subprocess.run(argv, check=True, timeout=170, capture_output=True)
    return folder / "awq", json.loads((folder / "report.json").read_text())


def test_the_search_is_better_than_rounding_to_nearest_in_every_part(result):
    linears = result[1]["linears"]
    assert len(linears) == 35 and not any(x["kept"] for x in linears)
    gains = [x["outputs"]["snr_db"] - x["outputs_nearest"]["snr_db"] for x in linears]
    assert min(gains) > 0 and sum(gains) / len(gains) > 1, gains


def test_the_text_loses_little_and_the_report_says_how_much(run, folder, result):
    network = result[1]["network"]
    c = compare(run, folder, folder / "demo", result[0], 1024)
    assert c["scored"] == network["scored"] == 1022
    assert network["perplexity"] == pytest.approx(c["perplexity_a"], rel=1e-5)
    assert network["perplexity_quantized"] == pytest.approx(c["perplexity_b"], rel=1e-5)
    assert network["kl"] == pytest.approx(c["kl"], rel=1e-4) and 0 < c["kl"] < 0.02
    assert c["perplexity_b"] / c["perplexity_a"] < 1.03 and c["agreement"] > 0.97
    assert c == compare(run, folder, folder / "demo", result[0], 1024)


def test_what_is_written_is_the_same_function_but_for_rounding(folder, result):
    """Scales folded into the norms are divided out of the weights that read them: the rest is close to the original."""
    a, b = read(folder / "demo" / "model.safetensors"), read_raw(result[0] / "model.safetensors")
    changed = 0
    for i in range(5):
        p = f"model.layers.{i}."
        for norm, parts in (("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj")),
                            ("post_attention_layernorm", ("mlp.gate_proj",))):
            by = a[f"{p}{norm}.weight"] / b[f"{p}{norm}.weight"].astype(np.float32)
            changed += np.any(by != 1)
            for part in parts:
                w = a[f"{p}{part}.weight"]
                d = dequantize(b, p + part, 128) / by - w
                assert np.sum(d * d) < 0.02 * np.sum(w * w), (part, i)
    assert changed > 5


def test_the_report_in_json_agrees_with_the_weights(folder, result):
    """For a layer without scaled rows: the error of its weights."""
    a, b = read(folder / "demo" / "model.safetensors"), read_raw(result[0] / "model.safetensors")
    for x in result[1]["linears"]:
        if x["name"].endswith("mlp.gate_proj"):
            norm = x["name"].replace("mlp.gate_proj", "post_attention_layernorm.weight")
            w = a[x["name"] + ".weight"]
            d = dequantize(b, x["name"], 128) * (b[norm].astype(np.float32) / a[norm]) - w
            assert x["weights"]["snr_db"] == pytest.approx(10 * np.log10(np.sum(w * w) / np.sum(d * d)), abs=0.05)
            assert x["weights"]["mean_abs"] == pytest.approx(np.abs(d).mean(), rel=0.01)


def test_the_page_has_both_charts_and_names_the_worst_first(result, folder):
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 2 and page.count("<polyline") == 15    # seven kinds twice, and the residual stream
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    worst = min(result[1]["linears"], key=lambda x: x["outputs"]["snr_db"])["name"]
    assert result[1]["worst"][0] == worst
    assert re.search(r'<td class="bad"><code>([^<]*)', page).group(1) == worst


def test_the_page_is_shown_by_a_browser(result, folder, tmp_path):
    """Both charts and the tables are visible, their numbers are the report's, and nothing is downloaded or logged as an
    error."""
    from browser import size, start_chromium
    d = start_chromium(tmp_path)
    try:
        size(d, 1100, 1600)
        d.get((folder / "report.html").as_uri())
        seen = d.execute_script("""
            const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height] };
            const all = css => [...document.querySelectorAll(css)];
            return {charts: all('svg').map(box), lines: all('polyline').map(box),
                    tables: all('table').map(t => [...box(t), t.querySelectorAll('tbody tr').length]),
                    outside: all('svg text').filter(t => { const s = t.ownerSVGElement.getBoundingClientRect(),
                        r = t.getBoundingClientRect(); return r.bottom > s.bottom + 1 || r.right > s.right + 1 }).length,
                    worst: document.querySelector('td.bad').textContent, wide: document.body.scrollWidth,
                    requests: performance.getEntriesByType('resource').map(e => e.name)}""")
        log = d.get_log("browser")
    finally:
        d.quit()
    assert len(seen["charts"]) == 2 and all(w > 800 and h > 200 for w, h in seen["charts"]), seen
    assert len(seen["lines"]) == 15 and all(w > 700 for w, _ in seen["lines"]), seen
    assert [n for _, _, n in seen["tables"]] == [10, 35] and all(w > 800 for w, _, _ in seen["tables"]), seen
    assert seen["outside"] == 0 and seen["wide"] <= 1100, seen
    assert seen["worst"] == result[1]["worst"][0]
    assert seen["requests"] == [] and log == []


def test_a_sensitive_part_is_named_first_and_keeping_it_repairs_the_text(run, folder):
    tensors, name = floats(DEMO), "model.layers.4.mlp.down_proj"
    plant(tensors, name)
    write_model(DEMO, folder / "planted", tensors, "f32")
    kl = []
    for keep in (0, 1):
        dst, report = folder / f"kept-{keep}", folder / f"kept-{keep}.json"
        quantize(run, folder, dst, "--tokens", "1024", "--group", "64", "--keep-worst", str(keep), "--report", report,
                 "--eval-tokens", "0", source="planted")
        assert json.loads(report.read_text())["worst"][0] == name
        quant = json.loads((dst / "config.json").read_text())["quantization_config"]
        assert quant["modules_to_not_convert"] == [name][:keep]
        c = compare(run, folder, folder / "planted", dst)
        kl.append((c["kl"], c["perplexity_b"] / c["perplexity_a"] - 1))
    assert kl[1][0] < kl[0][0] / 4 and kl[0][1] > 0.01 and abs(kl[1][1]) < 0.008, kl


def test_a_run_that_is_killed_goes_on_and_gives_the_same_bytes(run, folder, result):
    dst, state = folder / "killed", folder / "killed.state"
    argv = [BIN / "quern", "quantize", folder / "demo", dst, "--type", "awq4", "--calibrate", folder / "text",
            "--tokens", "1024", "--eval-tokens", "0"]

    def killed_at(layer):
        p = subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while p.poll() is None and not (state / f"layer-{layer:03}").exists():
            time.sleep(0.002)
        p.kill()
        return p.wait() == -signal.SIGKILL
    for _ in range(TRIES):
        if all(killed_at(layer) for layer in (0, 2)):
            break
        shutil.rmtree(dst)      # it ended before it could be killed
    assert not dst.exists()
    r = quantize(run, folder, dst, "--tokens", "1024", "--eval-tokens", "0")
    assert re.search(r"resumed from a previous run layers=\d+ total_layers=5", r.stderr)
    assert not state.exists()
    for f in result[0].iterdir():
        assert (dst / f.name).read_bytes() == f.read_bytes(), f.name


def make_family(out, family):
    """Make a tiny model with sizes that are multiples of 32."""
    config, dtype = make_model.TINY[family]
    sizes = dict(intermediate_size=96, moe_intermediate_size=64, shared_expert_intermediate_size=64)
    text = dict(config, hidden_size=32 * config["num_attention_heads"]) | {k: v for k, v in sizes.items() if k in config}
    make_model.make(str(out), text, dtype.upper(), seed=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_is_quantized_and_read_again(run, folder, family):
    dst, report = folder / f"{family}-awq", folder / f"{family}.json"
    make_family(folder / family, family)
    log = quantize(run, folder, dst, "--tokens", "400", "--group", "32", "--eval-tokens", "256", "--report", report,
                   source=family).stderr
    r = json.loads(report.read_text())
    assert r["linears"] and not any(x["kept"] for x in r["linears"])
    for x in r["linears"]:
        if x["outputs"] and x["reason"] == "":
            assert x["outputs"]["snr_db"] >= x["outputs_nearest"]["snr_db"] - 0.01, x
    assert r["network"]["logits"]["snr_db"] > 8, r["network"]    # random weights: a misplaced scale gives 0
    few = [x for x in r["linears"] if ".experts." in x["name"] and x["calibration_rows"] < 64]
    assert few or family != "glm4-moe"      # its router does not use some experts of a layer
    experts_are_nearest(folder / family, dst, few, log)


def experts_are_nearest(source, dst, few, log):
    """Experts with few calibration rows are named, and their groups cover the whole range of the weights."""
    a, b = read(source / "model.safetensors"), read_raw(dst / "model.safetensors")
    for x in few:
        assert "nearest" in x["reason"] and re.search(rf"matrix={x['name']} rows=\d+ reason=\"{x['reason']}\"", log), x
        groups = a[x["name"] + ".weight"].T.reshape(-1, 32, b[x["name"] + ".scales"].shape[1])
        wide = (np.maximum(groups.max(1), 0) - np.minimum(groups.min(1), 0)) / 15
        np.testing.assert_allclose(b[x["name"] + ".scales"].astype(np.float32), wide, rtol=1e-3)


def test_wrong_usage_is_refused_with_a_remedy(run, folder, result):
    def fails(status, text, *argv):
        r = run("quantize", *argv)
        assert r.returncode == status and text in r.stderr, r.stderr
    demo, dst, text = folder / "demo", folder / "never", ("--calibrate", folder / "text")
    fails(1, "--calibrate FILE", demo, dst, "--type", "awq4")
    fails(1, "allow fewer with --tokens", demo, dst, "--type", "awq4", *text)
    fails(1, "exists already", demo, result[0], "--type", "awq4", *text, "--tokens", "512")
    fails(1, "is quantized already", DEMO, dst, "--type", "awq4", *text, "--tokens", "512")
    fails(1, "no part of", demo, dst, "--type", "awq4", *text, "--tokens", "512", "--keep", "proj")
    fails(1, "must be 32, 64 or 128", demo, dst, "--type", "awq4", *text, "--group", "100")
    fails(2, "--tokens goes with --type awq4", demo, dst, "--type", "q8_0", "--tokens", "64")
    fails(2, "takes two models and a text", "--compare", demo, result[0])
    assert not dst.exists() and not (folder / "never.state").exists()


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 1e6], ids=str)
def test_values_that_cannot_be_rounded_are_refused_by_tensor(run, tmp_path, folder, bad):
    weights = floats(DEMO)
    name = "model.layers.1.self_attn.q_proj.weight"
    weights[name] = weights[name].copy()
    weights[name][3, 5] = bad
    write_model(DEMO, tmp_path / "bad", weights, "f32")
    r = run("quantize", tmp_path / "bad", tmp_path / "dst", "--type", "awq4", "--calibrate", folder / "text", "--tokens", "64")
    assert r.returncode == 1 and f"tensor {name} has the value" in r.stderr, r.stderr
    assert not (tmp_path / "dst").exists()


def test_a_text_that_is_missing_for_the_evaluation_is_named_at_once(run, tmp_path, folder):
    r = run("quantize", folder / "demo", tmp_path / "dst", "--type", "awq4", "--calibrate", folder / "text",
            "--tokens", "64", "--eval", tmp_path / "none")
    assert r.returncode == 1 and "none" in r.stderr and not (tmp_path / "dst.state").exists(), r.stderr
