#!/usr/bin/env python3
"""Tokens and probabilities of draws: tests/golden/sample.json, for tests/kernels/test_sample_golden.c.

    python3 tests/golden/make_sample_golden.py > tests/golden/sample.json

Written from the description of the sampler (kernels/cpu/draw.h, kernels/kern.h), not from its code: exact
fractions in place of floats, rounded where the description rounds; lists that are sorted in place of
heaps, histograms and prefix sums.  `p` has the probabilities of the rules in real numbers, without any
rounding: what the tokens' frequencies are compared with."""
import json
import math
import random
from fractions import Fraction

UNIT = 1 << 40  # a weight of 1
POSITIONS = 48


# ---- floats of 32 bits, by fractions ----


def f32(x):
    """The nearest float, ties to even; None below the normal ones (none occurs that counts)."""
    x = Fraction(x)
    if x == 0:
        return x
    e = math.floor(math.log2(abs(x))) if abs(x) > 0 else 0
    while abs(x) >= Fraction(2) ** (e + 1):
        e += 1
    while abs(x) < Fraction(2) ** e:
        e -= 1
    unit = Fraction(2) ** (max(e, -126) - 23)
    return round(x / unit) * unit  # Python rounds halves to even


def hex_f32(text):
    return f32(Fraction(float.fromhex(text)))


LOG2E = hex_f32("0x1.715476p+0")
LN2_HIGH, LN2_LOW = hex_f32("0x1.62e4p-1"), hex_f32("0x1.7f7d1cp-20")
COEFFICIENTS = [f32(Fraction(c)) for c in (
    0.001381422160193324, 0.00836889911442995, 0.04166840389370918, 0.1666651964187622, 0.4999999403953552)]


def exp32(x):
    """e^x for x <= 0 as the kernels define it: n = x / ln 2 to the nearest, a polynomial of the rest."""
    if x < -87:
        return Fraction(0)
    magic = Fraction(3 << 22)  # 1.5 * 2^23: a sum with it is rounded to an integer
    n = f32(f32(x * LOG2E + magic) - magic)
    r = f32(x - n * LN2_HIGH)
    r = f32(r - n * LN2_LOW)
    p = COEFFICIENTS[0]
    for c in COEFFICIENTS[1:]:
        p = f32(p * r + c)
    p = f32(f32(r * r) * p + r)
    p = f32(p + 1)
    return p * Fraction(2) ** int(n)


# ---- Philox4x32-10 (Salmon et al., 2011) ----


def philox(counter, key):
    mask = 0xFFFFFFFF
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def bits(seed, index, position):
    c = philox([index, position, 0, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return c[0] << 32 | c[1]


# ---- the rules ----


def kept_of(order, weights, relative, case, all_sum, share):
    """The tokens that stay: `order` is the likeliest first; share() turns a sum into what top-p keeps of it."""
    kept = list(order)
    if 0 < case["top_k"] < len(order):
        kept = kept[:case["top_k"]]
    if case["top_p"] < 1:
        of = sum(weights[i] for i in kept) if len(kept) < len(order) else all_sum
        target, had, n = share(of), 0, 0
        while n < len(kept) and (n == 0 or had < target):
            had += weights[kept[n]]
            n += 1
        kept = kept[:n]
    return [i for i in kept if relative[i] >= case["min_p"]]


def tokens_of(case):
    """What is drawn at each position, by the integers."""
    x, top_p = [f32(Fraction(v)) for v in case["logits"]], f32(Fraction(case["top_p"]))
    inverse = f32(1 / f32(Fraction(case["temperature"])))
    largest = max(x)
    cache = {}
    relative = [cache.setdefault(v, exp32(f32(f32(v - largest) * inverse))) for v in x]
    weights = [math.floor(p * UNIT) for p in relative]
    order = sorted((i for i in range(len(x)) if weights[i]), key=lambda i: (-x[i], i))

    def share(of):  # doubles
        return math.ceil(float(top_p) * float(of))

    rules = dict(case, min_p=f32(Fraction(case["min_p"])))
    if len(order) < case["top_k"]:
        rules["top_k"] = 0
    kept = sorted(kept_of(order, weights, relative, rules, sum(weights), share))
    total = sum(weights[i] for i in kept)
    out = []
    for position in range(POSITIONS):
        target = bits(case["seed"], case["index"], position) * total >> 64
        for i in kept:
            if target < weights[i]:
                out.append(i)
                break
            target -= weights[i]
    return out


def probabilities_of(case):
    """What the rules say in real numbers."""
    x, t = case["logits"], case["temperature"]
    largest = max(x)
    p = [math.exp((v - largest) / t) for v in x]
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    kept = kept_of(order, p, p, case, math.fsum(p), lambda of: case["top_p"] * of)
    total = math.fsum(p[i] for i in kept)
    out = [0.0] * len(x)
    for i in kept:
        out[i] = p[i] / total
    return out


def case(name, logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1, index=0):
    c = {"name": name, "logits": logits, "temperature": temperature, "top_k": top_k, "top_p": top_p,
         "min_p": min_p, "seed": seed, "index": index}
    c["tokens"] = tokens_of(c)
    c["p"] = [float(f"{v:.9g}") for v in probabilities_of(c)]
    return c


def main():
    r = random.Random(20)

    def some(n, width):  # multiples of 2^-8: the same as floats
        return [round(r.gauss(0, width) * 256) / 256 for _ in range(n)]

    tied = [4.0] * 5 + [3.0] * 7 + [2.0] * 9 + some(40, 1)
    cases = [
        case("two", [0.0, 1.0], seed=7),
        case("flat", [0.5] * 300, seed=8),
        case("model_like", some(200, 2.5), seed=9),
        case("hot", some(200, 2.5), temperature=4.0, seed=10, index=3),
        case("cold", some(60, 2.5), temperature=0.25, seed=11),
        case("one_huge", [-30.0] * 150 + [10.0] + [-20.0] * 149, seed=12),
        case("nearly_nothing", [0.0] + [-27.5] * 99 + [-28.5] * 100, seed=13),
        case("top_k", some(200, 2.5), top_k=17, seed=14),
        case("top_k_of_ties", tied, top_k=8, seed=15),
        case("top_p", some(200, 2.5), top_p=0.875, seed=16),
        case("top_p_of_ties", tied, top_p=0.75, seed=17),
        case("top_p_of_the_flat", [1.0] * 256, top_p=0.25, seed=18),
        case("min_p", some(200, 2.5), min_p=0.0625, seed=19),
        case("all_of_them", some(250, 2.5), temperature=1.5, top_k=40, top_p=0.9375, min_p=0.03125, seed=20, index=1),
        case("large_seed", some(100, 1.5), top_p=0.5, seed=0xFEDCBA9876543210),
    ]
    for c in cases:
        c["seed"] = str(c["seed"])  # more than 63 bits are no integer of JSON here
    rows = [json.dumps(c, separators=(",", ":")) for c in cases]
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
