/* placement.h - rules that name the layers with host experts: these are in host memory and computed by its
 * CPU, while the rest of the model is on a worker's device.
 *
 *     layers.0-9.experts=cuda:0,*.experts=cpu,*=cuda:0
 *
 *     layers.A.experts, layers.A-B.experts   the experts of these layers, A and B counted from 0
 *     *.experts                              the experts of layers that no other rule names
 *     *                                      all else; always on the worker's own device
 *
 * The order of the rules does not matter.  Layers that no rule names are on the worker's own device, which is
 * given by name ("cuda:0") or kind ("cuda"). */
#ifndef QUERN_FORMATS_PLACE_PLACEMENT_H
#define QUERN_FORMATS_PLACE_PLACEMENT_H

#include "base/err.h"
#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>

/* Rules that --experts cpu stands for. */
#define PLACEMENT_EXPERTS_CPU "*.experts=cpu"

/* Set *spec to the rules of --experts or --place, at most one of which is not NULL; NULL: all is on the
 * device.  -EINVAL: both are given, or --experts is neither cpu nor device. */
int placement_options(const char *experts, const char *place, const char **spec, struct why *why);

struct placement {
	bool cpu[CONFIG_LAYERS_MAX]; /* this layer's experts are host experts of a GPU worker */
	int n_cpu;                   /* such layers; 0: all is on the worker's device */
	int n_sparse;                /* layers with experts */
};

/* Parse the rules; spec NULL: all on the device.  -EINVAL with the rule, the reason and the remedy: a rule
 * names layers that do not exist, a layer twice, nothing, or a device other than the worker's; or the model
 * is dense. */
int placement_parse(struct placement *out, const char *spec, const char *device, const struct model_config *c,
		    struct why *why);

/* -ENOTSUP with the reason: ranks of a group cannot have host experts. */
int placement_check_ranks(const struct placement *p, int n_ranks, struct why *why);

/* Write a fingerprint of the placement; different placements share one with probability 2^-64. */
enum { PLACEMENT_TEXT = 64 };
void placement_text(const struct placement *p, char out[PLACEMENT_TEXT]);

#endif
