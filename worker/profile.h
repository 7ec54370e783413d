/* profile.h - runs the largest steps that a plan may hold, once, on made-up input, before the KV pool is
 * made.
 * A device's driver allocates memory when a kernel first runs; after this, the memory reported as free
 * really is. */
#ifndef QUERN_WORKER_PROFILE_H
#define QUERN_WORKER_PROFILE_H

#include "base/err.h"
#include "formats/config.h"
#include "kernels/kern.h"
#include "proto/bus.h"
#include "worker/tp_group.h"
#include "worker/model.h"

#include <stddef.h>
#include <stdint.h>

struct profile_args {
	const struct kern_ops *ops; /* all are borrowed for the call */
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct model *model;
	/* NULL: the model is whole; else all ranks call it at the same time */
	struct tp_group *group;
	const struct model_config *config; /* with the heads of this rank */
	const struct config_kinds *kinds;
	const struct bus_limits *lim;
	uint32_t block_size;
	int max_logits;
	int rank;        /* rank 0 samples */
	int32_t *tokens; /* the device's token buffer; its first token is overwritten */
	/* cache; its block 0 may be overwritten; NULL: one of a single block is used for the call */
	struct kern_kv *kv;
};

/* Run a step of prompts and decodes as large as possible, one of decodes alone, and smaller steps for which
 * the device may have other kernels; each with head and sampler.  -ENOMEM, -EIO, or the error that broke
 * the group, with the reason. */
int profile_run(const struct profile_args *a, struct why *why);

#endif
