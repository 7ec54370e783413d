/* placement.h - which layers' experts lie in the host's memory and are computed by its CPU, while all else of
 * a model is on a worker's device.
 *
 *     layers.0-9.experts=cuda:0,*.experts=cpu,*=cuda:0
 *
 *     layers.A.experts, layers.A-B.experts   the experts of these layers, A and B counted from 0
 *     *.experts                              those of all layers that no other rule names
 *     *                                      all else; always on the worker's own device
 *
 * The order of the rules means nothing.  What no rule names is on the worker's own device, which goes by its
 * name ("cuda:0") or kind ("cuda"). */
#ifndef QUERN_FORMATS_PLACE_PLACEMENT_H
#define QUERN_FORMATS_PLACE_PLACEMENT_H

#include "formats/config.h"

#include <stdbool.h>
#include <stddef.h>

/* What --experts cpu stands for. */
#define PLACEMENT_EXPERTS_CPU "*.experts=cpu"

/* The rules that --experts and --place stand for, one of which is NULL, in *spec; NULL: all is on the device.
 * -EINVAL: both are given, or --experts is another word than cpu or device. */
int placement_options(const char *experts, const char *place, const char **spec, char *why, size_t why_n);

struct placement {
	bool cpu[CONFIG_LAYERS_MAX]; /* this layer's experts, beside a device that is no CPU */
	int n_cpu;                   /* of n_sparse; 0: all is on the worker's device */
	int n_sparse;                /* layers with experts */
};

/* spec: NULL for all on the device.  -EINVAL with the rule, the reason and the remedy: rules that name what
 * is not there, the same layer, nothing, or a device that is not the worker's; a dense model. */
int placement_parse(struct placement *out, const char *spec, const char *device, const struct model_config *c,
		    char *why, size_t why_n);

/* -ENOTSUP with the reason: ranks of a group have no experts on the CPU beside their devices. */
int placement_check_ranks(const struct placement *p, int n_ranks, char *why, size_t why_n);

/* A short text that two placements share only if they are the same, but for a chance of 2^-64. */
enum { PLACEMENT_TEXT = 64 };
void placement_text(const struct placement *p, char out[PLACEMENT_TEXT]);

#endif
