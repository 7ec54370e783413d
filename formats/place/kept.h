/* kept.h - the bytes that a model's weights take on a CPU worker.  Types may grow when they are loaded
 * (2-bit codes are stored in 4 bits) or change (floats in mode int8).  This file computes only the sizes of
 * what kernels/cpu/pack.c does; tests compare both. */
#ifndef QUERN_FORMATS_PLACE_KEPT_H
#define QUERN_FORMATS_PLACE_KEPT_H

#include "formats/config.h"
#include "formats/weights.h"

#include <stdbool.h>
#include <stdint.h>

enum kept_mode { KEPT_F32, KEPT_BF16, KEPT_INT16, KEPT_INT8, KEPT_MODES };

/* Parse "f32", "bf16", "int16", "int8"; anything else is KEPT_F32. */
enum kept_mode kept_mode(const char *compute);
const char *kept_mode_name(enum kept_mode m);

/* Type of the head's weights (--head-dtype); KEPT_HEAD_MODE: as the compute mode stores them. */
enum kept_head { KEPT_HEAD_MODE, KEPT_HEAD_STORED, KEPT_HEAD_INT8 };
/* Parse "stored", "int8"; anything else is KEPT_HEAD_MODE. */
enum kept_head kept_head(const char *name);

/* Return the bytes of linear layers that are packed together (q, k and v). */
int64_t kept_parts(const struct weights_linear *const *parts, int n, enum kept_mode m);
/* Return the bytes of a head that is not also the embedding table. */
int64_t kept_head_part(const struct weights_linear *l, enum kept_mode m, enum kept_head head);
/* Return the bytes of a layer's experts, without the shared expert and without the experts e with but[e]
 * (but: [n_experts] or NULL).  0: the layer is dense. */
int64_t kept_experts(const struct weights_layer *l, const bool *but, enum kept_mode m);
/* Bytes of an embedding table, which may also be the head.  rows: the copy from which rows are read; head:
 * the copy that computes the logits, 0 if the first copy serves. */
struct kept_table {
	int64_t rows, head;
};
struct kept_table kept_table(const struct weights *w, const struct model_config *c, enum kept_mode m,
			     enum kept_head head);
/* Return the bytes of all weights, with norms. */
int64_t kept_weights(const struct weights *w, const struct model_config *c, enum kept_mode m,
		     enum kept_head head);

#endif
