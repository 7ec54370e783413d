/* layer.h - a decoder layer for the quantizer: its linear parts (q, k, v, o, gate, up, down), in blocks with
 * the same input, and the operation into which each block's input scales are folded.
 *
 *     attn_norm -> q k v        ffn_norm -> gate up
 *     v (rows)  -> o            up (rows) -> down
 *
 * A row of v serves the query heads of its group (GQA), so these heads' inputs of o share a scale.  A norm
 * before a router stays unchanged because the router reads it too.  Layers without a norm before them (OLMo
 * 2) are not scaled.  A block that scales the rows of another block is listed before it. */
#ifndef QUERN_QUANT_LAYER_H
#define QUERN_QUANT_LAYER_H

#include "formats/config.h"
#include "formats/weights.h"
#include "worker/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Error of a linear part's weights or outputs, or of the residual stream. */
struct layer_error {
	double signal, noise; /* mean squares */
	double cosine;
	double mean_abs; /* mean absolute difference */
};
double layer_error_db(const struct layer_error *e); /* signal-to-noise ratio in dB; at most 200 */

/* Reason for keeping a part in floats, or for not searching scales. */
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
	const char *part; /* name of this part if several parts share one tensor: "q"; else "" */
	int block;
	bool kept; /* not quantized */
	enum layer_reason reason;
	float *out_by; /* [n] divisors of the rows of W; NULL: 1 */
	/* Results, owned; all three NULL if kept. */
	uint32_t *qweight, *qzeros;
	uint16_t *scales;
	struct layer_error weights, nearest, outputs; /* nearest: error of outputs with rounding to nearest */
};

enum layer_fold { FOLD_NONE, FOLD_NORM, FOLD_ROWS };

struct layer_block {
	int first, n;        /* range in `linears` */
	int k;               /* inputs */
	enum model_point at; /* point of the model where the input is read */
	int expert;          /* -1: none */
	enum layer_fold fold;
	const struct weights_vec *norm; /* for FOLD_NORM */
	int rows_of;                    /* for FOLD_ROWS: index of the linear part with the scaled rows */
	int *tie;                       /* [k] row of rows_of for each input; owned; NULL: input i, row i */
	float *in_by; /* [k] divisors of the inputs, factors of W's columns; owned; NULL: 1 */
	int n_rows;   /* rows seen in calibration */
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

/* Plan a layer.  keep: patterns that may match anywhere in a name, with '*' and '?' as in file names.  A part
 * is kept if a pattern matches, if its inputs are not whole groups or its outputs not whole words. */
void layer_plan_init(struct layer_plan *p, const struct model_config *c, const struct weights_layer *w,
		     int index, int group, char *const *keep, size_t n_keep);
void layer_plan_fini(struct layer_plan *p);
/* Keep all parts of this name: parts stored as one tensor (Phi-3) are kept together. */
void layer_plan_keep(struct layer_plan *p, const char *name, enum layer_reason reason);

/* Convert a stored linear layer of any kind to floats: out [n, k]. */
void layer_floats(const struct weights_linear *l, float *out);

/* Round x to the nearest value of the type. */
float layer_round(enum config_dtype t, float x);

#endif
