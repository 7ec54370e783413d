#!/usr/bin/env python3
"""make_quant_golden.py - quantized models as the packages that write them read them: tests/golden/quant.json.

Of each quantized tiny model of tests/tools/make_model.py: the CRC-32 of every linear layer's weights in float32
[outputs, inputs], dequantized by

    GPTQ, AutoRound  auto_gptq's QuantLinear (0.7.1), given an identity matrix
    AWQ              AutoAWQ's packing_utils, and its WQLinear_GEMV and WQLinear_GEMVFast; their packing must give the
                     file's tensors back (0.2.9)
    compressed       compressed-tensors' compressors (0.20); NVFP4 and MXFP4 by its unpack_fp4_from_uint8() and
                     dequantize(), since the compressors round to bfloat16; + 0.0, since quern's zeros are positive
    fp8              transformers' Fp8Dequantize (5.23)
    modelopt         ModelOpt's NVFP4QTensor.dequantize() (0.47); FP8: weight * weight_scale, as its FP8QTensor
    bitsandbytes     its dequantization of 4 bits for any device (0.50); INT8: int8_vectorwise_dequant(), which rounds twice: within an
                     ulp of weight * (SCB / 127), which is what is kept

with scales in float32, so that nothing is rounded to them; and logits and greedy tokens, as make_model_golden.py has
them, of transformers in float32 with those weights; "f16": how far transformers in float16 is off from them.

    python tests/golden/make_quant_golden.py AUTO_GPTQ AUTO_AWQ [NAME ...]     # the unpacked packages' folders

With names, only these are made again.  A folder may be "-" if no model needs its package.

And tests/golden/quant_forms.json: the same of every form in three families, in short, with `--forms` before the names.

Needs torch, transformers and compressed-tensors; the tests need only its output."""
import functools
import importlib.util
import json
import os
import sys
import tempfile
import types
import zlib

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize as dequantize_ct
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

import make_model_golden as golden

make_model = golden.make_model
KINDS = {"U8": torch.uint8, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32, "I16": torch.int16,
         "I8": torch.int8, "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn}


def load_file(folder, path, name):
    """A module of a package, without its siblings, which need a GPU."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@functools.cache
def nvfp4_tensor():
    """ModelOpt's class, of an installed package; its other modules need more packages than are here."""
    folder = os.path.join(importlib.util.find_spec("modelopt").submodule_search_locations[0], "torch/quantization")
    unused = dict.fromkeys(("fp4_compatible", "reduce_amax", "reduce_block_amax", "reduce_block_padding", "E2M1_MAX",
                            "E4M3_MAX", "fp8_max_for_normalization"), 0)

    class Base:
        def __init__(self, shape, dtype, data):
            self.metadata, self._quantized_data = dict(shape=shape, dtype=dtype), data
    for name in ("mo", "mo.backends", "mo.backends.utils", "mo.qtensor", "mo.qtensor.base_qtensor", "mo.utils",
                 "mo.utils.numeric_utils"):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(unused, BaseQuantizedTensor=Base, __path__=[])
    return load_file(folder, "qtensor/nvfp4_tensor.py", "mo.qtensor.nvfp4_tensor").NVFP4QTensor


def read_tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        raw = torch.frombuffer(bytearray(data[8 + n + a:8 + n + b]), dtype=torch.uint8)
        out[name] = raw.view(KINDS[t["dtype"]]).reshape(t["shape"])
    return out


# ---------------------------------------------------------------- the packages


class Oracles:
    def __init__(self, auto_gptq, auto_awq):
        if auto_gptq == "-":
            return
        self.gptq_file = load_file(auto_gptq, "auto_gptq/nn_modules/qlinear/qlinear_cuda.py", "qlinear_cuda")
        sys.modules["awq"] = types.ModuleType("awq")
        sys.modules["awq.utils"] = types.ModuleType("awq.utils")
        sys.modules["awq.utils.module"] = types.SimpleNamespace(try_import=lambda name: (None, ""))
        self.awq_file = load_file(auto_awq, "awq/utils/packing_utils.py", "packing_utils")
        self.gemv_file = load_file(auto_awq, "awq/modules/linear/gemv.py", "gemv")
        self.fast_file = load_file(auto_awq, "awq/modules/linear/gemv_fast.py", "gemv_fast")

    def gptq(self, t, bits, group, plus_one):
        k, n = t["g_idx"].numel(), t["scales"].shape[1]
        layer = self.gptq_file.QuantLinear(bits, group, k, n, False, weight_dtype=torch.float32)
        layer.autogptq_cuda_available = False
        layer.qweight, layer.g_idx, layer.scales = t["qweight"], t["g_idx"], t["scales"].float()
        layer.qzeros = t["qzeros"] if plus_one else self.less_one(t["qzeros"], bits)
        return layer(torch.eye(k)).T

    @staticmethod
    def less_one(words, bits):
        """Zeros of the newer format as the older one has them."""
        bit = (words.numpy().view(np.uint32)[..., None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.uint8)
        bit = bit.reshape(words.shape[0], -1, bits)
        zero = ((bit << np.arange(bits)).sum(-1) - 1) % (1 << bits)
        packed = np.packbits((zero[..., None] >> np.arange(bits) & 1).astype(np.uint8).reshape(len(zero), -1), axis=1,
                             bitorder="little")
        return torch.from_numpy(np.ascontiguousarray(packed).view(np.int32))

    def awq(self, t, bits, group):
        scales = t["scales"].float()
        group = group if group > 0 else t["qweight"].shape[0]
        if bits == 4:
            return self.awq_file.dequantize_gemm(t["qweight"], t["qzeros"], scales, bits, group).T
        # The package has no order for four codes in a word; vLLM's (awq_marlin) is 0 2 1 3.
        codes, zeros = (x.numpy().view(np.uint8).reshape(len(x), -1, 4)[..., [0, 2, 1, 3]].reshape(len(x), -1)
                        for x in (t["qweight"], t["qzeros"]))
        zeros = torch.from_numpy(zeros.astype(np.float32)).repeat_interleave(group, 0)
        return ((torch.from_numpy(codes.astype(np.float32)) - zeros) * scales.repeat_interleave(group, 0)).T

    def gemv(self, t, group):
        n, k = t["qweight"].shape[0], t["qweight"].shape[1] * 8
        nibbles = np.arange(0, 32, 4, dtype=np.uint32)
        codes, zeros = ((x.numpy().view(np.uint32)[..., None] >> nibbles & 15).reshape(n, -1).astype(np.float32)
                        for x in (t["qweight"], t["qzeros"]))
        codes, zeros, scales = torch.from_numpy(codes), torch.from_numpy(zeros)[:, :k // group], t["scales"].float()[
            :, :k // group]
        weight = (codes - zeros.repeat_interleave(group, 1)) * scales.repeat_interleave(group, 1)
        linear = types.SimpleNamespace(in_features=k, out_features=n, bias=None, weight=torch.nn.Parameter(weight.double()))
        packed = self.gemv_file.WQLinear_GEMV.from_linear(linear, 4, group, scales=scales.half(), zeros=zeros)
        assert torch.equal(packed.qweight, t["qweight"])
        return weight

    def gemv_fast(self, t, group):
        n, k = t["qweight"].shape[0] * 4, t["qweight"].shape[1]
        # Where the package puts a code: found by packing its own number, 4 bits at a time.
        index = np.arange(n * k).reshape(n, k)
        where = np.zeros((n // 4, k, 4), np.int64)
        for shift in range(0, 24, 4):
            part = self.fast_file.pack_intweight(torch.from_numpy(index >> shift & 15), 4, 64).numpy().view(np.uint16)
            where |= (part[..., None].astype(np.int64) >> np.arange(0, 16, 4) & 15) << shift
        codes = np.zeros(n * k, np.float32)
        codes[where.reshape(-1)] = (t["qweight"].numpy().view(np.uint16)[..., None] >> np.arange(0, 16, 4) & 15).reshape(-1)
        scales, zeros = (t[x].float()[:k // group].repeat_interleave(group, 0).T for x in ("scales", "qzeros"))
        return torch.from_numpy(codes.reshape(n, k)) * scales + zeros

    @staticmethod
    def compressed(t, form, args):
        args = dict(args)
        if form.endswith("fp4-pack-quantized"):
            n, k = t["weight_packed"].shape
            mx = form.startswith("mx")
            scale = decompress_mx_scale(t["weight_scale"]) if mx else t["weight_scale"]
            return dequantize_ct(unpack_fp4_from_uint8(t["weight_packed"], n, 2 * k, torch.float32), scale.float(),
                                 args=QuantizationArgs(**args), global_scale=t.get("weight_global_scale"),
                                 dtype=torch.float32) + 0.0
        if form == "mxfp8-quantized":
            scale = decompress_mx_scale(t["weight_scale"]).float().repeat_interleave(32, 1)
            return t["weight"].float() * scale
        if args.pop("actorder", None) == "group":    # of earlier versions of the package: by hand
            order = torch.argsort(t["weight_g_idx"], stable=True)
            flat = {k: v for k, v in t.items() if k != "weight_g_idx"}
            state = BaseCompressor.get_value_from_registry(form).decompress(
                flat | {"weight_scale": torch.ones_like(t["weight_scale"], dtype=torch.float32)},
                QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args)))
            assert len(order)
            return state["weight"] * t["weight_scale"].float()[:, t["weight_g_idx"].long()]
        state = t | {"weight_scale": t["weight_scale"].float()}
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
        return BaseCompressor.get_value_from_registry(form).decompress(state, scheme)["weight"]

    @staticmethod
    def modelopt(t, algo):
        if algo.startswith("FP8"):
            scale = t["weight_scale"]
            if scale.ndim == 4:
                n, k = t["weight"].shape
                scale = scale[:, 0, :, 0].repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
            return t["weight"].float() * scale
        n, k = t["weight"].shape
        return nvfp4_tensor()((n, 2 * k), torch.float32, t["weight"]).dequantize(
            torch.float32, scale=t["weight_scale"], double_scale=t["weight_scale_2"], block_sizes={-1: 16})

    @staticmethod
    def bnb(t):
        from bitsandbytes import functional as bnb
        from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
        if "SCB" in t:
            exact = bnb.int8_vectorwise_dequant(t["weight"], t["SCB"])
            kept = t["weight"].float() * (t["SCB"] * (torch.tensor(1.0) / 127))[:, None]
            assert bool(((exact - kept).abs() <= exact.abs() * 2.0 ** -22).all())
            return kept
        weight = t.pop("weight")
        state = bnb.QuantState.from_dict({f"weight.{k}": v for k, v in t.items() if k != "bias"}, torch.device("cpu"))
        absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
        # The package's kernel for AVX-512 is wrong if a block goes on in the next row: its plain function.
        plain = getattr(_dequantize_4bit_compute, "__wrapped__", _dequantize_4bit_compute)
        code = bnb.get_4bit_type(state.quant_type, device="cpu")
        return plain(weight.reshape(-1), absmax, code, state.blocksize, state.shape, torch.float32)

    @staticmethod
    def fp8(t):
        n, k = t["weight"].shape
        pad = torch.zeros(-(-n // 128) * 128, -(-k // 128) * 128)
        pad[:n, :k] = t["weight"].float()
        op = Fp8Dequantize(None)
        return op._dequantize_one(pad.to(torch.float8_e4m3fn), t["weight_scale_inv"], torch.float32)[:n, :k]


def dequantize(oracles, tensors, quant):
    """Plain float32 weights, and the names of those that were quantized."""
    state, done = {}, []
    layers = {}
    for name, x in tensors.items():
        base, _, part = name.partition(".weight.") if ".weight." in name else name.rpartition(".")
        layers.setdefault(base, {})[part] = x
    for base, t in layers.items():
        rule = make_model.rule_of(quant.get("dynamic") or quant.get("extra_config") or {}, base, quant)
        method = quant["quant_method"]
        scale = {"qweight", "weight_scale", "weight_scale_inv", "absmax", "SCB"} & set(t)
        if not scale:
            state |= {f"{base}.{k}": v.float() for k, v in t.items()}
            continue
        if method == "compressed-tensors":
            group = make_model.group_of(quant, base)
            w = oracles.compressed({k: v for k, v in t.items() if k != "bias"},
                                   group.get("format") or quant["format"], group["weights"])
        elif method == "modelopt":
            w = oracles.modelopt(t, quant["quant_algo"])
        elif method == "bitsandbytes":
            w = oracles.bnb(t)
        elif method == "fp8":
            w = oracles.fp8(t)
        elif quant.get("version") == "gemv":
            w = oracles.gemv(t, quant["group_size"])
        elif quant.get("version") == "gemv_fast":
            w = oracles.gemv_fast(t, quant["group_size"])
        elif method == "awq" or quant.get("packing_format", "").endswith("awq"):
            w = oracles.awq(t, rule["bits"], rule["group_size"])
        else:
            w = oracles.gptq(t, rule["bits"], rule["group_size"], quant.get("checkpoint_format") != "gptq_v2")
        state[base + ".weight"] = w.detach().float().contiguous()
        done.append(base)
        if "bias" in t:
            state[base + ".bias"] = t["bias"].float()
    return state, done


def model_of(path, state):
    config = transformers.AutoConfig.from_pretrained(path)
    del config.quantization_config
    config.dtype = torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    state = golden.fuse_experts(dict(state), model)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


@torch.no_grad()
def error_in_f16(model, c):
    """How far the logits of transformers in float16 are off: what rounding to F16 does to this model."""
    ids = torch.tensor([c["prompt"]])
    exact = model(ids, use_cache=False).logits[0]
    rounded = model.half()(ids, use_cache=False).logits[0].float()
    return round(max(float((exact - rounded)[i].abs().max()) for i in (c["cut"] - 1, -1)), 5)


def main():
    torch.set_num_threads(2)
    oracles = Oracles(*sys.argv[1:3])
    forms, chosen = "--forms" in sys.argv[3:4], [n for n in sys.argv[3:] if n != "--forms"]
    all_names = [n for n, (c, _) in make_model.TINY.items()
                 if c.get("quantization_config", {}).get("quant_method", "mxfp4") != "mxfp4" and ("-form-" in n) == forms]
    names = chosen or all_names
    golden.NEW = 64
    if forms:
        golden.STRIDE = 23
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            config, kind = make_model.TINY[name]
            path = os.path.join(tmp, name)
            make_model.make(path, config, {"f32": "F32", "f16": "F16", "bf16": "BF16"}[kind], 1)
            state, done = dequantize(oracles, read_tensors(os.path.join(path, "model.safetensors")),
                                     config["quantization_config"])
            golden.hf_model = lambda path, context, state=state: model_of(path, state)
            c = golden.case(name, path, config["max_position_embeddings"], 40)
            if not forms:
                c["f16"] = error_in_f16(model_of(path, state), c)
            c["tensors"] = {b: zlib.crc32(state[b + ".weight"].numpy().tobytes()) for b in done}
            print(name, len(done), "layers, margin", min(c["margins"]), "spread", np.std(c["logits"]), c["greedy"][:12])
            if forms:
                c = {k: v for k, v in c.items() if k not in ("margins", "logits_cut", "cut")}
            cases.append(c)
    path = os.path.join(golden.HERE, "quant_forms.json" if forms else "quant.json")
    if chosen:      # in their places, the others as they are
        with open(path, encoding="utf-8") as f:
            kept = {c["name"]: c for c in json.load(f)} | {c["name"]: c for c in cases}
        cases = [kept[n] for n in all_names if n in kept]
    if cases:
        with open(path, "w", encoding="utf-8") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":") if forms else None) for c in cases) +
                    "\n]\n")


if __name__ == "__main__":
    main()
