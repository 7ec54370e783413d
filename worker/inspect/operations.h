/* operations.h - `quern-worker --operations`: the operations of a model's step, listed and not computed.
 * A table of operations (kern.h) that gives out addresses of no memory is handed to the model's own load and
 * forward pass: what a step calls, on what data, is what this lists.  Weights are known by the headers of
 * their files.  `quern inspect --graph` starts it and draws what it prints. */
#ifndef QUERN_WORKER_INSPECT_OPERATIONS_H
#define QUERN_WORKER_INSPECT_OPERATIONS_H

/* Prints a JSON object to stdout, or {"error": REASON}; returns the exit status:
 *
 *     {"architecture": "qwen3", "mode": "int16 by avx512vnni", "layers": 2, "operations": [OP, ...]}
 *     OP      {"op": "linear", "layer": 0, "about": "...", "in": [DATA], "out": [DATA], "weights": [WEIGHT]}
 *     DATA    {"from": 3, "name": "rows", "shape": ["T", 64], "type": "f32", "bytes": 256}
 *     WEIGHT  {"name": "model.layers.0.self_attn.q_proj", "shape": [64, 64], "type": "BF16", "bytes": 8192}
 *
 * layer: absent before and behind the layers.  from: the operation that has written it, in inputs.  Shapes
 * begin with T, the rows of a step, or L, its rows of logits; bytes are those of one.  Bytes of a weight are
 * the stored ones.  Of a tensor that holds several, "part" says which: q, k, v, gate or up.  Experts are one
 * weight: "model.layers.0.mlp.experts.*.up_proj" with their number as "count", and the bytes of all. */
int operations_print(const char *model);

#endif
