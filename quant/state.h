/* state.h - the state of an interrupted run, from which the next run resumes, in a directory next to the
 * result:
 *
 *     DST.state/run            the fingerprint: model, options, text
 *     DST.state/layer-007      the results of a layer (struct layer_plan), with its checksum
 *     DST.state/rows-008       the residual stream before the next layer, F32 [tokens, hidden]
 *
 * The rows before a layer are durable before the results of the previous layer exist, and are removed once
 * the layer's own results exist.  So a run resumes at the first layer without results.  A directory with
 * another fingerprint is emptied.  The directory is locked while a run uses it. */
#ifndef QUERN_QUANT_STATE_H
#define QUERN_QUANT_STATE_H

#include "base/err.h"
#include "quant/layer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state;

/* rows, hidden: size of a stream.  -EBUSY: another run has the directory; -EEXIST: a directory of that name
 * exists and is not a run's. */
int state_open(struct state **out, const char *dst, uint64_t fingerprint, int n_layers, int rows, int hidden,
	       struct why *why);
void state_close(struct state *s); /* the directory stays; NULL is fine */
void state_remove(struct state **s);

int state_n_done(const struct state *s); /* layers with results */

/* Map the stream before a layer for reading; state_rows_new(): a new stream of the same size, for writing.
 * -ENOENT, -ENOSPC, ... */
int state_rows(struct state *s, int layer, const float **out, struct why *why);
int state_rows_new(struct state *s, int layer, float **out, struct why *why);
void state_rows_unmap(struct state *s, const float *rows);

/* Save the layer's results and, before them, the stream for the next layer, mapped at next (NULL: the last
 * layer).  Then remove the layer's own stream. */
int state_save(struct state *s, const struct layer_plan *p, float *next, struct why *why);
/* Record dst as written by this run; return whether dst is still the recorded file or directory. */
int state_written(const struct state *s, const char *dst, struct why *why);
bool state_is_written(const struct state *s, const char *dst);
/* Load a layer's results into its plan, fresh from layer_plan_init().  -EINVAL: damaged. */
int state_load(const struct state *s, struct layer_plan *p, struct why *why);

#endif
