/* hot.h - which experts are on a worker's device, of the layers that a placement gives the CPU: those that
 * the most rows had, by the counts of a service, within so many bytes of the device.
 *
 *     layer 0   | e0 e1 HOT e3 HOT ... |      all but the hot ones: in host memory, computed by the CPU
 *     layer 1   | HOT e1 e2 e3 e4 ...  |      hot ones: on the device, computed there
 *
 * They are chosen when a model is loaded, and stay: a row's bits do not depend on what was asked before it.
 * Pure. */
#ifndef QUERN_FORMATS_PLACE_HOT_H
#define QUERN_FORMATS_PLACE_HOT_H

#include "formats/place/expert_counts.h"
#include "formats/place/placement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the user gives: both, or neither. */
struct hot_options {
	bool given;         /* --hot-experts, with */
	int64_t bytes;      /* of the device */
	const char *counts; /* --expert-counts: a path; NULL: not given */
};

/* -EINVAL with the remedy: one without the other, 0 bytes, or without experts on the CPU, as spec of
 * placement_options() says (NULL: there are none). */
int hot_check_options(const struct hot_options *o, const char *spec, char *why, size_t why_n);
/* The same of the placement that was parsed.  A worker of the CPU has all its experts there: 0, and no expert
 * is hot. */
int hot_check_placement(const struct hot_options *o, const struct placement *p, const char *device, char *why,
			size_t why_n);

struct hot {
	int n_experts; /* of a layer */
	int n;         /* hot ones */
	int64_t bytes; /* that these take on the device */
	bool *here;    /* [n_layers * n_experts] hot; owned; NULL: none is */
};

struct hot_choice {
	const struct expert_counts *counts;
	const int64_t *expert_bytes; /* [n_layers] of one expert on the device; of layers on the CPU */
	int64_t budget;
};

/* Takes experts by falling rows, of equals the lowest layer's and then the lowest, and passes over those that
 * no longer fit; one that had no row is not taken.  A layer of which all experts are taken is no longer on
 * the CPU in p.  -EINVAL with the figures: not one expert fits, all of them do, or no expert on the CPU had a
 * row. */
int hot_choose(struct hot *out, struct placement *p, const struct hot_choice *a, char *why, size_t why_n);
void hot_fini(struct hot *h); /* a zeroed one is fine */

/* The layer's part of h->here; NULL: no expert of any layer is hot. */
const bool *hot_layer(const struct hot *h, int layer);
/* Whether some expert of the layer is hot. */
bool hot_any(const struct hot *h, int layer);

/* A short text that two choices share only if they are the same, but for a chance of 2^-64; "" where none is
 * hot. */
enum { HOT_TEXT = 48 };
void hot_text(const struct hot *h, int n_layers, char out[HOT_TEXT]);

#endif
