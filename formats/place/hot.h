/* hot.h - choose host experts to keep on a worker's GPU: among the experts that a placement gives the CPU,
 * those with the most rows by a service's counts, up to a number of bytes.
 *
 *     layer 0   | e0 e1 HOT e3 HOT ... |      all but the hot ones: in host memory, computed by the CPU
 *     layer 1   | HOT e1 e2 e3 e4 ...  |      hot ones: on the device, computed there
 *
 * The choice is made when a model is loaded and then stays: a row's bits do not depend on earlier requests.
 * Pure. */
#ifndef QUERN_FORMATS_PLACE_HOT_H
#define QUERN_FORMATS_PLACE_HOT_H

#include "base/err.h"
#include "formats/place/expert_counts.h"
#include "formats/place/placement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Options of the user: both are given, or neither. */
struct hot_options {
	bool given;         /* --hot-experts was given */
	int64_t bytes;      /* its bytes on the device */
	const char *counts; /* path of --expert-counts; NULL: not given */
};

/* Check the options.  spec: the rules from placement_options(); NULL: no host experts.  -EINVAL with the
 * remedy: only one option is given, 0 bytes, or no host experts. */
int hot_check_options(const struct hot_options *o, const char *spec, struct why *why);
/* Check the options against a parsed placement.  A CPU worker has all its experts in host memory: 0, and no
 * expert is hot. */
int hot_check_placement(const struct hot_options *o, const struct placement *p, const char *device,
			struct why *why);

struct hot {
	int n_experts; /* experts per layer */
	int n;         /* hot experts */
	int64_t bytes; /* their bytes on the device */
	bool *here;    /* [n_layers * n_experts] true: hot; owned; NULL: none is */
};

struct hot_choice {
	const struct expert_counts *counts;
	const int64_t *expert_bytes; /* [n_layers] bytes of one expert on the device, for layers on the CPU */
	int64_t budget;
};

/* Choose experts in order of falling rows; ties go to the lower layer, then the lower expert.  Experts that
 * do not fit are skipped, experts without rows are not taken.  A layer with all experts taken is no longer on
 * the CPU in p.  -EINVAL with the figures: no expert fits, all of them fit, or no host expert had a row. */
int hot_choose(struct hot *out, struct placement *p, const struct hot_choice *a, struct why *why);
void hot_fini(struct hot *h); /* a zeroed one is fine */

/* Return the layer's slice of h->here; NULL: no expert of any layer is hot. */
const bool *hot_layer(const struct hot *h, int layer);
/* Return whether some expert of the layer is hot. */
bool hot_any(const struct hot *h, int layer);

/* Write a fingerprint of the choice; different choices share one with probability 2^-64.  "" if none is
 * hot. */
enum { HOT_TEXT = 48 };
void hot_text(const struct hot *h, int n_layers, char out[HOT_TEXT]);

#endif
