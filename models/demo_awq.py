"""demo_awq.py - INT4 weights as AWQ stores them (version "gemm").

A linear layer of K inputs and N outputs is three tensors:

    qweight  int32 [K, N/8]    eight 4-bit weights to a word
    qzeros   int32 [K/g, N/8]  eight 4-bit zero points to a word
    scales   fp16  [K/g, N]

    w[k][n] = scales[k/g][n] * (q[k][n] - z[k/g][n])

Column c of each eight is in nibble NIBBLE[c], nibble 0 being the least
significant.  All functions here take weights as torch.nn.Linear keeps them: [N, K].
"""
import torch

NIBBLE = (0, 4, 1, 5, 2, 6, 3, 7)


def grid(w, group):
    """Scales (rounded to fp16) and integer zero points, each [N, K/g, 1], that
    cover every group's smallest and largest weight, and zero."""
    n, k = w.shape
    w = w.view(n, k // group, group)
    low = w.amin(-1, keepdim=True).clamp(max=0)
    high = w.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 15).half().float().clamp(min=1e-6)
    return scale, (-low / scale).round().clamp(0, 15)


def quantize(w, group):
    """[N, K] to (q [N, K], zero [N, K/g], scale [N, K/g]), the first two uint8-like ints."""
    n, k = w.shape
    w = w.detach().float()
    scale, zero = grid(w, group)
    q = (w.view(n, -1, group) / scale + zero).round().clamp(0, 15)
    return q.view(n, k).int(), zero[..., 0].int(), scale[..., 0].half()


def fake_quantize(w, group):
    """The weight as INT4 will hold it; gradients pass straight through."""
    n, k = w.shape
    with torch.no_grad():
        scale, zero = grid(w, group)
        q = (w.view(n, -1, group) / scale + zero).round().clamp(0, 15)
        error = ((q - zero) * scale).view(n, k) - w
    return w + error


def pack(q):
    """[rows, N] of 0..15 to int32 [rows, N/8]."""
    q = q.to(torch.int64).view(q.shape[0], -1, 8)
    word = sum(q[..., c] << (4 * NIBBLE[c]) for c in range(8))
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)


def unpack(words):
    """int32 [rows, N/8] to [rows, N] of 0..15."""
    words = words.to(torch.int64) & 0xFFFFFFFF
    q = torch.stack([(words >> (4 * NIBBLE[c])) & 15 for c in range(8)], dim=-1)
    return q.view(words.shape[0], -1)


def tensors_of(name, w, group):
    """The three tensors of a linear layer, named as checkpoints name them."""
    q, zero, scale = quantize(w, group)
    return {f"{name}.qweight": pack(q.T.contiguous()),
            f"{name}.qzeros": pack(zero.T.contiguous()),
            f"{name}.scales": scale.T.contiguous()}


def dequantize(tensors, name, group):
    """The [N, K] float32 weight that the three tensors stand for."""
    q, zero = unpack(tensors[f"{name}.qweight"]), unpack(tensors[f"{name}.qzeros"])
    scale = tensors[f"{name}.scales"].float()
    zero, scale = (x.repeat_interleave(group, dim=0) for x in (zero, scale))
    return ((q - zero).float() * scale).T.contiguous()


def dequantize_checkpoint(tensors, group):
    """A whole checkpoint in float32, with plain `.weight` tensors."""
    out = {}
    for name, t in tensors.items():
        if name.endswith(".qweight"):
            base = name[:-len(".qweight")]
            out[base + ".weight"] = dequantize(tensors, base, group)
        elif not name.endswith((".qzeros", ".scales")):
            out[name] = t.float()
    return out
