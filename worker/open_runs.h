/* open_runs.h - open runs (proto/plan.h): their drafts, and which of these are accepted.
 *
 *   step_begin()   open_begin()    the plan before has settled: n_tokens of every slot is known.  Drafts are
 *                                  made and uploaded
 *                  batch_build()   a run of 1 + n_drafts rows; a want for each row
 *                  sampler_queue() every row draws the token after it, with its own random number
 *   later          open_settle()   compares the tokens drawn with the drafts, and cuts the slot to the tokens
 *                                  accepted; the wants of the rows after these are dropped
 *
 *   rows          t48  d49  d50  d51        wants    49    50    51    52
 *   drawn         a49  a50  a51  a52        d49 = a49, d50 = a50, d51 != a51: 52 is dropped
 *
 * On a GPU a plan with open runs waits for the tokens of the plan before it; other plans do not. */
#ifndef QUERN_WORKER_OPEN_RUNS_H
#define QUERN_WORKER_OPEN_RUNS_H

#include "base/err.h"
#include "proto/plan.h"
#include "worker/draft.h"
#include "worker/pending.h"
#include "worker/slots.h"

struct open_runs {
	struct slots *slots;
	uint32_t max_context;
	const struct draft_source *source; /* of a test; NULL: the lookup */
	struct draft_report *report;       /* or NULL */
};

/* Return whether the plan has open runs. */
bool open_any(const struct plan *p);
/* Decide the rows of the plan's open runs.  All earlier plans have settled.  -EINVAL, -EIO: the reason. */
int open_begin(struct open_runs *o, const struct plan *p, struct why *why);
/* f is done: settle its open runs, and record its tokens in the slots.  No-op if it was settled. */
int open_settle(struct open_runs *o, struct pending_plan *f, struct why *why);

#endif
