/* model.h - one decoder, as its configuration describes it: weights on a device, scratch for a step, and
 * the forward pass over the device's table of operations.  Knows nothing of sequences, plans or the device's
 * kind.  Allocates only while it loads.
 *
 * One rank of a tensor-parallel group holds a shard of the weights (formats/shard.h) and computes partial
 * rows.  Rows are summed over the ranks after the embedding, and after o and down of every layer; rank 0
 * gathers the logits.  A rank holds a shard of every expert or, if shard.ep, some experts whole; their
 * output is its partial row.
 *
 * Every row of a step is computed from that row alone (kern.h), so the same tokens give the same bits
 * whatever else is in the batch. */
#ifndef QUERN_WORKER_MODEL_H
#define QUERN_WORKER_MODEL_H

#include "base/err.h"
#include "formats/config.h"
#include "formats/shard.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/experts/expert_load.h"
#include "worker/loading.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct host_experts;
struct hot;
struct placement;
struct tp_group;
struct trace;
struct model;

/* Points at which an observer sees the inputs of a layer's linear layers: of q, k and v; of o; of gate and
 * up, the router and the experts; of down.  ROUTED: int32 [n_rows, n_chosen], the experts of each row. */
enum model_point { MODEL_AT_QKV, MODEL_AT_O, MODEL_AT_GATEUP, MODEL_AT_DOWN, MODEL_AT_ROUTED };

struct model_args {
	const struct kern_ops *ops; /* ops, dev, stream, config and shard are borrowed for the model's life */
	struct kern_dev *dev;
	struct kern_stream *stream;
	const struct model_config *config; /* config with the heads and intermediate size of this rank */
	const struct config_kinds *kinds;  /* borrowed for the call; NULL: one kind of all layers */
	const struct shard *shard;
	const struct weights *weights; /* borrowed for the call; of the whole model */
	int max_rows;
	int max_logits;
	int max_context;
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
	struct loading *loading; /* progress, written during the load; or NULL */
	/* borrowed for the model's life: incremented for every part of a layer that is loaded or computed
	 * (on a GPU: queued); or NULL */
	atomic_ullong *moves;
	void (*at_work)(void *arg); /* called in a forward pass, after the first operations; or NULL */
	void *at_work_arg;
	enum experts_skew skew; /* EXPERTS_ROUTED but for measurements */
	/* borrowed for the model's life: counters written by steps of a mixture; or NULL */
	struct expert_load *load;
	struct trace *trace; /* borrowed for the model's life: marks the operations of a step; or NULL */
	/* Called in a forward pass with device memory that the next operation may overwrite; or NULL. */
	void (*observe)(void *arg, enum model_point at, const void *rows, int n_rows);
	/* Called in a load for every vector with device memory: at, the stored vector, and what is added to
	 * each value; for the rotations of all positions v is NULL, and plus is 1 for LAYER_ROPE_LOCAL; or
	 * NULL. */
	void (*loaded)(void *arg, const void *at, const struct weights_vec *v, float plus);
	void *observe_arg; /* of both */
	/* Placement of the experts, borrowed for the call; NULL: all on the device.  beside: the table of
	 * the host experts, borrowed for the model's life. */
	const struct placement *placement;
	struct host_experts *host_experts;
	/* GPU-resident experts of layers that are otherwise on the CPU; borrowed for the model's life; or
	 * NULL. */
	const struct hot *hot;
	/* Host experts are streamed to the device for steps of more rows than this, if the device's table
	 * can compute them; a second copy of them is kept in pinned memory.  0: never. */
	int stream_above_rows;
	/* The table only lists its arguments and computes nothing: no weights are read from the disk. */
	bool unread;
	bool layers_only; /* no embedding, final norm or head: for model_layers() alone */
};

/* Load the model.  -ENOMEM, -EINVAL, -ENOTSUP with the reason; out of memory, also the bytes. */
int model_load(struct model **out, const struct model_args *a, struct why *why);
void model_free(struct model *m); /* NULL is fine */
/* Measure the device memory of a layer's largest expert, by loading it for the time of the call.  Reads
 * ops, dev, stream, config, shard, weights, unread and moves of *a.  Errors as for model_load(). */
int model_expert_size(const struct model_args *a, int layer, int64_t *bytes, struct why *why);
int64_t model_weights_bytes(const struct model *m); /* on the device */
/* Host memory of the host experts: the CPU's copy, and the copy in pinned memory. */
int64_t model_host_experts_bytes(const struct model *m);
uint64_t model_sent(const struct model *m); /* steps for which host experts were streamed */
/* Bytes read by a step of one row: in all layers, and in the head. */
int64_t model_layers_bytes(const struct model *m);
int64_t model_head_bytes(const struct model *m);
/* Bytes of one expert, and experts read per row over all layers (on this rank, in the mean, if ranks hold
 * different experts); 0: the model is dense.  model_layers_bytes() includes their product. */
int64_t model_expert_bytes(const struct model *m);
int64_t model_row_experts(const struct model *m);
/* Start or stop counting steps in model_args.load (trial steps are not counted); initially on.  begin: set
 * the counts per expert to 0. */
void model_count_experts(struct model *m, bool on);
void model_begin_counts(struct model *m);
/* For a device that counts experts in its graphs.  queue: after the current step, copy the device's expert
 * counters to slot `at % MODEL_COUNTS`.  take: when that step is done, add the increase since the previous
 * copy. */
enum { MODEL_COUNTS = 2 };
int model_queue_counts(struct model *m, uint64_t at);
void model_take_counts(struct model *m, uint64_t at);

/* Set the group that computes the next steps; borrowed.  Required if this rank holds a shard only. */
void model_set_group(struct model *m, struct tp_group *g);

/* Run the embedding and the layers for the batch that batch_set() has made current.  tokens: the device's
 * token buffer. */
int model_forward(struct model *m, struct kern_kv *kv, const int32_t *tokens, int n_rows);
/* Run the layers alone, on the residual stream in model_residual(), F32 [n_rows, hidden] on the device,
 * which they overwrite.  For models that are run in parts: of a model without layers, model_forward()
 * writes the embedding there, and model_head() reads it. */
int model_layers(struct model *m, struct kern_kv *kv, int n_rows);
void *model_residual(struct model *m);
/* Compute the logits of the current batch's logits rows (at most max_logits), after model_forward() of a
 * batch with the same rows: into model_logits(), F32 [n_logits, n_vocab] on the device. */
int model_head(struct model *m, int n_logits);
/* Get the current batch's logits rows after the last layer and the final norm: F32 [n_rows, hidden] on the
 * device, valid until the next step or head.  Call it instead of or after model_head().  All ranks have the
 * same rows, so no group is needed. */
int model_rows(struct model *m, int n_rows, const void **out);
void *model_logits(struct model *m); /* NULL: this is not rank 0, which has the logits */

/* model_forward(), model_layers(), model_head() and model_rows() return the error of the device, or the
 * error that broke the group (tp_group_broke()). */

#endif
