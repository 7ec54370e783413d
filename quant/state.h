/* state.h - what an interrupted run leaves for the next one, in a directory beside the result:
 *
 *     DST.state/run            the fingerprint: model, options, text
 *     DST.state/layer-007      the results of a layer (struct layer_plan), with its checksum
 *     DST.state/rows-008       the residual stream as it comes to the next layer, F32 [tokens, hidden]
 *
 * Rows of a layer are durable before the results of the layer before it are there, and are removed once their
 * own layer's are.  So the first layer without results is where a run goes on.  A directory of another
 * fingerprint is emptied.  It is locked while a run uses it. */
#ifndef QUERN_QUANT_STATE_H
#define QUERN_QUANT_STATE_H

#include "quant/layer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state;

/* rows, hidden: of a stream.  -EBUSY: another run has it; -EEXIST: a directory of that name that is not ours.
 */
int state_open(struct state **out, const char *dst, uint64_t fingerprint, int n_layers, int rows, int hidden,
	       char *why, size_t why_n);
void state_close(struct state *s); /* what it holds stays; NULL is fine */
void state_remove(struct state **s);

int state_n_done(const struct state *s); /* layers */

/* The stream as it comes to a layer, mapped to be read; or a new one, of as many bytes, to be written.
 * -ENOENT, -ENOSPC, ... */
int state_rows(struct state *s, int layer, const float **out, char *why, size_t why_n);
int state_rows_new(struct state *s, int layer, float **out, char *why, size_t why_n);
void state_rows_unmap(struct state *s, const float *rows);

/* The layer's results are durable, as is the stream for the next layer, which was mapped at next (NULL: the
 * last layer); the stream of the layer itself is removed. */
int state_save(struct state *s, const struct layer_plan *p, float *next, char *why, size_t why_n);
/* dst is what this run has written; whether it still is, and no other file or directory of that name. */
int state_written(const struct state *s, const char *dst, char *why, size_t why_n);
bool state_is_written(const struct state *s, const char *dst);
/* Into a plan of the same layer, fresh from layer_plan_init().  -EINVAL: damaged. */
int state_load(const struct state *s, struct layer_plan *p, char *why, size_t why_n);

#endif
