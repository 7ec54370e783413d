/* packed.h - the bytes that a model's weights take on a CPU worker.  Types may grow when they are loaded
 * (2-bit codes are stored in 4 bits) or change (floats in mode int8).  This file computes only the sizes of
 * what kernels/cpu/pack.c does; tests compare both. */
#ifndef QUERN_FORMATS_PLACE_PACKED_H
#define QUERN_FORMATS_PLACE_PACKED_H

#include "formats/config.h"
#include "formats/weights.h"

#include <stdbool.h>
#include <stdint.h>

enum packed_mode { PACKED_F32, PACKED_BF16, PACKED_INT16, PACKED_INT8, PACKED_MODES };

/* Parse "f32", "bf16", "int16", "int8"; anything else is PACKED_F32. */
enum packed_mode packed_mode(const char *compute);
const char *packed_mode_name(enum packed_mode m);

/* Type of the head's weights (--head-dtype); PACKED_HEAD_MODE: as the compute mode stores them. */
enum packed_head { PACKED_HEAD_MODE, PACKED_HEAD_STORED, PACKED_HEAD_INT8 };
/* Parse "stored", "int8"; anything else is PACKED_HEAD_MODE. */
enum packed_head packed_head(const char *name);

/* Return the bytes of linear layers that are packed together (q, k and v). */
int64_t packed_parts(const struct weights_linear *const *parts, int n, enum packed_mode m);
/* Return the bytes of a head that is not also the embedding table. */
int64_t packed_head_part(const struct weights_linear *l, enum packed_mode m, enum packed_head head);
/* Return the bytes of a layer's experts, without the shared expert and without the experts e with but[e]
 * (but: [n_experts] or NULL).  0: the layer is dense. */
int64_t packed_experts(const struct weights_layer *l, const bool *but, enum packed_mode m);
/* Bytes of an embedding table, which may also be the head.  rows: the copy from which rows are read; head:
 * the copy that computes the logits, 0 if the first copy serves. */
struct packed_table {
	int64_t rows, head;
};
struct packed_table packed_table(const struct weights *w, const struct model_config *c, enum packed_mode m,
				 enum packed_head head);
/* Return the bytes of all weights, with norms. */
int64_t packed_weights(const struct weights *w, const struct model_config *c, enum packed_mode m,
		       enum packed_head head);

#endif
