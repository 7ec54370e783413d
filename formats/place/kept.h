/* kept.h - the bytes of a model's weights as a worker on a CPU holds them.  Types grow when they are loaded
 * (codes of 2 bits lie in 4) or become another (floats in mode int8): what kernels/cpu/pack.c does, of which
 * only sizes are here.  Tests compare both. */
#ifndef QUERN_FORMATS_PLACE_KEPT_H
#define QUERN_FORMATS_PLACE_KEPT_H

#include "formats/config.h"
#include "formats/weights.h"

#include <stdbool.h>
#include <stdint.h>

enum kept_mode { KEPT_F32, KEPT_BF16, KEPT_INT16, KEPT_INT8, KEPT_MODES };

/* "f32", "bf16", "int16", "int8"; KEPT_F32 if it is none of them. */
enum kept_mode kept_mode(const char *compute);
const char *kept_mode_name(enum kept_mode m);

/* Of the weights that give the logits (--head-dtype); KEPT_HEAD_MODE: as the compute mode has them. */
enum kept_head { KEPT_HEAD_MODE, KEPT_HEAD_STORED, KEPT_HEAD_INT8 };
/* "stored", "int8"; KEPT_HEAD_MODE if it is none of them. */
enum kept_head kept_head(const char *name);

/* Parts of one layer, side by side (q, k and v). */
int64_t kept_parts(const struct weights_linear *const *parts, int n, enum kept_mode m);
/* A head that is no table of rows. */
int64_t kept_head_part(const struct weights_linear *l, enum kept_mode m, enum kept_head head);
/* As kept_parts(), of an expert's. */
int64_t kept_expert(const struct weights_linear *l, enum kept_mode m);
/* Of all experts of a layer, but one that all rows have, and those of but[n_experts], or NULL; 0: it is
 * dense. */
int64_t kept_experts(const struct weights_layer *l, const bool *but, enum kept_mode m);
/* Of a table that is the head too (or not): the copy that its rows are read from, and the one that computes,
 * 0 where one serves as both. */
struct kept_table {
	int64_t rows, head;
};
struct kept_table kept_table(const struct weights *w, const struct model_config *c, enum kept_mode m,
			     enum kept_head head);
/* All of it, with norms. */
int64_t kept_weights(const struct weights *w, const struct model_config *c, enum kept_mode m,
		     enum kept_head head);

#endif
