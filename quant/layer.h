/* layer.h - a decoder layer as the quantizer sees it: its linear parts, in blocks that read the same rows,
 * and where the scales of each block's inputs go.
 *
 *     attn_norm -> q k v        ffn_norm -> gate up
 *     v (rows)  -> o            up (rows) -> down
 *
 * A row of v serves the query heads of its group (GQA), so their inputs of o have one scale.  A norm before a
 * router is left alone, since the router reads it too; so are layers without a norm before them (OLMo 2).
 * Blocks are listed such that one that scales the rows of another comes before it. */
#ifndef QUERN_QUANT_LAYER_H
#define QUERN_QUANT_LAYER_H

#include "formats/config.h"
#include "formats/weights.h"
#include "worker/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Error of a linear part, or of a row of the residual stream. */
struct layer_error {
	double signal, noise; /* mean squares */
	double cosine;
	double mean_abs; /* of the difference */
};
double layer_error_db(const struct layer_error *e); /* signal to noise; at most 200 */

/* Why a part is kept, or was not searched for. */
enum layer_reason {
	REASON_NONE,
	REASON_ASKED,
	REASON_GROUP,
	REASON_WORDS,
	REASON_WORST,
	REASON_SHAPE,
	REASON_FEW_ROWS,
	REASON_NO_ROWS,
	REASONS
};
const char *layer_reason_text(enum layer_reason r); /* "" for none */

struct layer_linear {
	const struct weights_linear *from; /* borrowed */
	char name[96];                     /* from->name: "model.layers.3.mlp.up_proj" */
	const char *part; /* which part of the tensor of that name, where several are one: "q"; else "" */
	int block;
	bool kept; /* not quantized */
	enum layer_reason reason;
	float *out_by; /* [n] each row of W is divided by; NULL: 1 */
	/* Results, owned.  kept: none of the three. */
	uint32_t *qweight, *qzeros;
	uint16_t *scales;
	struct layer_error weights, nearest, outputs; /* nearest: outputs by rounding to nearest */
};

enum layer_fold { FOLD_NONE, FOLD_NORM, FOLD_ROWS };

struct layer_block {
	int first, n;        /* of the linear parts */
	int k;               /* inputs */
	enum model_point at; /* what is read */
	int expert;          /* -1: none */
	enum layer_fold fold;
	const struct weights_vec *norm; /* FOLD_NORM */
	int rows_of;                    /* FOLD_ROWS: the linear part */
	int *tie;                       /* [k] row of it; owned; NULL: as they are */
	float *in_by; /* [k] inputs are divided by, columns of W multiplied; owned; NULL: 1 */
	int n_rows;   /* that calibration saw */
};

struct layer_plan {
	const struct model_config *c; /* borrowed */
	const struct weights_layer *w;
	int index;
	int group;
	struct layer_linear *linears; /* owned, as are the blocks */
	int n_linears;
	struct layer_block *blocks;
	int n_blocks;
};

/* keep: patterns of names, matched anywhere, '*' and '?' as in file names; a part that a pattern names, or of
 * which the inputs are not whole groups or the outputs not whole words, is kept. */
void layer_plan_init(struct layer_plan *p, const struct model_config *c, const struct weights_layer *w,
		     int index, int group, char *const *keep, size_t n_keep);
void layer_plan_fini(struct layer_plan *p);
/* Keeps the parts of this name: several that are stored as one tensor (Phi-3) are kept together. */
void layer_plan_keep(struct layer_plan *p, const char *name, enum layer_reason reason);

/* A stored linear layer of any kind as floats: out [n, k]. */
void layer_floats(const struct weights_linear *l, float *out);

/* Rounds to what the type holds. */
float layer_round(enum config_dtype t, float x);

#endif
