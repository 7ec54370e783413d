/* together.h - checks and measures of a device's table of kernels, and its tests: one program under the names
 * of all, since each would have every kernel of the CPU in it. */
#ifndef QUERN_TESTS_GPU_TOGETHER_H
#define QUERN_TESTS_GPU_TOGETHER_H

#include "bench/layers.h"

int shapes_main(int argc, char **argv);  /* shapes.c */
int measure_main(int argc, char **argv); /* measure.c */

/* Made-up shapes, for the emulated device. */
extern const struct layers_model together_small;
/* The shapes of a model by name, together_small under "small"; NULL: there is none. */
const struct layers_model *together_find(const char *name);

#endif
