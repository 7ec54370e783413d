/* inspect.h - `quern-worker --inspect`: the capabilities of a kind of device, and the kernels it would use.
 * `quern inspect cpu|gpu` starts it and reads its output. */
#ifndef QUERN_WORKER_INSPECT_INSPECT_H
#define QUERN_WORKER_INSPECT_INSPECT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Print a JSON array with one object per device to stdout, or {"error": REASON} if none opens; return the
 * exit status.  kind: "cpu" (the whole machine) or "gpu" (every GPU that opens); probe: for a CPU, also
 * measure bandwidth and peaks, in about a second. */
int inspect_devices(const char *kind, bool probe);

/* True if this device opens, with the smallest sizes; if not, why has the reason. */
bool inspect_opens(const char *device, struct why *why);

/* `quern-worker --operations`: list the operations of a model's step without computing them.  The model's
 * own load and forward pass run on a table of operations (kern.h) that returns addresses without memory and
 * lists each call with its data.  Of weights only the files' headers are read.  `quern inspect --graph`
 * starts it and draws its output.  Prints a JSON object to stdout, or {"error": REASON}; returns the exit
 * status:
 *
 *     {"architecture": "qwen3", "mode": "int16 by avx512vnni", "layers": 2, "operations": [OP, ...],
 *      "rotations": {"full": ROTATION, "local": ROTATION}}
 *     OP      {"op": "linear", "layer": 0, "about": "...", "in": [DATA], "out": [DATA], "weights": [WEIGHT],
 *              "attributes": {"eps": 1e-6, ...}}
 *     DATA    {"from": 3, "name": "rows", "shape": ["T", 64], "type": "f32", "bytes": 256}
 *     WEIGHT  {"name": "model.layers.0.self_attn.q_proj", "shape": [64, 64], "type": "BF16", "bytes": 8192,
 *              "tensor": "model.layers.0.self_attn.q_proj.weight", "row": 0, "plus": 0, "bias": "..."}
 *     ROTATION {"angles": [1.0, 0.1, ...], "length": 1.0}: of the pairs of a head, from one position to the
 *              next, and the factor of the rotated values (YaRN's attention factor)
 *
 * attributes: the arguments of the operation in kernels/kern.h that are no data.  tensor: where the weight is
 * stored, from `row` of its rows on (absent: 0; row_step: rows from one expert to the next), with `plus`
 * added to each value (absent: 0).  There is no tensor for weights that the load rearranges.
 * layer: absent before and after the layers.  from: in inputs, the operation that wrote the data.  Shapes
 * begin with T, the rows of a step, or L, its rows of logits; bytes are those of one row.  Bytes of a
 * weight are its size in the files.  For a tensor that contains several weights, "part" names the weight:
 * q, k, v, gate or up.  The experts of a layer are one weight, "model.layers.0.mlp.experts.*.up_proj", with
 * their number as "count" and the bytes of all. */
int operations_print(const char *model);

#endif
