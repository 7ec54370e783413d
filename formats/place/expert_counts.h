/* expert_counts.h - how many rows each expert of a mixture computed, from the /metrics of a service that
 * runs with --expert-metrics.  Only these lines are read:
 *
 *     quern:expert_layer_rows_total{model_name="M",layer="3",expert="17"} 4711
 *
 * Several lines for one expert (a file with the metrics of several services) are added.  A layer without
 * lines had no rows. */
#ifndef QUERN_FORMATS_PLACE_EXPERT_COUNTS_H
#define QUERN_FORMATS_PLACE_EXPERT_COUNTS_H

#include "base/err.h"
#include "formats/config.h"

#include <stddef.h>
#include <stdint.h>

enum { EXPERT_COUNTS_MAX = 256 << 20 }; /* size limit of the text, in bytes */

/* How a user gets counts. */
#define EXPERT_COUNTS_REMEDY                                                                                 \
	"Run this model's service with --expert-metrics for a while, and save what it counted: "             \
	"curl http://127.0.0.1:8080/metrics >FILE"

struct expert_counts {
	int n_layers, n_experts; /* layers of the model; experts per layer */
	uint64_t *rows;          /* [n_layers * n_experts], owned */
};

/* Parse the text.  from: its name, for messages.  -EINVAL with the line and the remedy: no such line, an
 * unreadable line, experts of a layer missing, or a model of another shape or without experts. */
int expert_counts_parse(struct expert_counts *out, const char *text, const char *from,
			const struct model_config *c, struct why *why);
/* Parse a file.  Also -ENOENT and other errors of reading, with the reason. */
int expert_counts_read(struct expert_counts *out, const char *path, const struct model_config *c,
		       struct why *why);
void expert_counts_fini(struct expert_counts *x); /* a zeroed one is fine */

#endif
