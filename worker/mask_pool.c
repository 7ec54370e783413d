#include "worker/mask_pool.h"

#include "base/alloc.h"
#include "base/err.h"
#include "grammar/source.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	NICE = 10,
	SLICE = 1 << 14, /* units between two checks for cancellation */
};
static const size_t large_bytes = 4 << 20;

struct mask_pool {
	struct mask_pool_args args;
	struct work_pool *threads;
	int fd;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t done;
	struct mask_job *first, **last; /* jobs that are done */
	size_t n;                       /* jobs put, and not taken back */
	size_t bytes;                   /* size of the grammars in the jobs that are done */
	uint32_t n_freeing;
	bool trim; /* trim the memory when no grammar is being freed */
};

/* ---- a job ---- */

static int compile(struct mask_job *j, struct grammar_work work)
{
	const struct grammar_limits limits = {.mask_bytes = j->mask_bytes, .work = work};
	struct ast *a = NULL;
	int rc = 0;
	if (!j->lexicon)
		rc = err_why(&j->why, -EINVAL, "this worker has not received a vocabulary");
	else if (j->constraint->language >= GRAMMAR_N_LANGUAGES)
		rc = err_why(&j->why, -EINVAL, "a form of language %d, which this worker lacks",
			     j->constraint->language);
	if (!rc)
		rc = grammar_parse((enum grammar_language)j->constraint->language, j->constraint->text,
				   j->constraint->n, NULL, &a, &j->why);
	if (!rc)
		rc = grammar_new(a, j->lexicon, &limits, &j->grammar, &j->why);
	ast_free(a);
	return !rc || rc == -EAGAIN ? rc : -EINVAL;
}

/* Bring the matcher to the end of the output. */
static int catch_up(struct mask_job *j)
{
	if (!j->matcher)
		j->matcher = matcher_new(j->grammar);
	while (j->n_taken < j->n && !matcher_ended(j->matcher)) {
		const uint32_t token = j->tokens[j->n_taken];
		int rc = matcher_accept(j->matcher, token);
		if (rc == -EAGAIN)
			return rc;
		if (rc)
			return err_why(&j->why, -EPROTO, "the output's token %u (%u): %s", j->n_taken, token,
				       rc == -E2BIG ? matcher_error(j->matcher)
						    : "its form does not allow it there");
		j->n_taken++;
	}
	return 0;
}

static int find_mask(struct mask_job *j)
{
	const struct lexicon *v = j->lexicon;
	const uint32_t *mask;
	uint32_t any = 0;
	if (matcher_ended(j->matcher)) {
		memset(j->mask, 0, v->n_words * sizeof *j->mask);
		for (uint32_t i = 0; i < v->n_ends; i++)
			j->mask[v->ends[i] / 32] |= (uint32_t)1 << v->ends[i] % 32;
		return 0;
	}
	int rc = matcher_mask(j->matcher, &mask);
	if (rc)
		return rc == -EAGAIN ? rc : err_why(&j->why, -EPROTO, "%s", matcher_error(j->matcher));
	memcpy(j->mask, mask, v->n_words * sizeof *j->mask);
	for (size_t w = 0; !any && w < v->n_words; w++)
		any = mask[w];
	return any ? 0 : err_why(&j->why, -EPROTO, "no token of the vocabulary can follow in its form");
}

int mask_make(struct mask_job *j, struct grammar_work work)
{
	int rc = j->grammar ? 0 : compile(j, work);
	if (rc)
		return rc;
	grammar_allow(j->grammar, work);
	rc = catch_up(j);
	return rc ? rc : find_mask(j);
}

/* ---- threads ---- */

/* Compile without a bound of work: the service that accepted the grammar has limited it. */
static bool goes_on_compiling(void *arg)
{
	const struct mask_job *j = arg;
	return !atomic_load_explicit(&j->cancelled, memory_order_relaxed);
}

static bool goes_on(void *arg)
{
	struct mask_job *j = arg;
	j->used += j->slice;
	return goes_on_compiling(j) && j->used < j->most;
}

static void run(struct mask_job *j)
{
	const uint64_t units = j->pool->args.units;
	j->slice = units < SLICE ? units : SLICE;
	j->most = units * (j->n - j->n_taken + 1);
	j->rc = j->grammar
			? 0
			: compile(j,
				  (struct grammar_work){.units = SLICE, .more = goes_on_compiling, .arg = j});
	if (!j->rc)
		j->rc = mask_make(j, (struct grammar_work){.units = j->slice, .more = goes_on, .arg = j});
	if (j->rc == -EAGAIN && goes_on_compiling(j))
		j->rc = err_why(
			&j->why, -EPROTO,
			"its mask takes more than %" PRIu64
			" units of work: the schema or grammar needs fewer or shorter patterns and counts "
			"that exclude each other (not, allOf, {n,m})",
			units);
}

static size_t grammar_bytes(const struct grammar *g)
{
	struct grammar_counts c = {0};
	if (g)
		grammar_counts(g, &c);
	return c.bytes;
}

/* Free the grammar of a job for which the guide would have no room. */
static void drop_grammar(struct mask_job *j)
{
	matcher_free(j->matcher);
	grammar_free(j->grammar);
	j->matcher = NULL;
	j->grammar = NULL;
	j->n_taken = 0;
}

static void run_job(struct work *w)
{
	struct mask_job *j = (struct mask_job *)((char *)w - offsetof(struct mask_job, work));
	struct mask_pool *p = j->pool;
	setpriority(PRIO_PROCESS, 0, NICE); /* applies to this thread */
	if (p->args.begin)
		p->args.begin(p->args.arg);
	run(j);
	j->bytes = grammar_bytes(j->grammar);
	pthread_mutex_lock(&p->lock);
	if (p->bytes + j->bytes > p->args.bytes && p->first) {
		pthread_mutex_unlock(&p->lock);
		drop_grammar(j);
		j->bytes = 0;
		pthread_mutex_lock(&p->lock);
	}
	p->bytes += j->bytes;
	j->next = NULL;
	*p->last = j;
	p->last = &j->next;
	eventfd_write(p->fd, 1);
	pthread_cond_signal(&p->done);
	pthread_mutex_unlock(&p->lock);
}

static void run_free(struct work *w)
{
	struct mask_job *j = (struct mask_job *)((char *)w - offsetof(struct mask_job, work));
	struct mask_pool *p = j->pool;
	setpriority(PRIO_PROCESS, 0, NICE);
	grammar_free(j->grammar);
	pthread_mutex_lock(&p->lock);
	p->trim |= j->trim;
	const bool trim = !--p->n_freeing && p->trim;
	if (trim)
		p->trim = false;
	pthread_mutex_unlock(&p->lock);
	free(j);
	if (trim)
		malloc_trim(0);
}

int mask_pool_new(struct mask_pool **out, const struct mask_pool_args *a, struct why *why)
{
	const struct work_limits limits = {.n_threads = a->n_threads,
					   .items = SIZE_MAX,
					   .bytes = SIZE_MAX,
					   .client_items = SIZE_MAX,
					   .client_bytes = SIZE_MAX};
	struct mask_pool *p = xcalloc(1, sizeof *p);
	p->args = *a;
	p->last = &p->first;
	p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int rc = p->fd < 0 ? err_why(why, -errno, "no eventfd: %s", strerror(errno))
			   : work_pool_start(&limits, &p->threads, why);
	if (rc) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return rc;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->done, NULL);
	*out = p;
	return 0;
}

void mask_pool_free(struct mask_pool *p)
{
	if (!p)
		return;
	assert(p->n == 0);
	work_pool_stop(p->threads);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	close(p->fd);
	free(p);
}

int mask_pool_fd(const struct mask_pool *p)
{
	return p->fd;
}

static void put(struct mask_pool *p, struct mask_job *j, const char *name)
{
	struct why why;
	if (work_pool_put(p->threads, name, &j->work, &why))
		assert(!"a queue without a bound is full");
}

void mask_pool_put(struct mask_pool *p, struct mask_job *j, const char *name)
{
	j->pool = p;
	j->used = 0;
	j->work = (struct work){.run = run_job};
	p->n++;
	put(p, j, name);
}

struct mask_job *mask_pool_take(struct mask_pool *p, bool wait)
{
	eventfd_t notices;
	struct mask_job *j;
	if (!p->n)
		return NULL;
	pthread_mutex_lock(&p->lock);
	while (wait && !p->first)
		pthread_cond_wait(&p->done, &p->lock);
	j = p->first;
	if (j) {
		p->first = j->next;
		p->n--;
		p->bytes -= j->bytes;
		if (!p->first) {
			p->last = &p->first;
			eventfd_read(p->fd, &notices);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return j;
}

void mask_pool_free_grammar(struct mask_pool *p, struct grammar *g, bool trim)
{
	struct mask_job *j = xcalloc(1, sizeof *j);
	*j = (struct mask_job){.grammar = g,
			       .trim = trim || grammar_bytes(g) >= large_bytes,
			       .pool = p,
			       .work = {.run = run_free}};
	pthread_mutex_lock(&p->lock);
	p->n_freeing++;
	pthread_mutex_unlock(&p->lock);
	put(p, j, "");
}
