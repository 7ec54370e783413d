/* references.h - results of the CPU's table for shapes.c, computed when the pack is made and carried in it.
 *
 * A file is "quern references 1\n" followed by records in the order of the checks:
 *
 *     name, 0 | n, 4 bytes | width, 1 byte | n highest bytes | n second bytes | ... width planes
 *
 * Values are F32 without the lowest byte (width 3, rounded: an error of at most 2^-16) or whole (width 4).
 * Planes of equally significant bytes compress better than whole values. */
#ifndef QUERN_TESTS_GPU_REFERENCES_H
#define QUERN_TESTS_GPU_REFERENCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Write n values of 4 bytes. */
int references_write(FILE *f, const char *name, const float *values, size_t n, bool whole);
/* Read the next record: 0; -EINVAL if it has another name, number or width; -EIO if the file ends. */
int references_read(FILE *f, const char *name, float *values, size_t n, bool whole);

/* Write or check the first line. */
int references_begin(FILE *f, bool write);

#endif
