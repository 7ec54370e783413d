#!/usr/bin/env python3
"""Probabilities of llama.cpp's samplers: tests/golden/sample_llama.json, for tests/kernels/test_sample_golden.c.

    python3 -m venv V; V/bin/pip install llama-cpp-python==0.3.36
    python3 tests/golden/make_sample_llama_golden.py V/lib/python3*/site-packages/llama_cpp/lib/libllama.so \
        > tests/golden/sample_llama.json

llama.cpp's own code (DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, in this order) is called with made-up
logits and histories; the temperature comes first, as here (kernels/kern.h).  XTC's coin is tossed by neither: of its
two outcomes, one is drawn with xtc_probability.

Mirostat (1 and 2) stands alone, as in llama.cpp.  A case of several steps calls it with the same logits again: `mu` is
what its formula gives for the tokens that it has chosen, `p` what it leaves at the last step."""
import ctypes
import json
import math
import random
import sys


class TokenData(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float)]


class TokenArray(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(TokenData)), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64),
                ("sorted", ctypes.c_bool)]


LIB = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL | 1)
FLOAT, INT, SIZE, POINTER = ctypes.c_float, ctypes.c_int32, ctypes.c_size_t, ctypes.c_void_p


def sampler(name, *args):
    make = getattr(LIB, "llama_sampler_init_" + name)
    make.restype = POINTER
    return POINTER(make(*args))


DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 0.0, "top_n_sigma": 0.0,
            "xtc_probability": 0.0, "xtc_threshold": 0.1, "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed": 2,
            "dry_last_n": -1}


def chain(c, xtc):
    """The samplers of case c, in their order."""
    out = []
    if c["dry_multiplier"]:
        last_n = c["dry_last_n"] if c["dry_last_n"] >= 0 else len(c["history"])
        out.append(sampler("dry", None, FLOAT(c["dry_multiplier"] / c["temperature"]), FLOAT(c["dry_base"]),
                           INT(c["dry_allowed"]), INT(last_n), None, SIZE(0)))
    if c["top_n_sigma"]:
        out.append(sampler("top_n_sigma", FLOAT(c["top_n_sigma"])))
    if c["top_k"]:
        out.append(sampler("top_k", INT(c["top_k"])))
    if c["typical_p"]:
        out.append(sampler("typical", FLOAT(c["typical_p"]), SIZE(0)))
    if c["top_p"] < 1:
        out.append(sampler("top_p", FLOAT(c["top_p"]), SIZE(0)))
    if c["min_p"]:
        out.append(sampler("min_p", FLOAT(c["min_p"]), SIZE(0)))
    if xtc:
        out.append(sampler("xtc", FLOAT(1), FLOAT(c["xtc_threshold"]), SIZE(0), ctypes.c_uint32(1)))
    return out


def probabilities(c, xtc):
    n = len(c["logits"])
    data = (TokenData * n)(*[TokenData(i, x / c["temperature"], 0) for i, x in enumerate(c["logits"])])
    array = TokenArray(data, n, -1, False)
    for s in chain(c, xtc):
        for token in c["history"]:
            LIB.llama_sampler_accept(s, INT(token))
        LIB.llama_sampler_apply(s, ctypes.byref(array))
        LIB.llama_sampler_free(s)
        # Top-n-sigma leaves logits of -infinity, which make typical-p's entropy a NaN.
        left = [(t.id, t.logit) for t in array.data[:array.size] if t.logit > -math.inf]
        data = (TokenData * n)(*[TokenData(i, x, 0) for i, x in left])
        array = TokenArray(data, len(left), -1, False)
    kept = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    kept = [(i, x) for i, x in kept if x > -math.inf]
    top = max(x for _, x in kept)
    total = math.fsum(math.exp(x - top) for _, x in kept)
    p = [0.0] * n
    for i, x in kept:
        p[i] = math.exp(x - top) / total
    return p


def mirostat(c, steps):
    """mu before the last step, and the probabilities that it leaves."""
    n, tau, eta = len(c["logits"]), c["mirostat_tau"], c["mirostat_eta"]
    seed = ctypes.c_uint32(int(c["seed"]))
    s = (sampler("mirostat", INT(n), seed, FLOAT(tau), FLOAT(eta), INT(100)) if c["mirostat"] == 1 else
         sampler("mirostat_v2", seed, FLOAT(tau), FLOAT(eta)))
    mu = 2 * tau
    for step in range(steps):
        data = (TokenData * n)(*[TokenData(i, x / c["temperature"], 0) for i, x in enumerate(c["logits"])])
        array = TokenArray(data, n, -1, False)
        LIB.llama_sampler_apply(s, ctypes.byref(array))
        kept = {array.data[i].id: array.data[i].p for i in range(array.size)}
        if step + 1 < steps:
            mu -= eta * (-math.log2(kept[array.data[array.selected].id]) - tau)
    LIB.llama_sampler_free(s)
    return mu, [kept.get(i, 0.0) for i in range(n)]


def mirostat_case(name, logits, steps=1, seed=1, **params):
    c = dict(DEFAULTS, name=name, logits=logits, history=[], seed=str(seed), **params)
    c["mu"], p = mirostat(c, steps)
    c["p"] = [float(f"{x:.7g}") for x in p]
    return c


def case(name, logits, history=(), seed=1, **params):
    c = dict(DEFAULTS, name=name, logits=logits, history=list(history), seed=str(seed), **params)
    plain, xtc = probabilities(c, False), probabilities(c, c["xtc_probability"] > 0)
    by = c["xtc_probability"]
    c["p"] = [float(f"{by * b + (1 - by) * a:.7g}") for a, b in zip(plain, xtc)]
    return c


def main():
    r = random.Random(16)

    def some(n, width):  # all different: the order of equals is not llama.cpp's to say
        steps = r.sample(range(-int(4 * width * 64), int(4 * width * 64)), n)
        return [round(r.gauss(0, width) * 64) / 64 + s / 65536 for s in steps]

    text = [r.randrange(6) for _ in range(60)] + [1, 2, 3, 4, 5, 2, 3, 4, 9, 1, 2, 3, 4]
    loop = [7, 8, 9] * 12 + [7, 8]
    cases = [
        case("typical", some(120, 2.0), seed=31, typical_p=0.5),
        case("typical_little", some(120, 2.0), seed=32, typical_p=0.05),
        case("typical_nearly_all", some(120, 1.5), seed=33, typical_p=0.95),
        case("typical_hot", some(120, 2.0), seed=34, typical_p=0.6, temperature=2.0),
        case("typical_of_top_k", some(120, 2.0), seed=35, typical_p=0.7, top_k=20),
        case("typical_then_top_p_and_min_p", some(120, 2.0), seed=36, typical_p=0.9, top_p=0.8, min_p=0.05),
        case("sigma", some(150, 2.0), seed=37, top_n_sigma=1.0),
        case("sigma_wide", some(150, 2.0), seed=38, top_n_sigma=2.5, temperature=4.0),
        case("sigma_narrow", some(150, 2.0), seed=39, top_n_sigma=0.25),
        case("sigma_then_top_p", some(150, 1.0), seed=40, top_n_sigma=2.0, top_p=0.7),
        case("sigma_then_typical", some(150, 1.0), seed=41, top_n_sigma=3.0, typical_p=0.4),
        case("xtc", some(60, 2.0), seed=42, xtc_probability=1.0, xtc_threshold=0.08),
        case("xtc_by_chance", some(60, 2.0), seed=43, xtc_probability=0.375, xtc_threshold=0.05),
        case("xtc_above_all", some(60, 1.0), seed=44, xtc_probability=1.0, xtc_threshold=0.5),
        case("xtc_of_all", some(60, 1.0), seed=45, xtc_probability=1.0, xtc_threshold=0.0),
        case("xtc_after_top_p", some(60, 1.5), seed=46, top_p=0.75, xtc_probability=0.5, xtc_threshold=0.1),
        case("dry", some(20, 1.5), text, seed=47, dry_multiplier=0.8),
        case("dry_strict", some(20, 1.5), text, seed=48, dry_multiplier=0.5, dry_base=1.2, dry_allowed=1),
        case("dry_lenient", some(20, 1.5), text, seed=49, dry_multiplier=2.0, dry_allowed=4),
        case("dry_of_the_last", some(20, 1.5), text, seed=50, dry_multiplier=0.8, dry_last_n=8),
        case("dry_loop", some(20, 0.5), loop, seed=51, dry_multiplier=0.1, dry_base=1.1),
        case("all_of_them", some(120, 2.0), text, seed=52, temperature=1.5, dry_multiplier=0.7, top_n_sigma=2.0,
             top_k=60, typical_p=0.9, top_p=0.95, min_p=0.01, xtc_probability=0.25, xtc_threshold=0.06),
        mirostat_case("mirostat_2", some(120, 2.0), seed=61, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.1),
        mirostat_case("mirostat_2_little", some(120, 2.0), seed=62, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.1),
        mirostat_case("mirostat_2_all", some(120, 1.0), seed=63, mirostat=2, mirostat_tau=20.0, mirostat_eta=0.1),
        mirostat_case("mirostat_2_hot", some(120, 2.0), seed=64, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.1,
                      temperature=1.5),
        mirostat_case("mirostat_2_later", some(120, 2.0), 9, seed=65, mirostat=2, mirostat_tau=3.5, mirostat_eta=0.5),
        mirostat_case("mirostat_2_one", some(120, 2.0), 40, seed=66, mirostat=2, mirostat_tau=0.0, mirostat_eta=1.0),
        mirostat_case("mirostat_1", some(150, 2.0), seed=67, mirostat=1, mirostat_tau=4.5, mirostat_eta=0.1),
        mirostat_case("mirostat_1_little", some(150, 2.0), seed=68, mirostat=1, mirostat_tau=2.5, mirostat_eta=0.1),
        mirostat_case("mirostat_1_flat", some(150, 0.5), seed=69, mirostat=1, mirostat_tau=6.5, mirostat_eta=0.1),
        mirostat_case("mirostat_1_steep", some(150, 6.0), seed=70, mirostat=1, mirostat_tau=3.0, mirostat_eta=0.1),
        mirostat_case("mirostat_1_few", some(30, 2.0), seed=71, mirostat=1, mirostat_tau=3.5, mirostat_eta=0.1),
        mirostat_case("mirostat_1_later", some(150, 2.0), 12, seed=72, mirostat=1, mirostat_tau=4.5, mirostat_eta=0.5),
    ]
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


if __name__ == "__main__":
    main()
