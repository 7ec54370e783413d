/* shard.h - the shard of a decoder that one rank of a tensor-parallel group computes.
 *
 *   q, k, v, gate, up    by outputs: heads, KV heads, intermediate values (of each expert)
 *   o, down              by the inputs that match; the ranks' partial rows are then added
 *   routers              whole: every rank routes every row
 *   embedding, head      by vocabulary
 *   norms                whole
 *
 * KV heads are split with the query heads; with more ranks than KV heads, several ranks hold the same KV
 * head.  The vocabulary need not divide evenly; everything else must.  AWQ is cut between packed words (8
 * outputs) and between quantization groups, codes between (super-)groups. */
#ifndef QUERN_FORMATS_SHARD_H
#define QUERN_FORMATS_SHARD_H

#include "base/err.h"
#include "formats/config.h"
#include "formats/weights.h"

#include <stddef.h>
#include <stdint.h>

enum { SHARD_RANKS_MAX = 64 };

/* Identifies a rank in its group. */
struct shard_rank {
	int rank, n_ranks; /* n_ranks 1: no sharding */
	bool ep;           /* expert parallelism: expert e is on rank e % n_ranks; else
			    * each rank has a slice of every expert */
};

struct shard {
	int rank, n_ranks;
	bool ep;
	int vocab[SHARD_RANKS_MAX + 1]; /* rank r has tokens vocab[r] to vocab[r + 1] - 1 */
	int widths[SHARD_RANKS_MAX];    /* vocab[r + 1] - vocab[r] */
};

/* -EINVAL: why has the dimension that cannot be divided by n_ranks, its size and the possible numbers of
 * ranks, or why expert parallelism is impossible. */
int shard_init(struct shard *s, const struct model_config *c, const struct weights *w,
	       struct shard_rank which, struct why *why);

/* Return the plan of the rank's shard of a layer. */
struct config_layer shard_layer(const struct shard *s, const struct config_layer *whole);
/* Make the configuration of the rank's shard: its plans, and the sizes of its experts. */
void shard_config(const struct shard *s, const struct model_config *whole, struct model_config *part);

/* Outputs n0 .. n0 + n - 1 and inputs k0 .. k0 + k - 1 of a linear layer. */
struct shard_cut {
	int n0, n, k0, k;
};
enum shard_of { SHARD_Q, SHARD_KV, SHARD_O, SHARD_FFN, SHARD_DOWN, SHARD_HEAD, SHARD_WHOLE };
/* Return the rank's cut of l.  plan: from shard_layer(); only SHARD_Q, SHARD_KV and SHARD_O read it. */
struct shard_cut shard_cut(const struct shard *s, const struct config_layer *plan, enum shard_of of,
			   const struct weights_linear *l);

/* Return whether the rank has (a slice of) expert e.  shard_of_gateup(), shard_of_down(): how the linear
 * layers of an expert are cut. */
bool shard_has_expert(const struct shard *s, int e);
int shard_n_experts(const struct shard *s, int n_experts); /* on this rank */
enum shard_of shard_of_gateup(const struct shard *s);
enum shard_of shard_of_down(const struct shard *s);

/* Make a layer of its own from the cut.  Slices that are not contiguous in the file are copied to *copy,
 * which the caller frees after use (NULL: none).  Other slices point into the file; codes refer to *whole.
 * If a layer is cut by inputs, only rank 0 has its bias, so that the bias is added once. */
void shard_linear(const struct shard *s, const struct weights_linear *whole, struct shard_cut cut,
		  struct weights_linear *out, void **copy);

/* Return the bytes of a layer, or of its cut, in the files; without its bias, and approximate for AWQ. */
int64_t shard_linear_bytes(const struct weights_linear *l);
/* Return the bytes of a layer's experts in the files, without the shared expert and without the experts e
 * with but[e] (but: [n_experts] or NULL).  0: the layer is dense. */
int64_t shard_experts_bytes(const struct weights_layer *l, const bool *but);

/* Return this rank's rows of a float embedding; for an embedding in codes, only their number. */
struct weights_vec shard_embed(const struct shard *s, const struct model_config *c, const struct weights *w);

/* Return the bytes of the tensors that this rank reads. */
int64_t shard_bytes(const struct shard *s, const struct model_config *c, const struct weights *w);

#endif
