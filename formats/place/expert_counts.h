/* expert_counts.h - how many rows each expert of a mixture had, as a service counts them: of the text of its
 * /metrics with --expert-metrics the lines
 *
 *     quern:expert_layer_rows_total{model_name="M",layer="3",expert="17"} 4711
 *
 * and no other.  Where several lines are of one expert (the texts of several services in one file), their
 * sum counts.  Layers of which there is no line had no row. */
#ifndef QUERN_FORMATS_PLACE_EXPERT_COUNTS_H
#define QUERN_FORMATS_PLACE_EXPERT_COUNTS_H

#include "formats/config.h"

#include <stddef.h>
#include <stdint.h>

enum { EXPERT_COUNTS_MAX = 256 << 20 }; /* bytes of such a text */

/* How a user comes by counts. */
#define EXPERT_COUNTS_REMEDY                                                                                 \
	"Run this model's service with --expert-metrics for a while, and save what it counted: "             \
	"curl http://127.0.0.1:8080/metrics >FILE"

struct expert_counts {
	int n_layers, n_experts; /* of the model; of a layer */
	uint64_t *rows;          /* [n_layers * n_experts], owned */
};

/* from: the name of the text, for messages.  -EINVAL with the line and the remedy: there is no such line, one
 * cannot be read, some of a layer are missing, or they are of a model of another shape or without experts. */
int expert_counts_parse(struct expert_counts *out, const char *text, const char *from,
			const struct model_config *c, char *why, size_t why_n);
/* Of a file; also -ENOENT and the like with the reason. */
int expert_counts_read(struct expert_counts *out, const char *path, const struct model_config *c, char *why,
		       size_t why_n);
void expert_counts_fini(struct expert_counts *x); /* a zeroed one is fine */

#endif
