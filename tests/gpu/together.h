/* together.h - checks, measurements and tests of a device's kernel table, in one program with several names:
 * separate programs would each contain every CPU kernel. */
#ifndef QUERN_TESTS_GPU_TOGETHER_H
#define QUERN_TESTS_GPU_TOGETHER_H

#include "bench/layers.h"

int shapes_main(int argc, char **argv);  /* shapes.c */
int measure_main(int argc, char **argv); /* measure.c */

/* Small test shapes, for the emulated device. */
extern const struct layers_model together_small;
/* Return the shapes of a model by name; "small" gives together_small.  NULL: no such model. */
const struct layers_model *together_find(const char *name);

#endif
