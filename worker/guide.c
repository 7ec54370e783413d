#include "worker/guide.h"

#include "base/alloc.h"
#include "base/err.h"
#include "worker/mask_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_SLOT = UINT32_MAX };

static const size_t bytes_default = (size_t)1 << 30;
/* Bounds of the masks that a grammar keeps, in bytes: the most for a grammar shared by all outputs, less
 * for one of many. */
enum { MASKS_MIN = 1 << 20, MASKS_MAX = 16 << 20 };
/* Units of work within a call: for a mask, and for all masks of a step. */
enum { AT_ONCE = 1 << 14, STEP_AT_ONCE = 1 << 16 };

/* A constraint in use. */
struct entry {
	struct entry *next;
	struct constraint *constraint;
	uint32_t refs; /* one for the number, if it has one, and one per slot */
	uint32_t number;
	bool numbered;
	struct mask_job *job;    /* owns the grammar while the pool runs it; NULL: none */
	struct grammar *grammar; /* NULL: not compiled, freed, or owned by the job */
	size_t bytes;            /* size of the grammar after its last mask; 0: not compiled */
	uint64_t id;
	char *why;        /* the reason why it does not compile; NULL: none */
	uint64_t used;    /* clock of the last request of a mask */
	int64_t rests_us; /* time of the first guide_rest() after that; 0: none yet */
};

struct expected {
	uint32_t at; /* position in the output */
	uint32_t index;
	uint64_t plan;
};

struct track {
	struct entry *constraint; /* NULL: no constraint; the rest is then unused */
	struct matcher *matcher;  /* NULL: to be created */
	uint32_t *tokens;
	uint32_t n, cap;
	uint32_t n_taken;     /* accepted by the matcher */
	struct mask_job *job; /* makes its mask, and owns the matcher; NULL: none */
	uint32_t *ready;      /* mask made by the pool; NULL: none */
	bool late;            /* plan `plan` requested a mask that was not ready */
	uint64_t plan;
	struct expected expected[GUIDE_AHEAD]; /* tokens that are not known yet, in order */
	uint32_t n_expected;
	char *failure; /* NULL: none */
	bool told;     /* the failure was returned by guide_take_failure() */
};

struct guide {
	struct guide_limits lim;
	struct lexicon *lexicon; /* NULL: none yet */
	struct entry *constraints;
	struct track *tracks;   /* [max_slots] */
	struct mask_pool *pool; /* NULL: everything is made within the call */
	uint64_t clock;
	uint64_t left; /* units left for this step */
	uint64_t last_id;
	uint64_t compiled, n_late, n_waits;
	uint32_t n_tracks_late;
	bool stale; /* freed memory was not returned to the system yet */
};

/* ---- constraints ---- */

static void free_grammar(struct guide *g, struct entry *e)
{
	if (e->grammar && g->pool)
		mask_pool_free_grammar(g->pool, e->grammar, false);
	else
		grammar_free(e->grammar);
	g->stale |= e->grammar != NULL;
	e->grammar = NULL;
	e->bytes = 0;
}

static void entry_use(const struct guide *g, struct entry *e)
{
	e->used = g->clock;
	e->rests_us = 0;
}

static void entry_unref(struct guide *g, struct entry *e)
{
	if (--e->refs)
		return;
	struct entry **at = &g->constraints;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	assert(!e->job);
	free_grammar(g, e);
	constraint_free(e->constraint);
	free(e->why);
	free(e);
}

static struct entry *find_number(const struct guide *g, uint32_t number)
{
	struct entry *e = g->constraints;
	while (e && !(e->numbered && e->number == number))
		e = e->next;
	return e;
}

void guide_remove(struct guide *g, uint32_t number)
{
	struct entry *e = find_number(g, number);
	if (!e)
		return;
	e->numbered = false;
	entry_unref(g, e);
}

void guide_add(struct guide *g, uint32_t number, struct constraint *f)
{
	struct entry *e = find_number(g, number);
	if (e && constraint_same(e->constraint, f))
		return; /* all state was resent */
	guide_remove(g, number);
	e = xcalloc(1, sizeof *e);
	*e = (struct entry){.next = g->constraints,
			    .constraint = constraint_ref(f),
			    .refs = 1,
			    .number = number,
			    .numbered = true,
			    .id = ++g->last_id};
	g->constraints = e;
}

static void matcher_drop(struct track *t)
{
	matcher_free(t->matcher);
	t->matcher = NULL;
	t->n_taken = 0;
}

/* Free a compiled grammar, and its matchers. */
static void decompile(struct guide *g, struct entry *e)
{
	for (uint32_t i = 0; i < g->lim.max_slots; i++)
		if (g->tracks[i].constraint == e)
			matcher_drop(&g->tracks[i]);
	free_grammar(g, e);
}

static size_t compiled_bytes(const struct entry *e)
{
	struct grammar_counts c = {.bytes = e->bytes};
	if (e->grammar)
		grammar_counts(e->grammar, &c);
	return c.bytes;
}

/* Decompile the least recently used grammars, except those owned by a job, until the rest takes at most
 * `limit` bytes. */
static void shrink(struct guide *g, size_t limit)
{
	size_t bytes = 0;
	for (const struct entry *e = g->constraints; e; e = e->next)
		bytes += compiled_bytes(e);
	while (bytes > limit) {
		struct entry *oldest = NULL;
		for (struct entry *e = g->constraints; e; e = e->next)
			if (e->grammar && (!oldest || e->used < oldest->used))
				oldest = e;
		if (!oldest)
			return;
		bytes -= compiled_bytes(oldest);
		decompile(g, oldest);
	}
}

static size_t mask_bytes(const struct guide *g)
{
	size_t n = 1;
	for (const struct entry *e = g->constraints; e; e = e->next)
		n += e->grammar != NULL;
	const size_t part = g->lim.bytes / 4 / n;
	return part < MASKS_MIN ? MASKS_MIN : part > MASKS_MAX ? MASKS_MAX : part;
}

/* ---- jobs ---- */

static void track_fail(struct track *t, const char *why)
{
	t->failure = xstrdup(why);
	t->told = false;
}

/* Cancel the track's job, and drop its mask. */
static void track_detach(struct track *t)
{
	if (t->job) {
		atomic_store_explicit(&t->job->cancelled, true, memory_order_relaxed);
		t->job->slot = NO_SLOT;
		t->job = NULL;
		t->n_taken = 0; /* the job has the matcher */
	}
	free(t->ready);
	t->ready = NULL;
}

/* Also forget that the mask was late: guide_awake() will not return the slot. */
static void track_settle(struct guide *g, struct track *t)
{
	track_detach(t);
	g->n_tracks_late -= t->late;
	t->late = false;
}

static void job_init(struct guide *g, struct track *t, struct mask_job *j)
{
	struct entry *e = t->constraint;
	*j = (struct mask_job){.lexicon = g->lexicon,
			       .constraint = e->constraint,
			       .mask_bytes = e->grammar ? 0 : mask_bytes(g),
			       .grammar = e->grammar,
			       .matcher = t->matcher,
			       .tokens = t->tokens,
			       .n = t->n,
			       .n_taken = t->n_taken,
			       .slot = (uint32_t)(t - g->tracks),
			       .owner = e};
}

/* Take back from a finished job the constraint's grammar and the track's matcher (both NULL: freed), and
 * record the job's errors. */
static void job_return(struct guide *g, struct track *t, struct entry *e, struct mask_job *j)
{
	g->compiled += !e->bytes && j->grammar;
	e->grammar = j->grammar;
	if (e->grammar)
		e->bytes = compiled_bytes(e);
	else
		decompile(g, e); /* frees the matchers of other outputs */
	entry_use(g, e);
	g->stale = true;
	if (j->rc == -EINVAL && !e->why)
		e->why = xstrdup(j->why.text);
	if (!t) {
		matcher_free(j->matcher);
		return;
	}
	t->matcher = j->matcher;
	t->n_taken = j->n_taken;
	if (j->rc && j->rc != -EAGAIN)
		track_fail(t, j->why.text);
}

static void job_start(struct guide *g, struct track *t)
{
	struct entry *e = t->constraint;
	struct mask_job *j = xcalloc(1, sizeof *j);
	char name[32];
	if (!e->grammar)
		shrink(g, 2 * g->lim.bytes); /* a step may bring a new constraint for every slot */
	job_init(g, t, j);
	j->tokens = xmalloc((t->n + 1) * sizeof *j->tokens);
	if (t->n)
		memcpy(j->tokens, t->tokens, t->n * sizeof *j->tokens);
	j->mask = xmalloc(guide_words(g) * sizeof *j->mask);
	t->matcher = NULL;
	e->grammar = NULL;
	e->refs++;
	e->job = t->job = j;
	snprintf(name, sizeof name, "%llu", (unsigned long long)e->id);
	mask_pool_put(g->pool, j, name);
}

static void job_free(struct mask_job *j)
{
	free(j->tokens);
	free(j->mask);
	free(j);
}

/* Return the constraint's output that has waited longest for a mask; NULL: none. */
static struct track *next_late(struct guide *g, const struct entry *e)
{
	struct track *next = NULL;
	for (uint32_t i = 0; g->n_tracks_late && i < g->lim.max_slots; i++) {
		struct track *t = &g->tracks[i];
		if (t->constraint == e && t->late && !t->ready && !t->failure && !t->n_expected &&
		    (!next || t->plan < next->plan))
			next = t;
	}
	return next;
}

/* Handle a finished job.  cancel: start no other job. */
static void job_collect(struct guide *g, struct mask_job *j, bool cancel)
{
	struct entry *e = j->owner;
	struct track *t = j->slot == NO_SLOT ? NULL : &g->tracks[j->slot], *next;
	const bool compiled = e->bytes == 0;
	e->job = NULL;
	if (t)
		t->job = NULL;
	job_return(g, t, e, j);
	if (t && !j->rc) {
		t->ready = j->mask;
		j->mask = NULL;
	}
	/* After a compilation the other outputs' masks are likely to be made within the call, at their next
	 * request. */
	if (!cancel && e->grammar && !compiled && (next = next_late(g, e)))
		job_start(g, next);
	entry_unref(g, e);
	job_free(j);
	shrink(g, g->lim.bytes); /* no step may follow that would shrink */
}

static void collect(struct guide *g)
{
	struct mask_job *j;
	while (g->pool && (j = mask_pool_take(g->pool, false)))
		job_collect(g, j, false);
}

static void cancel_all(struct guide *g)
{
	for (struct entry *e = g->constraints; e; e = e->next)
		if (e->job)
			atomic_store_explicit(&e->job->cancelled, true, memory_order_relaxed);
	for (uint32_t i = 0; i < g->lim.max_slots; i++)
		track_detach(&g->tracks[i]);
	struct mask_job *j;
	while (g->pool && (j = mask_pool_take(g->pool, true)))
		job_collect(g, j, true);
}

/* ---- lifecycle ---- */

int guide_new(struct guide **out, const struct guide_limits *lim, struct why *why)
{
	struct guide *g = xcalloc(1, sizeof *g);
	struct guide_work *w = &g->lim.work;
	g->lim = *lim;
	if (!g->lim.bytes)
		g->lim.bytes = bytes_default;
	w->at_once = w->at_once ? w->at_once : AT_ONCE;
	w->most = w->most ? w->most : GRAMMAR_MASK_WORK_MAX;
	g->left = STEP_AT_ONCE;
	const struct mask_pool_args a = {w->n_threads, w->most, g->lim.bytes / 4, w->begin, w->arg};
	int rc = w->n_threads ? mask_pool_new(&g->pool, &a, why) : 0;
	if (rc) {
		free(g);
		return rc;
	}
	g->tracks = xcalloc(lim->max_slots, sizeof *g->tracks);
	*out = g;
	return 0;
}

void guide_reset(struct guide *g)
{
	for (uint32_t i = 0; i < g->lim.max_slots; i++)
		guide_drop(g, i);
	for (struct entry *e = g->constraints, *next; e; e = next) {
		next = e->next;
		if (e->numbered) {
			e->numbered = false;
			entry_unref(g, e);
		}
	}
}

void guide_free(struct guide *g)
{
	if (!g)
		return;
	cancel_all(g);
	guide_reset(g);
	mask_pool_free(g->pool);
	lexicon_free(g->lexicon);
	free(g->tracks);
	free(g);
}

uint32_t guide_words(const struct guide *g)
{
	return (g->lim.n_vocab + 31) / 32;
}

int guide_vocabulary(struct guide *g, const struct vocabulary *v, struct why *why)
{
	struct lexicon_token *tokens = xcalloc(g->lim.n_vocab, sizeof *tokens);
	struct lexicon *lexicon;
	for (uint32_t i = 0; i < g->lim.n_vocab; i++) {
		tokens[i].kind = LEXICON_CONTROL;
		if (i >= v->n)
			continue;
		tokens[i] = (struct lexicon_token){v->bytes + v->at[i], v->at[i + 1] - v->at[i],
						   (enum lexicon_kind)v->kinds[i]};
	}
	int rc = lexicon_new(tokens, g->lim.n_vocab, &lexicon, why);
	free(tokens);
	if (rc)
		return err_prefix(why, rc, "the vocabulary");
	cancel_all(g);
	for (struct entry *e = g->constraints; e; e = e->next) {
		decompile(g, e);
		free(e->why);
		e->why = NULL;
	}
	lexicon_free(g->lexicon);
	g->lexicon = lexicon;
	return 0;
}

/* ---- outputs ---- */

static void track_clear(struct guide *g, struct track *t)
{
	track_settle(g, t);
	matcher_drop(t);
	free(t->failure);
	t->failure = NULL;
	t->n = t->n_expected = 0; /* the memory of tokens is kept */
}

/* Cut the output to its first n tokens. */
static void track_cut(struct guide *g, struct track *t, uint32_t n)
{
	if (n >= t->n)
		return;
	track_settle(g, t);
	while (t->n_expected && t->expected[t->n_expected - 1].at >= n)
		t->n_expected--;
	t->n = n;
	if (t->n_taken > n) {
		matcher_rollback(t->matcher, t->n_taken - n);
		t->n_taken = n;
	}
	free(t->failure);
	t->failure = NULL;
}

static void track_push(struct track *t, uint32_t token)
{
	array_grow(t->tokens, t->cap, (size_t)t->n + 1);
	t->tokens[t->n++] = token;
}

void guide_drop(struct guide *g, uint32_t slot)
{
	struct track *t = &g->tracks[slot];
	struct entry *e = t->constraint;
	if (!e)
		return;
	track_clear(g, t);
	free(t->tokens);
	*t = (struct track){0};
	entry_unref(g, e);
}

int guide_set(struct guide *g, uint32_t slot, uint32_t number, const uint32_t *output, uint32_t n,
	      struct why *why)
{
	struct track *t = &g->tracks[slot];
	struct entry *e = number ? find_number(g, number) : NULL;
	guide_drop(g, slot);
	if (!number)
		return 0;
	if (!e)
		return err_why(why, -EINVAL, "form %u is not known", number);
	t->constraint = e;
	e->refs++;
	for (uint32_t i = 0; i < n; i++)
		track_push(t, output[i]);
	/* Compile while the prompt is computed.  The first mask is usually quick once the grammar is
	 * compiled. */
	if (g->pool && g->lexicon && !e->grammar && !e->job && !e->why)
		job_start(g, t);
	return 0;
}

void guide_copy(struct guide *g, uint32_t child, uint32_t parent, uint32_t n)
{
	struct track *to = &g->tracks[child], *from = &g->tracks[parent];
	assert(child != parent);
	guide_drop(g, child);
	if (!from->constraint)
		return;
	assert(n <= from->n);
	*to = *from;
	to->constraint->refs++;
	to->tokens = NULL;
	to->cap = 0;
	array_grow(to->tokens, to->cap, from->n);
	if (from->n)
		memcpy(to->tokens, from->tokens, from->n * sizeof *to->tokens);
	to->matcher = from->matcher ? matcher_copy(from->matcher) : NULL;
	to->failure = from->failure ? xstrdup(from->failure) : NULL;
	to->told = false;
	to->job = NULL;
	to->ready = NULL;
	to->late = false;
	if (!to->matcher)
		to->n_taken = 0;
	track_cut(g, to, n);
}

void guide_put(struct guide *g, uint32_t slot, uint32_t at, uint32_t token)
{
	struct track *t = &g->tracks[slot];
	if (!t->constraint)
		return;
	assert(at <= t->n);
	track_cut(g, t, at);
	track_settle(g, t);
	track_push(t, token);
}

bool guide_has(const struct guide *g, uint32_t slot)
{
	return g && g->tracks[slot].constraint;
}

/* ---- expected tokens ---- */

void guide_expect(struct guide *g, uint32_t slot, uint64_t plan, uint32_t index)
{
	struct track *t = &g->tracks[slot];
	if (!t->constraint)
		return;
	assert(t->n_expected < GUIDE_AHEAD);
	assert(!t->job);
	track_settle(g, t); /* the mask was for the token that is now expected */
	t->expected[t->n_expected++] = (struct expected){t->n, index, plan};
	track_push(t, 0);
}

bool guide_waits(const struct guide *g, uint32_t slot)
{
	return g->tracks[slot].n_expected > 0;
}

void guide_receive(struct guide *g, uint64_t plan, const int32_t *tokens, uint32_t n)
{
	for (uint32_t i = 0; i < g->lim.max_slots; i++) {
		struct track *t = &g->tracks[i];
		if (!t->n_expected || t->expected[0].plan != plan)
			continue;
		assert(t->expected[0].index < n);
		t->tokens[t->expected[0].at] = (uint32_t)tokens[t->expected[0].index];
		t->n_expected--;
		memmove(t->expected, t->expected + 1, t->n_expected * sizeof *t->expected);
	}
}

/* ---- masks ---- */

/* Make the mask in this call, within the bound of work. */
static int make_at_once(struct guide *g, struct track *t, uint32_t *out)
{
	struct entry *e = t->constraint;
	struct mask_job j;
	const uint64_t before = e->grammar ? grammar_work_done(e->grammar) : 0;
	const uint64_t units = g->lim.work.at_once < g->left ? g->lim.work.at_once : g->left;
	if (!e->grammar)
		shrink(g, 2 * g->lim.bytes);
	job_init(g, t, &j);
	j.mask = out;
	j.rc = mask_make(&j, g->pool ? (struct grammar_work){.units = units} : (struct grammar_work){0});
	job_return(g, t, e, &j);
	if (!g->pool || !e->grammar)
		return j.rc;
	const uint64_t used = grammar_work_done(e->grammar) - before;
	g->left -= used < g->left ? used : g->left;
	if (used > units + AT_ONCE) {
		g->n_waits++;
		if (g->lim.work.report)
			atomic_fetch_add(&g->lim.work.report->waits, 1);
	}
	return j.rc;
}

static enum guide_answer be_late(struct guide *g, struct track *t, uint64_t plan)
{
	g->n_tracks_late += !t->late;
	g->n_late++;
	t->late = true;
	t->plan = plan;
	return GUIDE_LATER;
}

enum guide_answer guide_mask(struct guide *g, uint32_t slot, uint64_t plan, uint32_t *out)
{
	struct track *t = &g->tracks[slot];
	struct entry *e = t->constraint;
	int rc = 0;
	collect(g);
	if (!e || t->failure)
		return GUIDE_NONE;
	assert(!t->n_expected);
	entry_use(g, e);
	if (e->why) {
		track_settle(g, t);
		track_fail(t, e->why);
		return GUIDE_NONE;
	}
	if (t->ready)
		memcpy(out, t->ready, guide_words(g) * sizeof *out);
	else if (t->job || e->job)
		return be_late(g, t, plan);
	else if (!g->pool || (e->grammar && g->left))
		rc = make_at_once(g, t, out);
	else
		rc = -EAGAIN;
	if (rc == -EAGAIN) {
		job_start(g, t);
		return be_late(g, t, plan);
	}
	track_settle(g, t);
	return rc ? GUIDE_NONE : GUIDE_MASK;
}

enum guide_answer guide_mask_after(struct guide *g, uint32_t slot, uint32_t at, uint32_t token, uint32_t *out)
{
	struct track *t = &g->tracks[slot];
	const struct entry *e = t->constraint;
	guide_put(g, slot, at, token);
	/* No thread makes the mask of a draft: it would take the matcher away from the next step. */
	if (!e->grammar || e->job || t->failure || (g->pool && !g->left))
		return GUIDE_NONE;
	return make_at_once(g, t, out) ? GUIDE_NONE : GUIDE_MASK;
}

int guide_fd(const struct guide *g)
{
	return g->pool ? mask_pool_fd(g->pool) : -1;
}

bool guide_awake(struct guide *g, uint64_t ended, uint32_t *slot)
{
	collect(g);
	for (uint32_t i = 0; g->n_tracks_late && i < g->lim.max_slots; i++) {
		struct track *t = &g->tracks[i];
		if (!t->late || t->plan > ended || (!t->ready && !t->failure && t->constraint->job))
			continue;
		t->late = false;
		g->n_tracks_late--;
		*slot = i;
		return true;
	}
	return false;
}

const char *guide_take_failure(struct guide *g, uint32_t slot)
{
	struct track *t = &g->tracks[slot];
	if (!t->failure || t->told)
		return NULL;
	t->told = true;
	return t->failure;
}

void guide_trim(struct guide *g)
{
	collect(g);
	shrink(g, g->lim.bytes);
	g->left = STEP_AT_ONCE;
	g->clock++;
}

void guide_rest(struct guide *g, int64_t now_us)
{
	size_t bytes = 0;
	bool busy = false;
	collect(g);
	for (struct entry *e = g->constraints; e; e = e->next) {
		if (e->grammar && e->rests_us && now_us - e->rests_us >= GUIDE_IDLE_US)
			decompile(g, e);
		else if (!e->rests_us)
			e->rests_us = now_us;
		bytes += compiled_bytes(e);
		busy = busy || e->grammar || e->job;
	}
	if (g->lim.work.report)
		atomic_store(&g->lim.work.report->bytes, bytes);
	if (!g->pool || !g->stale || busy)
		return;
	g->stale = false;
	mask_pool_free_grammar(g->pool, NULL, true);
}

void guide_counts(const struct guide *g, struct guide_counts *out)
{
	*out = (struct guide_counts){.compiled = g->compiled, .n_late = g->n_late, .n_waits = g->n_waits};
	for (const struct entry *e = g->constraints; e; e = e->next) {
		out->n_constraints++;
		out->n_compiled += e->bytes > 0;
		out->bytes += compiled_bytes(e);
	}
}
