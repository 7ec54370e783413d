/* step_impl.h - what step.c (plans), step_open.c (sizes, loading, pools), step_group.c (ranks) and
 * step_pool.c (pooled runs) share.
 * For these only. */
#ifndef QUERN_WORKER_STEP_IMPL_H
#define QUERN_WORKER_STEP_IMPL_H

#include "formats/place/hot.h"
#include "formats/place/placement.h"
#include "formats/shard.h"
#include "kernels/kern.h"
#include "worker/batch.h"
#include "worker/experts/beside.h"
#include "worker/cache.h"
#include "worker/graphs.h"
#include "worker/guide.h"
#include "worker/tp_group.h"
#include "worker/model.h"
#include "worker/pending.h"
#include "worker/sampler.h"
#include "worker/slots.h"
#include "worker/step.h"

#include <stddef.h>

struct step {
	struct bus_load load; /* as requested */
	char device[32];
	struct model_config config;
	struct shard shard;
	struct model_config part; /* config with the heads and values of this rank; owns nothing */
	struct tp_group *group;   /* NULL: it serves alone, or its group is lost */
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct placement placement;
	struct hot hot;                             /* of the layers on the CPU; zeros: none */
	enum kern_compute compute, experts_compute; /* as chosen; the latter where there is `beside` */
	struct beside *beside; /* for experts on the CPU beside the device; NULL: there are none */
	int send_above;        /* rows of a step, as in model_args; 0: experts never come to the device */
	struct model *model;
	struct cache cache;
	struct guide *guide; /* NULL on ranks that do not choose tokens */
	struct slots *slots;
	struct batch *batch;
	struct sampler *sampler;
	struct graphs *graphs;   /* NULL: steps run operation by operation; of a group: its own */
	bool no_graphs;          /* as in step_args */
	struct pending *pending; /* begun, not ended; NULL until there is state */
	bool notified;           /* fd is written to: not where plans are done when they are begun */
	int fd;                  /* readable when one of them is done; -1: none yet */
	int64_t ended_us;        /* when the last was ended */
	struct bus_limits lim;
	uint32_t own_blocks, own_host_blocks, own_context; /* before ranks agree on the least */
	uint32_t rope_context;   /* that the rotations were made for: some are others for a longer one */
	double memory_fraction;  /* of the device; 0: as cache.h says */
	struct loading *loading; /* borrowed while it opens; or NULL */
	int64_t least_us;        /* as in step_args */
	struct trace *trace;     /* borrowed; or NULL */
	atomic_ullong *moves;    /* borrowed; or NULL */
	int64_t stored_bytes;    /* of this rank's weights, in the model's files */
	bool sized_last;         /* the pool is made of what is left when everything else is there */
	uint32_t block_size;
	int max_logits;
	uint32_t load_ms;
	uint64_t epoch;
	uint64_t expected; /* number of the plan that is due */
	uint64_t ended;    /* of the last one with its result taken */
	uint32_t group0;   /* first want of the last group of logits */
	bool broken;       /* a plan went wrong half-way */
};

/* step.c */
/* Drops all plans under way, with their results. */
void step_drain(struct step *s);
/* The numerics class: what two workers must share for their bits to be the same. */
void step_numerics(const struct step *s, const struct kern_info *info, char *out, size_t n);

/* step_open.c */
/* All but the pools: slots, batch, sampler, what is pending. */
int step_open_state(struct step *s, char *why, size_t why_n);
/* Each kind of step once, where that takes memory. */
int step_profile(struct step *s, char *why, size_t why_n);
/* The pool's size when everything else is on the device: what is left. */
int step_size_last(struct step *s, char *why, size_t why_n);
/* The KV pools, as large as s->cache says. */
int step_open_pools(struct step *s, char *why, size_t why_n);
/* Where the device keeps graphs, and they are wanted; progress: NULL, or told how far they are. */
int step_open_graphs(struct step *s, void (*progress)(void *arg, unsigned permille), void *arg, char *why,
		     size_t why_n);

/* step_pool.c: what a plan's pooled runs give; on rank 0, the others have none. */
/* The batch is built: room for them in f. */
int step_pool_begin(struct step *s, struct pending_plan *f, char *why, size_t why_n);
/* The logits of the n wants from `first` on are there. */
int step_pool_logits(struct step *s, struct pending_plan *f, uint32_t first, int n);
/* Behind the head: the batch is set to other logits rows. */
int step_pool_rows(struct step *s, struct pending_plan *f);
/* f is done: into r. */
void step_pool_take(const struct step *s, const struct pending_plan *f, struct result *r);

#endif
