/* keep.h - which linear parts of a model stay in floats: those that a pattern names, and those of a list. */
#ifndef QUERN_QUANT_ROUND_KEEP_H
#define QUERN_QUANT_ROUND_KEEP_H

#include <stdbool.h>
#include <stddef.h>

struct keep {
	char *const *patterns; /* borrowed */
	size_t n_patterns;
	char **names; /* whole; owned */
	size_t n_names;
};

enum keep_by { KEEP_NOT, KEEP_PATTERN, KEEP_NAME };

/* Whether a pattern matches anywhere in the name, '*' and '?' as in file names. */
bool keep_matches(char *const *patterns, size_t n, const char *name);

/* name: "model.layers.3.mlp.up_proj".  stacked: where the same part of all experts of a layer is one tensor
 * (GGUF), so that all are kept or none, how many they are; else 0. */
enum keep_by keep_of(const struct keep *k, const char *name, int stacked);
void keep_add(struct keep *k, const char *name);
void keep_fini(struct keep *k);

#endif
