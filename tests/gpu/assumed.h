/* assumed.h - values that tests/sass/estimate.py assumes, taken from measurements. */
#ifndef QUERN_TESTS_GPU_ASSUMED_H
#define QUERN_TESTS_GPU_ASSUMED_H

#include <jansson.h>

/* Return {name of the assumption: {"value", "date", "commit", "how"}} from a run's data, for "assumed" in
 * tests/sass/measured.json.  run: {"date", "commit"}. */
json_t *assumed_measured(const json_t *data, const json_t *run);
/* Return the measured time in us of a step of the estimate, "decode N" or "prompt N"; NAN: not measured. */
double assumed_step_us(const json_t *data, const char *step);
/* Return the contents of measured.json: milliseconds of the measured steps, and "assumed". */
json_t *assumed_file(const json_t *data, const json_t *run);

#endif
