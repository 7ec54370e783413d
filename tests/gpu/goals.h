/* goals.h - what the GPU worker should reach, and whether a run did. */
#ifndef QUERN_TESTS_GPU_GOALS_H
#define QUERN_TESTS_GPU_GOALS_H

#include <jansson.h>

/* Data of a run: {"steps-awq": [...], "linear": [...], ...}, by the names of the files. */

/* The first of data[name] with these values: key, number, ... ended by NULL (numbers as double), or with
 * text: key + "=", text.  NULL: none. */
const json_t *goals_find(const json_t *data, const char *name, ...);
/* A number of it; NAN where there is none. */
double goals_number(const json_t *o, const char *key);
/* The summed time in us of the four layers of a decoder block, or NAN; and their bytes. */
double goals_layers_us(const json_t *data, const char *name, const char *type, const char *mode, int rows,
		       double *bytes);

/* [{"goal", "aim", "unit", "phase", "measured" (or null), "verdict": "met"|"missed"|"not measured"}] */
json_t *goals_all(const json_t *data);

#endif
