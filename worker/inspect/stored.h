/* stored.h - describes weights as JSON: their names and types, and the tensors of the files that hold them.
 * The objects are those of inspect.h, "WEIGHT". */
#ifndef QUERN_WORKER_INSPECT_STORED_H
#define QUERN_WORKER_INSPECT_STORED_H

#include "kernels/kern.h"

#include <jansson.h>
#include <stdint.h>

struct weights;

/* Add where the weights at p are stored: under key the tensor's name, and the row of it with which they
 * begin.  No-op if no tensor of the files holds the byte at p. */
void stored_add(const struct weights *w, json_t *weight, const char *key, const void *p);
/* Describe part i of a linear layer; the caller owns the object. */
json_t *stored_part(const struct weights *w, const struct kern_linear_src *src, int i);
/* Stored bytes of a part, with its bias. */
int64_t stored_bytes(const struct kern_linear_src *src, const struct kern_linear_part *p);
/* Make the names of all experts from those of the first: replace its number by a star. */
void stored_all(json_t *weight);
/* If the second expert is in the tensor of the first, note how many rows lie between them.  Frees second. */
void stored_stack(json_t *first, json_t *second);

#endif
