/* keep.h - the linear parts of a model that stay in floats: by patterns and by a list of names. */
#ifndef QUERN_QUANT_ROUND_KEEP_H
#define QUERN_QUANT_ROUND_KEEP_H

#include <stdbool.h>
#include <stddef.h>

struct keep {
	char *const *patterns; /* borrowed */
	size_t n_patterns;
	char **names; /* full names; owned */
	size_t n_names;
};

enum keep_by { KEEP_NOT, KEEP_PATTERN, KEEP_NAME };

/* Return whether a pattern matches anywhere in the name, with '*' and '?' as in file names. */
bool keep_matches(char *const *patterns, size_t n, const char *name);

/* Return whether and why a part is kept.  name: "model.layers.3.mlp.up_proj".  stacked: number of experts if
 * one tensor (GGUF) has this part of all experts of a layer, so that all are kept or none; else 0. */
enum keep_by keep_of(const struct keep *k, const char *name, int stacked);
void keep_add(struct keep *k, const char *name);
void keep_fini(struct keep *k);

#endif
