/* step_impl.h - shared by step.c (plans), step_open.c (sizes, loading, pools), step_experts.c (placement of
 * experts), step_group.c (ranks) and step_pool.c (pooled runs), and only by these. */
#ifndef QUERN_WORKER_STEP_IMPL_H
#define QUERN_WORKER_STEP_IMPL_H

#include "base/err.h"
#include "formats/place/hot.h"
#include "formats/place/placement.h"
#include "formats/shard.h"
#include "kernels/kern.h"
#include "worker/batch.h"
#include "worker/experts/host_experts.h"
#include "worker/cache.h"
#include "worker/graphs.h"
#include "worker/guide.h"
#include "worker/tp_group.h"
#include "worker/model.h"
#include "worker/open_runs.h"
#include "worker/pending.h"
#include "worker/sampler.h"
#include "worker/slots.h"
#include "worker/step.h"

#include <stddef.h>

struct step {
	struct bus_load load; /* the controller's request */
	char device[32];
	struct model_config config;
	struct shard shard;
	struct model_config part; /* config with the heads and intermediate size of this rank; owns nothing */
	struct config_kinds kinds; /* kinds of layers, for the longest context requested */
	struct tp_group *group;    /* NULL: not in a group, or the group is lost */
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct placement placement;
	/* GPU-resident experts of offloaded layers; zeros: none */
	struct hot hot;
	/* decided when loading; experts_compute only with host experts */
	enum kern_compute compute, experts_compute;
	struct host_experts *host_experts; /* CPU offload of experts; NULL: none */
	int stream_above_rows; /* rows of a step, as in model_args; 0: experts are never streamed */
	struct model *model;
	struct cache cache;
	struct guide_work guide_work; /* see step_args */
	struct guide *guide;          /* NULL on ranks that do not choose tokens */
	struct slots *slots;
	struct open_runs open;
	struct batch *batch;
	struct sampler *sampler;
	struct graphs *graphs;   /* NULL: steps run operation by operation; in a group: made for that group */
	bool no_graphs;          /* see step_args */
	bool two_pools;          /* see step_args */
	struct pending *pending; /* plans begun and not ended; NULL until the state is open */
	/* true: finished plans are reported by fd; false if plans are done when they are begun */
	bool notified;
	int fd;           /* readable when a pending plan is done; -1: none yet */
	int64_t ended_us; /* time when the last plan was ended */
	struct bus_limits lim;
	/* this rank's own values, before ranks agree on the least */
	uint32_t own_blocks, own_host_blocks, own_context;
	uint32_t rope_context;   /* context length used for the rotations: some RoPE types depend on it */
	double memory_fraction;  /* share of the device's memory; 0: the default (cache.h) */
	struct loading *loading; /* borrowed while it opens; or NULL */
	int64_t least_us;        /* see step_args */
	struct trace *trace;     /* borrowed; or NULL */
	atomic_ullong *moves;    /* borrowed; or NULL */
	int64_t stored_bytes;    /* size of this rank's weights in the model's files */
	bool sized_last;         /* the pool takes the memory that everything else leaves */
	uint32_t block_size;
	int max_logits;
	uint32_t load_ms;
	uint64_t epoch;
	uint64_t expected; /* number of the next plan */
	uint64_t ended;    /* number of the last plan with its result taken */
	uint32_t group0;   /* first want of the last group of logits */
	bool broken;       /* a plan failed half-way */
};

/* step.c */
/* Drop all plans in flight, with their results. */
void step_drain(struct step *s);
/* Write the worker's numerics class (base/numerics.h). */
void step_numerics(const struct step *s, const struct kern_info *info, char *out, size_t n);

/* step_open.c */
/* Parse a compute mode; "auto" and "" depend on the device. */
int step_compute_mode(const char *name, const char *device, const char *isa, enum kern_compute *out,
		      struct why *why);
/* Open everything but the pools: slots, batch, sampler, pending plans. */
int step_open_state(struct step *s, struct why *why);
/* Run each kind of step once, if that allocates device memory. */
int step_profile(struct step *s, struct why *why);
/* Compute the pool's size from the memory left by everything else. */
int step_size_last(struct step *s, struct why *why);
/* Open the KV pools, with the sizes in s->cache. */
int step_open_pools(struct step *s, struct why *why);
/* Make the graphs, if the device has them and they are wanted.  progress: called with the progress; or
 * NULL. */
int step_open_graphs(struct step *s, void (*progress)(void *arg, unsigned permille), void *arg,
		     struct why *why);

/* step_experts.c */
/* Read which layers' experts are on the CPU, and check that GPU-resident experts fit to it. */
int step_place_experts(struct step *s, const struct step_args *a, struct why *why);
/* Choose the GPU-resident experts before anything is sized: they take no host memory. */
int step_choose_hot(struct step *s, const struct step_args *a, const struct weights *w, struct why *why);
/* Open the CPU's table for the host experts, and decide whether they are streamed; nothing if there are
 * none. */
int step_open_host_experts(struct step *s, const struct step_args *a, const struct weights *w,
			   struct why *why);
/* Return the bytes of the host experts in the model's files. */
int64_t step_host_experts_stored(const struct step *s, const struct weights *w);

/* step_pool.c: results of a plan's pooled runs, on rank 0 only. */
/* The batch is built: reserve room for the pooled runs in f. */
int step_pool_begin(struct step *s, struct pending_plan *f, struct why *why);
/* The logits of the n wants from `first` on are computed: copy those of pooled runs. */
int step_pool_logits(struct step *s, struct pending_plan *f, uint32_t first, int n);
/* After the head: compute the other pooled rows; sets the batch to other logits rows. */
int step_pool_rows(struct step *s, struct pending_plan *f);
/* f is done: add its pooled results to r. */
void step_pool_take(const struct step *s, const struct pending_plan *f, struct result *r);

#endif
