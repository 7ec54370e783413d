/* profile.h - the largest steps that a plan may hold, run once on made-up input before the
 * KV pool is made: what a device's driver takes when a kernel first runs is then taken, and what is
 * free is really free. */
#ifndef QUERN_WORKER_PROFILE_H
#define QUERN_WORKER_PROFILE_H

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
	struct tp_group *group;            /* NULL: the model is whole; else all ranks do this at once */
	const struct model_config *config; /* with the heads of this rank */
	const struct bus_limits *lim;
	uint32_t block_size;
	int max_logits;
	int rank;           /* 0 samples */
	int32_t *tokens;    /* the device's token buffer; its first token is overwritten */
	struct kern_kv *kv; /* cache, of which block 0 may be overwritten; NULL: one of a block is made, and
			       gone afterwards */
};

/* A step of prompts and decodes as large as can be, one of decodes alone, and smaller ones for which the
 * device may have other kernels; each with head and sampler.  -ENOMEM, -EIO, or what broke
 * the group, with the reason. */
int profile_run(const struct profile_args *a, char *why, size_t why_n);

#endif
