/* shard.h - the part of a decoder that one rank of a tensor-parallel group computes.
 *
 *   q, k, v, gate, up    by outputs: heads, KV heads, intermediate values (of each expert)
 *   o, down              by inputs, likewise; the ranks' partial rows are then added
 *   routers              whole: every rank routes every row
 *   embedding, head      by vocabulary
 *   norms                whole
 *
 * KV heads are split with the query heads; with more ranks than KV heads, several ranks hold the same
 * one.  The vocabulary need not divide evenly, everything else must.  AWQ is cut between packed words
 * (8 outputs) and between quantization groups, codes between (super-)groups. */
#ifndef QUERN_FORMATS_SHARD_H
#define QUERN_FORMATS_SHARD_H

#include "formats/config.h"
#include "formats/weights.h"

#include <stddef.h>
#include <stdint.h>

enum { SHARD_RANKS_MAX = 64 };

/* One of a group of ranks. */
struct shard_rank {
	int rank, n_ranks; /* n_ranks 1: everything */
	bool ep;           /* experts are dealt out whole: e is rank e % n_ranks's; else each rank has a
			      part of all */
};

struct shard {
	int rank, n_ranks;
	bool ep;
	int head0, n_heads; /* query heads of this rank */
	int kv_head0, n_kv_heads;
	int vocab[SHARD_RANKS_MAX + 1]; /* rank r has tokens vocab[r] to vocab[r + 1] - 1 */
	int widths[SHARD_RANKS_MAX];    /* vocab[r + 1] - vocab[r] */
};

/* -EINVAL: why has the dimension that cannot be cut into n_ranks, its size, and the numbers of ranks that are
 * possible; or why experts cannot be dealt out. */
int shard_init(struct shard *s, const struct model_config *c, const struct weights *w,
	       struct shard_rank which, char *why, size_t why_n);

/* Outputs n0 .. n0 + n - 1 and inputs k0 .. k0 + k - 1 of a linear layer. */
struct shard_cut {
	int n0, n, k0, k;
};
enum shard_of { SHARD_Q, SHARD_KV, SHARD_O, SHARD_FFN, SHARD_DOWN, SHARD_HEAD, SHARD_WHOLE };
/* l: the layer, read of SHARD_FFN and SHARD_DOWN, which are cut evenly, and of SHARD_WHOLE; else it may be
 * NULL. */
struct shard_cut shard_cut(const struct shard *s, const struct model_config *c, enum shard_of of,
			   const struct weights_linear *l);

/* Whether the rank has (a part of) expert e, and how the layers of an expert are cut: gate and up, down. */
bool shard_has_expert(const struct shard *s, int e);
int shard_n_experts(const struct shard *s, int n_experts); /* that it has */
enum shard_of shard_of_gateup(const struct shard *s);
enum shard_of shard_of_down(const struct shard *s);

/* The cut as a layer of its own.  Parts that are not contiguous in the file are copied to *copy, which the
 * caller frees after use (NULL: none); the others point into the file, those of codes at *whole.  Of a layer
 * that is cut by inputs only rank 0 has the bias, so that it is added once. */
void shard_linear(const struct shard *s, const struct weights_linear *whole, struct shard_cut cut,
		  struct weights_linear *out, void **copy);

/* Bytes of a layer, or of a part of it, in the files: without its bias, and nearly so for AWQ. */
int64_t shard_linear_bytes(const struct weights_linear *l);
/* Likewise of all experts of a layer, but one that all rows have, and those of but[n_experts], or NULL; 0: it
 * is dense. */
int64_t shard_experts_bytes(const struct weights_layer *l, const bool *but);

/* This rank's rows of an embedding in floats; of one in codes their number. */
struct weights_vec shard_embed(const struct shard *s, const struct model_config *c, const struct weights *w);

/* Bytes of the tensors that this rank reads. */
int64_t shard_bytes(const struct shard *s, const struct model_config *c, const struct weights *w);

#endif
