/* mask_pool.h - compiles grammars and makes token masks, on the caller's thread or on threads of its own.
 *
 *     mask_make(&job, work)            on this thread, within a bound of work
 *     mask_pool_put(p, &job)           on a thread of the pool, in turns; the pool owns the job ...
 *     mask_pool_take(p)                ... until it is taken back here, once mask_pool_fd() is readable
 *
 * A job has exclusive use of its grammar and matcher.  The pool's threads have low priority, so that steps
 * go first. */
#ifndef QUERN_WORKER_MASK_POOL_H
#define QUERN_WORKER_MASK_POOL_H

#include "base/err.h"
#include "base/work_pool.h"
#include "grammar/grammar.h"
#include "proto/constraint.h"

#include <stdatomic.h>

struct mask_pool;

struct mask_job {
	/* Set by the caller. */
	const struct lexicon *lexicon; /* NULL: this worker has no vocabulary */
	const struct constraint *constraint;
	size_t mask_bytes;       /* limit of the compiled grammar's masks */
	struct grammar *grammar; /* NULL: to be compiled */
	struct matcher *matcher; /* NULL: to be created */
	uint32_t *tokens;        /* [n] the output */
	uint32_t n, n_taken;     /* tokens in all, and accepted by the matcher so far */
	uint32_t *mask;          /* out: [n_words] the tokens that may come next */
	int rc;                  /* out: result of mask_make() */
	struct why why;
	atomic_bool cancelled;
	uint32_t slot; /* for the caller */
	void *owner;   /* for the caller */
	/* Used by the pool. */
	struct work work;
	struct mask_pool *pool;
	struct mask_job *next;
	uint64_t used, slice, most; /* units */
	size_t bytes;               /* bytes of its grammar */
	bool trim;
};

/* Compile the grammar, if needed, and make the mask.  For an output that has ended, the mask has the end
 * tokens.  0; -EAGAIN: the bound of work was reached, and the work so far is kept; -EINVAL: the grammar
 * does not compile, and j->grammar stays NULL; -EPROTO: the output cannot continue.  -EINVAL and -EPROTO
 * with the reason. */
int mask_make(struct mask_job *j, struct grammar_work work);

struct mask_pool_args {
	unsigned n_threads;
	uint64_t units; /* bound of a mask's work, per token of the output that is accepted to make it */
	/* Bound of the bytes of grammars in jobs that are done and not taken back.  A job beyond it keeps
	 * its mask, but its grammar and matcher are freed. */
	size_t bytes;
	void (*begin)(void *arg); /* for tests: called by the thread that begins a job; or NULL */
	void *arg;
};

/* Start the threads.  -errno with the reason. */
int mask_pool_new(struct mask_pool **out, const struct mask_pool_args *a, struct why *why);
/* Cancel all jobs and free the pool.  All jobs must have been taken back; NULL is fine. */
void mask_pool_free(struct mask_pool *p);
int mask_pool_fd(const struct mask_pool *p); /* readable: a job is done */
/* Queue a job.  name: of its constraint; constraints take turns. */
void mask_pool_put(struct mask_pool *p, struct mask_job *j, const char *name);
/* Take a job that is done; NULL: none.  wait: block until one is done, if any are left. */
struct mask_job *mask_pool_take(struct mask_pool *p, bool wait);
/* Free a grammar that no matcher uses, on another thread.  The memory is returned to the system if the
 * grammar was large, or if trim is set, once no other grammar is being freed.  g: NULL to trim only. */
void mask_pool_free_grammar(struct mask_pool *p, struct grammar *g, bool trim);

#endif
