/* model.h - one decoder, as its configuration describes it: weights on a device, scratch for a
 * step, and the forward pass over the device's table of operations.
 * Knows nothing of sequences, plans or the device's kind.  Allocates at load only.
 *
 * One rank of a tensor-parallel group holds a part of the weights (formats/shard.h), computes
 * partial rows and meets the others three times: after the embedding, and after o and down of
 * every layer, where rows are added; and for the logits, which rank 0 gathers.  Of a mixture it has
 * a part of every expert or, where shard.ep, some experts whole: what they give to a row is its part.
 *
 * Every row of a step is computed from that row alone (kern.h), so the same tokens give the
 * same bits whatever else is in the batch. */
#ifndef QUERN_WORKER_MODEL_H
#define QUERN_WORKER_MODEL_H

#include "formats/config.h"
#include "formats/shard.h"
#include "formats/weights.h"
#include "kernels/kern.h"
#include "worker/experts/expert_load.h"
#include "worker/loading.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct beside;
struct hot;
struct placement;
struct tp_group;
struct trace;
struct model;

/* Where an observer sees what a layer's linear parts read: operands of q, k and v; of o; of gate and up, the
 * router and the experts; of down.  ROUTED: int32 [n_rows, n_chosen], the experts of each row. */
enum model_point { MODEL_AT_QKV, MODEL_AT_O, MODEL_AT_GATEUP, MODEL_AT_DOWN, MODEL_AT_ROUTED };

struct model_args {
	const struct kern_ops *ops; /* these five are borrowed for the model's life, */
	struct kern_dev *dev;
	struct kern_stream *stream;
	const struct model_config *config; /* with the heads and intermediate values of this rank */
	const struct shard *shard;
	const struct weights *weights; /* this one for the call; the whole model's */
	int max_rows;
	int max_logits;
	int max_context;
	void (*progress)(void *arg, unsigned permille); /* or NULL */
	void *progress_arg;
	struct loading *loading; /* written while it loads; or NULL */
	atomic_ullong *moves; /* borrowed for its life: grows with every part of a layer that was loaded, or
				 computed (on a GPU: queued); or NULL */
	void (*at_work)(void *arg); /* called in a forward pass, behind the first operations; or NULL */
	void *at_work_arg;
	enum experts_skew skew;   /* EXPERTS_ROUTED but for measurements */
	struct expert_load *load; /* borrowed for its life: written by steps of a mixture; or NULL */
	struct trace *trace;      /* borrowed for its life: marks the operations of a step; or NULL */
	/* Called in a forward pass with device memory that the next operation may overwrite; or NULL. */
	void (*observe)(void *arg, enum model_point at, const void *rows, int n_rows);
	void *observe_arg;
	/* Where its experts are: NULL: all on the device.  beside: for those on the CPU, borrowed for the
	 * model's life; the placement for the call. */
	const struct placement *placement;
	struct beside *beside;
	/* Experts of layers on the CPU that are on the device; borrowed for its life; or NULL. */
	const struct hot *hot;
	/* Experts on the CPU come to the device for steps of more rows than this, where its table can compute
	 * them and they are in pinned memory a second time; 0: they never do. */
	int send_above;
	/* The table lists what it is given and computes nothing: no weights are read from the disk. */
	bool unread;
	bool layers_only; /* no embedding, last norm or head: model_layers() alone */
};

/* -ENOMEM, -EINVAL, -ENOTSUP with what failed, and the bytes where memory did. */
int model_load(struct model **out, const struct model_args *a, char *why, size_t why_n);
void model_free(struct model *m); /* NULL is fine */
/* What one of the layer's experts takes on the device, which holds one for the time of the call; of *a the
 * first six fields and unread are read.  Errors as model_load(). */
int model_expert_size(const struct model_args *a, int layer, int64_t *bytes, char *why, size_t why_n);
int64_t model_weights_bytes(const struct model *m); /* on the device */
/* Host memory of experts beside the device: the CPU's, and those in pinned memory. */
int64_t model_beside_bytes(const struct model *m);
uint64_t model_sent(const struct model *m); /* steps for which experts on the CPU came to the device */
/* What a step of one row reads of these in all layers, and in the head. */
int64_t model_layers_bytes(const struct model *m);
int64_t model_head_bytes(const struct model *m);
/* Of the layers' bytes: what one expert takes, and how many a row has in all layers, where other ranks have
 * experts of their own in the mean; 0: the model is dense. */
int64_t model_expert_bytes(const struct model *m);
int64_t model_row_experts(const struct model *m);
/* Whether steps from now on, unlike trial steps, count in model_args.load; at first they do.  begin: its
 * cells count from 0 again. */
void model_count_experts(struct model *m, bool on);
void model_begin_counts(struct model *m);
/* Of experts that a device with graphs computes: queues a copy of its counters behind the step at hand, one
 * of MODEL_COUNTS under way, at % MODEL_COUNTS; take, once that step is done: counts what came since the
 * last. */
enum { MODEL_COUNTS = 2 };
int model_queue_counts(struct model *m, uint64_t at);
void model_take_counts(struct model *m, uint64_t at);

/* The group that the next steps are computed in; borrowed.  Needed where the shard is a part. */
void model_set_group(struct model *m, struct tp_group *g);

/* The layers for the batch that batch_set() has made current; tokens: the device's token buffer. */
int model_forward(struct model *m, struct kern_kv *kv, const int32_t *tokens, int n_rows);
/* The layers alone, on the residual stream in model_residual(), F32 [n_rows, hidden] on the device, which
 * becomes theirs.  For models that are run in parts; model_forward() of one without layers gives the
 * embedding there, and model_head() of the same reads it. */
int model_layers(struct model *m, struct kern_kv *kv, int n_rows);
void *model_residual(struct model *m);
/* The logits of the current batch's logits rows (at most max_logits), after model_forward() of
 * a batch with the same rows: into model_logits(), F32 [n_logits, n_vocab] on the device. */
int model_head(struct model *m, int n_logits);
/* The current batch's logits rows as they leave the last layer, behind the last norm: F32 [n_rows, hidden] on
 * the device until the next step or head; instead of or behind model_head().  All ranks have the same: it
 * needs no group. */
int model_rows(struct model *m, int n_rows, const void **out);
void *model_logits(struct model *m); /* NULL: this rank does not get them, rank 0 does */

/* Both return the error of the device, or the one that broke the group (tp_group_broke()). */

#endif
