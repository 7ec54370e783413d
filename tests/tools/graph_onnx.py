#!/usr/bin/env python3
"""graph_onnx.py - build an ONNX model from a graph that quern lists, and from the weights in the model's files.

    quern inspect MODEL --graph step.json
    graph_onnx.py step.json MODEL N out.onnx      # for prompts of N tokens

The input is `tokens` int64 [N], the output `logits` float32 [N, vocabulary].  Every operation is written with ONNX's own
operators (opset 21) from the list alone: its inputs, attributes and tensors.  So if another engine computes the same
logits from it, the list is what quern computes.  AWQ weights become DequantizeLinear.
"""
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]    # column at each nibble of a word, from the lowest
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I32": np.int32}


class Weights:
    """The tensors of a directory of safetensors files, read when they are asked for."""

    def __init__(self, folder):
        self.at = {}
        for path in sorted(Path(folder).glob("*.safetensors")):
            with open(path, "rb") as f:
                n = struct.unpack("<Q", f.read(8))[0]
                for name, t in json.loads(f.read(n)).items():
                    if name != "__metadata__":
                        self.at[name] = (path, 8 + n + t["data_offsets"][0], t)

    def stored(self, name):
        path, start, t = self.at[name]
        count = math.prod(t["shape"])
        return np.fromfile(path, TYPES[t["dtype"]], count, offset=start).reshape(t["shape"]), t["dtype"]

    def floats(self, name):
        values, dtype = self.stored(name)
        if dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


class Graph:
    """The ONNX model under construction; calls return the name of what they compute."""

    def __init__(self, listed, weights, n):
        self.listed, self.weights, self.n = listed, weights, n
        self.nodes, self.constants, self.known = [], [], {}
        self.of = {}    # (operation, name of data): ONNX's name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, [self.name(x) for x in inputs], names, **attributes))
        return names[0] if outputs == 1 else names

    def name(self, x):
        """Return the name of a value; a number or an array becomes a constant."""
        if isinstance(x, str):
            return x
        x = np.asarray(x)
        x = x.astype(np.float32) if x.dtype == np.float64 else x
        key = (x.dtype.str, x.shape, x.tobytes())
        if key not in self.known:
            self.known[key] = f"constant_{len(self.known)}"
            self.constants.append(numpy_helper.from_array(x, self.known[key]))
        return self.known[key]

    def ints(self, *values):
        return np.array(values, np.int64)

    def sigmoid(self, x):
        return self.op("Sigmoid", x)

    # ---- weights ----

    def vector(self, op, name):
        """Return the vector of an operation that has this use, or None."""
        for w in op["weights"]:
            if w["name"] == name:
                count = math.prod(w["shape"])
                return self.weights.floats(w["tensor"]).reshape(-1)[:count] + np.float32(w.get("plus", 0))
        return None

    def matrix(self, w, expert=None):
        """Return W^T [inputs, outputs] of a linear layer."""
        tensor, (n, k) = w["tensor"], w["shape"]
        if expert is not None:
            tensor = tensor.replace("*", str(expert))
        if w["type"].startswith("AWQ"):
            return self.awq(tensor.removesuffix(".qweight"), int(w["type"].split("g")[-1]))
        whole = self.weights.floats(tensor)
        row = w.get("row", 0) + w.get("row_step", 0) * (expert or 0)
        return self.name(np.ascontiguousarray(whole.reshape(-1, k)[row:row + n].T))

    def awq(self, module, group):
        def columns(name):
            words = self.weights.stored(f"{module}.{name}")[0].view(np.uint32)
            nibbles = np.stack([(words >> 4 * AWQ_ORDER.index(c)) & 15 for c in range(8)], axis=-1)
            return nibbles.reshape(words.shape[0], -1).astype(np.uint8)
        codes, zeros, scales = columns("qweight"), columns("qzeros"), self.weights.floats(f"{module}.scales")
        return self.op("DequantizeLinear", codes, scales, zeros, axis=0, block_size=min(group, codes.shape[0]))

    def linear(self, op, x, parts=None):
        """Return x W^T + bias of each part."""
        out = []
        for w in parts or op["weights"]:
            y = self.op("MatMul", x, self.matrix(w))
            out.append(self.op("Add", y, self.weights.floats(w["bias"])) if "bias" in w else y)
        return out

    # ---- norms and activations ----

    def rms(self, x, eps, weight=None):
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.ints(-1), keepdims=1)
        y = self.op("Div", x, self.op("Sqrt", self.op("Add", mean, np.float32(eps))))
        return y if weight is None else self.op("Mul", y, weight)

    def layer_norm(self, x, eps, weight=None, bias=None):
        x = self.op("Sub", x, self.op("ReduceMean", x, self.ints(-1), keepdims=1))
        y = self.rms(x, eps, weight)
        return y if bias is None else self.op("Add", y, bias)

    def activation(self, kind, x, arguments=()):
        if kind == "silu":
            return self.op("Mul", x, self.sigmoid(x))
        if kind == "gelu by sigmoid":
            return self.op("Mul", x, self.sigmoid(self.op("Mul", x, np.float32(1.702))))
        if kind.startswith("gelu"):
            return self.op("Gelu", x, approximate="tanh" if "tanh" in kind else "none")
        if kind == "relu":
            return self.op("Relu", x)
        if kind == "relu squared":
            y = self.op("Relu", x)
            return self.op("Mul", y, y)
        alpha_p, alpha_n, beta, eps = (np.float32(a) for a in arguments)    # xIELU
        above = self.op("Mul", self.op("Mul", x, x), alpha_p)
        below = self.op("Sub", self.op("Sub", self.op("Exp", self.op("Min", x, eps)), np.float32(1)), x)
        y = self.op("Where", self.op("Greater", x, np.float32(0)), above, self.op("Mul", below, alpha_n))
        return self.op("Add", y, self.op("Mul", x, beta))

    def gated(self, gate, up, a):
        if a["limit"]:
            gate = self.op("Min", gate, np.float32(a["limit"]))
            up = self.op("Clip", up, np.float32(-a["limit"]), np.float32(a["limit"]))
        if a["up_plus"]:
            up = self.op("Add", up, np.float32(a["up_plus"]))
        return self.op("Mul", self.activation(a["activation"], gate), up)

    # ---- operations: each returns {name of data: ONNX's name} ----

    def embed(self, op, _):
        w = op["weights"][0]
        return {"residual": self.op("Gather", self.name(self.weights.floats(w["tensor"])), "tokens")}

    def positions(self, op, ins):
        table = self.weights.floats(op["weights"][0]["tensor"])
        row = op["weights"][0].get("row", 0)
        return {"residual": self.op("Add", ins[-1], table[row:row + self.n])}

    def rmsnorm(self, op, ins):
        x = self.op("Add", ins[0], ins[1]) if len(ins) > 1 else ins[0]
        weight = self.vector(op, "norm")
        y = x if weight is None and op["op"] == "rmsnorm" else self.rms(x, op["attributes"]["eps"], weight)
        return {"residual": x, "normed": y}

    rmsnorm_f32 = rmsnorm

    def layernorm(self, op, ins):
        x = self.op("Add", ins[0], ins[1]) if len(ins) > 1 else ins[0]
        y = self.layer_norm(x, op["attributes"]["eps"], self.vector(op, "norm"), self.vector(op, "norm bias"))
        return {"residual": x, "normed": y}

    def map(self, op, ins):
        a = op["attributes"]
        if "times" in a:
            return {op["out"][0]["name"]: self.op("Mul", ins[0], np.float32(a["times"]))}
        cap = np.float32(a["cap"])
        return {op["out"][0]["name"]: self.op("Mul", self.op("Tanh", self.op("Div", ins[0], cap)), cap)}

    def add_rows(self, op, ins):
        y = self.op("Mul", ins[1], ins[2]) if len(ins) > 2 else ins[1]
        return {"sum": self.op("Add", ins[0], y)}

    def activate(self, op, ins):
        a = op["attributes"]
        return {"rows": self.activation(a["activation"], ins[0], a.get("arguments", ()))}

    def linear_op(self, op, ins):
        parts = self.linear(op, ins[0])
        y = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=-1)
        return {op["out"][0]["name"]: y}

    def gateup_swiglu(self, op, ins):
        gate, up = self.linear(op, ins[0])
        return {"rows": self.gated(gate, up, op["attributes"])}

    def split_qkv(self, x, heads, kv_heads, dim):
        return self.op("Split", x, self.ints(heads * dim, kv_heads * dim, kv_heads * dim), outputs=3, axis=-1)

    def qkv_squares(self, op, ins):
        return {"squares": ins[0]}      # qkv norms the whole rows itself

    def rotate(self, x, heads, dim, a):
        """Rotate the first rope_dim values of each head [N, heads, dim] by their position."""
        r = self.listed["rotations"][a["rotation"]]
        angles = np.outer(np.arange(self.n), np.array(r["angles"]))[:, None, :]
        cos, sin = (np.float32(f(angles) * r["length"]) for f in (np.cos, np.sin))
        d = a["rope_dim"]
        turned, rest = self.op("Split", x, self.ints(d, dim - d), outputs=2, axis=-1) if d < dim else (x, None)
        if a["rope_pairs"]:
            turned = self.op("Reshape", turned, self.ints(self.n, heads, d // 2, 2))
            turned = self.op("Transpose", turned, perm=[0, 1, 3, 2])
            turned = self.op("Reshape", turned, self.ints(self.n, heads, d))
        one, two = self.op("Split", turned, self.ints(d // 2, d // 2), outputs=2, axis=-1)
        first = self.op("Sub", self.op("Mul", one, cos), self.op("Mul", two, sin))
        second = self.op("Add", self.op("Mul", two, cos), self.op("Mul", one, sin))
        # The order of values within a head is the same for q and k, so pairs may stay apart.
        return self.op("Concat", first, second, *([rest] if rest else []), axis=-1)

    def qkv(self, op, ins):
        a = op["attributes"]
        dim, out = a["head_dim"], []
        q, k, v = self.split_qkv(ins[0], a["heads"], a["kv_heads"], dim)
        for x, heads, which in ((q, a["heads"], "q"), (k, a["kv_heads"], "k")):
            weight, bias = self.vector(op, which + "_norm"), None
            shape = self.ints(self.n, heads, dim)

            def norm(x):
                if weight is None:
                    return x
                if len(ins) > 1:    # one norm over all heads
                    flat = self.op("Reshape", x, self.ints(self.n, heads * dim))
                    return self.op("Reshape", self.rms(flat, a["eps"], weight), shape)
                each = weight.reshape(-1, dim) if weight.size == heads * dim else weight
                return self.layer_norm(x, a["eps"], each, bias) if a["norm"] == "layer" else self.rms(x, a["eps"], each)

            x = self.op("Reshape", x, shape)
            x = x if a["norm_after"] else norm(x)
            x = self.op("Clip", x, np.float32(-a["clip"]), np.float32(a["clip"])) if a["clip"] else x
            x = self.rotate(x, heads, dim, a) if a["rope_dim"] else x
            x = norm(x) if a["norm_after"] else x
            if which == "q" and a["q_beta"]:
                by = 1 + a["q_beta"] * np.log(1 + np.arange(self.n) // a["q_floor"])
                x = self.op("Mul", x, np.float32(by)[:, None, None])
            out.append(x)
        v = self.op("Clip", v, np.float32(-a["clip"]), np.float32(a["clip"])) if a["clip"] else v
        v = self.op("Reshape", v, self.ints(self.n, a["kv_heads"], dim))
        return {"q": out[0], "K, V": (out[1], v)}

    def attention(self, op, ins):
        a = op["attributes"]
        q, (k, v) = ins
        shared = np.repeat(np.arange(a["kv_heads"]), a["heads"] // a["kv_heads"])
        q, k, v = (self.op("Transpose", x, perm=[1, 0, 2]) for x in (q, k, v))
        k, v = (self.op("Gather", x, shared, axis=0) for x in (k, v))
        scores = self.op("Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 2, 1])), np.float32(a["scale"]))
        if a["cap"]:
            cap = np.float32(a["cap"])
            scores = self.op("Mul", self.op("Tanh", self.op("Div", scores, cap)), cap)
        back = np.arange(self.n)[:, None] - np.arange(self.n)
        seen = (back >= 0) & (back < (a["window"] or self.n))
        scores = self.op("Add", scores, np.where(seen, np.float32(0), np.float32(-1e30)))
        sinks = self.vector(op, "sinks")
        if sinks is not None:
            column = np.repeat(sinks.reshape(-1, 1, 1), self.n, axis=1)
            shares = self.op("Softmax", self.op("Concat", scores, column, axis=-1), axis=-1)
            shares = self.op("Slice", shares, self.ints(0), self.ints(self.n), self.ints(2))
        else:
            shares = self.op("Softmax", scores, axis=-1)
        rows = self.op("Transpose", self.op("MatMul", shares, v), perm=[1, 0, 2])
        return {"rows": self.op("Reshape", rows, self.ints(self.n, a["heads"] * a["head_dim"]))}

    def route(self, op, ins):
        a = op["attributes"]
        router = [w for w in op["weights"] if len(w["shape"]) == 2]
        norm, bias = self.vector(op, "norm"), self.vector(op, "choice_bias")
        x = ins[0] if norm is None else self.rms(ins[0], a["eps"], norm)
        z, *shared = self.linear(op, x, router)
        if a["score"] not in ("sigmoid", "softmax"):
            raise ValueError(f"a router's score {a['score']} has no operator here")
        scores = self.sigmoid(z) if a["score"] == "sigmoid" else self.op("Softmax", z, axis=-1)
        choice = scores if bias is None else self.op("Add", scores, bias)
        if a["groups"]:
            each = self.op("Reshape", choice, self.ints(self.n, a["groups"], -1))
            best = self.op("ReduceSum", self.op("TopK", each, self.ints(2), outputs=2)[0], self.ints(-1), keepdims=0)
            least = self.op("ReduceMin", self.op("TopK", best, self.ints(a["groups_chosen"]), outputs=2)[0],
                            self.ints(-1), keepdims=1)
            open_ = self.op("Unsqueeze", self.op("GreaterOrEqual", best, least), self.ints(-1))
            choice = self.op("Reshape", self.op("Where", open_, each, np.float32(-1e30)), self.ints(self.n, -1))
        experts = self.op("TopK", choice, self.ints(a["chosen"]), outputs=2)[1]
        weights = self.op("GatherElements", scores, experts, axis=-1)
        if a["normalize"]:
            weights = self.op("Div", weights, self.op("ReduceSum", weights, self.ints(-1), keepdims=1))
        out = {"experts": experts, "weights": self.op("Mul", weights, np.float32(a["scale"]))}
        if shared:
            out["shared weight"] = self.sigmoid(shared[0])
        return out

    def moe(self, op, ins):
        x, experts, weights, *begin = ins
        gate, up, down = op["weights"]
        total = None
        if begin:
            total = self.op("Mul", *begin) if len(begin) > 1 else begin[0]
        for e in range(gate["count"]):
            mine = self.op("Where", self.op("Equal", experts, self.ints(e)), weights, np.float32(0))
            by = self.op("ReduceSum", mine, self.ints(-1), keepdims=1)
            parts = [self.op("MatMul", x, self.matrix(w, e)) for w in (gate, up)]
            y = self.op("MatMul", self.gated(*parts, op["attributes"]), self.matrix(down, e))
            y = self.op("Mul", y, by)
            total = y if total is None else self.op("Add", total, y)
        return {"rows": total}

    def gather(self, op, ins):
        return {"rows": ins[0]}     # all rows are wanted

    def build(self):
        for i, op in enumerate(self.listed["operations"]):
            ins = [self.of[d["from"], d["name"]] for d in op["in"]]
            run = self.linear_op if op["op"] == "linear" else getattr(self, op["op"])
            for name, value in run(op, ins).items():
                self.of[i, name] = value
        self.nodes.append(helper.make_node("Identity", [self.of[i, op["out"][0]["name"]]], ["logits"]))
        graph = helper.make_graph(
            self.nodes, "step", [helper.make_tensor_value_info("tokens", TensorProto.INT64, [self.n])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [self.n, None])], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def build(listed, folder, n):
    """Build the ONNX model for prompts of n tokens."""
    return Graph(listed, Weights(folder), n).build()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        onnx.save(build(json.load(f), sys.argv[2], int(sys.argv[3])), sys.argv[4])
