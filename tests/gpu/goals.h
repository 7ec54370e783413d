/* goals.h - performance goals of the GPU worker, and whether a run met them. */
#ifndef QUERN_TESTS_GPU_GOALS_H
#define QUERN_TESTS_GPU_GOALS_H

#include <jansson.h>

/* Data of a run: {"steps-awq": [...], "linear": [...], ...}, keyed by file name. */

/* Return the first element of data[name] with these values, or NULL.  The values are pairs ended by NULL:
 * key, number (double), or key + "=", text. */
const json_t *goals_find(const json_t *data, const char *name, ...);
/* Return a number of o; NAN if it has none. */
double goals_number(const json_t *o, const char *key);
/* Return the summed time in us of the four layers of a decoder block, or NAN; *bytes gets their bytes. */
double goals_layers_us(const json_t *data, const char *name, const char *type, const char *mode, int rows,
		       double *bytes);

/* Return [{"goal", "aim", "unit", "phase", "measured" (or null),
 *         "verdict": "met"|"missed"|"not measured"}]. */
json_t *goals_all(const json_t *data);

#endif
