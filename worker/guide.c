#include "worker/guide.h"

#include "base/alloc.h"
#include "base/err.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const size_t bytes_default = (size_t)1 << 30;
/* Of the masks that a grammar keeps: much for one that all outputs share, a part of it for one of many. */
enum { MASKS_MIN = 1 << 20, MASKS_MAX = 16 << 20 };

/* A form that is in use. */
struct entry {
	struct entry *next;
	struct form *form;
	uint32_t refs; /* one of the number, if it has one, and one of each slot */
	uint32_t number;
	bool numbered;
	struct grammar *grammar; /* NULL: not compiled yet, or not any more */
	char *why;               /* it does not compile: the reason */
	uint64_t used;           /* turn in which a mask was made last */
};

struct expected {
	uint32_t at; /* in the output */
	uint32_t index;
	uint64_t plan;
};

struct track {
	struct entry *form;      /* NULL: no form, and nothing else */
	struct matcher *matcher; /* NULL: to be made */
	uint32_t *tokens;
	uint32_t n, cap;
	uint32_t n_taken;                      /* by the matcher */
	struct expected expected[GUIDE_AHEAD]; /* tokens that are not known yet, in order */
	uint32_t n_expected;
	char *failure; /* NULL: none */
	bool told;     /* the failure was taken */
};

struct guide {
	struct guide_limits lim;
	struct lexicon *lexicon; /* NULL: none yet */
	struct entry *forms;
	struct track *tracks; /* [max_slots] */
	uint64_t turn;
	uint64_t compiled;
};

/* ---- forms ---- */

static void entry_unref(struct guide *g, struct entry *e)
{
	if (--e->refs)
		return;
	struct entry **at = &g->forms;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	grammar_free(e->grammar);
	form_free(e->form);
	free(e->why);
	free(e);
}

static struct entry *find_number(const struct guide *g, uint32_t number)
{
	struct entry *e = g->forms;
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

void guide_add(struct guide *g, uint32_t number, struct form *f)
{
	struct entry *e = find_number(g, number);
	if (e && form_same(e->form, f))
		return; /* all state was sent again */
	guide_remove(g, number);
	e = xcalloc(1, sizeof *e);
	*e = (struct entry){
		.next = g->forms, .form = form_ref(f), .refs = 1, .number = number, .numbered = true};
	g->forms = e;
}

static void matcher_drop(struct track *t)
{
	matcher_free(t->matcher);
	t->matcher = NULL;
	t->n_taken = 0;
}

/* Frees a compiled grammar, with the matchers in it. */
static void decompile(struct guide *g, struct entry *e)
{
	for (uint32_t i = 0; i < g->lim.max_slots; i++)
		if (g->tracks[i].form == e)
			matcher_drop(&g->tracks[i]);
	grammar_free(e->grammar);
	e->grammar = NULL;
}

static size_t compiled_bytes(const struct entry *e)
{
	struct grammar_counts c = {0};
	if (e->grammar)
		grammar_counts(e->grammar, &c);
	return c.bytes;
}

/* Decompiles those not used for the longest time, until the others have at most this many bytes. */
static void shrink(struct guide *g, size_t limit)
{
	size_t bytes = 0;
	for (const struct entry *e = g->forms; e; e = e->next)
		bytes += compiled_bytes(e);
	while (bytes > limit) {
		struct entry *oldest = NULL;
		for (struct entry *e = g->forms; e; e = e->next)
			if (e->grammar && (!oldest || e->used < oldest->used))
				oldest = e;
		bytes -= compiled_bytes(oldest);
		decompile(g, oldest);
	}
}

static size_t mask_bytes(const struct guide *g)
{
	size_t n = 1;
	for (const struct entry *e = g->forms; e; e = e->next)
		n += e->grammar != NULL;
	const size_t part = g->lim.bytes / 4 / n;
	return part < MASKS_MIN ? MASKS_MIN : part > MASKS_MAX ? MASKS_MAX : part;
}

static void compile(struct guide *g, struct entry *e)
{
	const struct grammar_limits limits = {.mask_bytes =
						      mask_bytes(g)}; /* the rest decides what is taken */
	char why[512] = "";
	struct ast *a = NULL;
	int rc = 0;
	shrink(g, 2 * g->lim.bytes); /* a step may bring a form for every slot */
	if (!g->lexicon)
		rc = err_why(why, sizeof why, -EINVAL, "this worker has not received a vocabulary");
	else if (e->form->language > GRAMMAR_FORM)
		rc = err_why(why, sizeof why, -ENOTSUP, "a form of language %d, which this worker lacks",
			     e->form->language);
	if (!rc)
		rc = grammar_parse((enum grammar_language)e->form->language, e->form->text, e->form->n, NULL,
				   &a, why, sizeof why);
	if (!rc)
		rc = grammar_new(a, g->lexicon, &limits, &e->grammar, why, sizeof why);
	ast_free(a);
	g->compiled += rc == 0;
	if (rc)
		e->why = xstrdup(why);
}

/* ---- lifecycle ---- */

void guide_new(struct guide **out, const struct guide_limits *lim)
{
	struct guide *g = xcalloc(1, sizeof *g);
	g->lim = *lim;
	if (!g->lim.bytes)
		g->lim.bytes = bytes_default;
	g->tracks = xcalloc(lim->max_slots, sizeof *g->tracks);
	*out = g;
}

void guide_reset(struct guide *g)
{
	for (uint32_t i = 0; i < g->lim.max_slots; i++)
		guide_drop(g, i);
	for (struct entry *e = g->forms, *next; e; e = next) {
		next = e->next;
		entry_unref(g, e); /* the number's */
	}
}

void guide_free(struct guide *g)
{
	if (!g)
		return;
	guide_reset(g);
	lexicon_free(g->lexicon);
	free(g->tracks);
	free(g);
}

uint32_t guide_words(const struct guide *g)
{
	return (g->lim.n_vocab + 31) / 32;
}

int guide_vocabulary(struct guide *g, const struct vocabulary *v, char *why, size_t why_n)
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
	int rc = lexicon_new(tokens, g->lim.n_vocab, &lexicon, why, why_n);
	free(tokens);
	if (rc)
		return err_prefix(why, why_n, rc, "the vocabulary");
	for (struct entry *e = g->forms; e; e = e->next) {
		decompile(g, e);
		free(e->why);
		e->why = NULL;
	}
	lexicon_free(g->lexicon);
	g->lexicon = lexicon;
	return 0;
}

/* ---- outputs ---- */

static void track_fail(struct track *t, const char *why)
{
	t->failure = xstrdup(why);
	t->told = false;
}

static void track_clear(struct track *t)
{
	matcher_drop(t);
	free(t->failure);
	t->failure = NULL;
	t->n = t->n_expected = 0; /* tokens: kept for the next one */
}

/* As it was behind its first n tokens. */
static void track_cut(struct track *t, uint32_t n)
{
	if (n >= t->n)
		return;
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
	struct entry *e = t->form;
	if (!e)
		return;
	track_clear(t);
	free(t->tokens);
	*t = (struct track){0};
	entry_unref(g, e);
}

int guide_set(struct guide *g, uint32_t slot, uint32_t number, const uint32_t *output, uint32_t n, char *why,
	      size_t why_n)
{
	struct track *t = &g->tracks[slot];
	struct entry *e = number ? find_number(g, number) : NULL;
	guide_drop(g, slot);
	if (!number)
		return 0;
	if (!e)
		return err_why(why, why_n, -EINVAL, "form %u is not known", number);
	t->form = e;
	e->refs++;
	for (uint32_t i = 0; i < n; i++)
		track_push(t, output[i]);
	return 0;
}

void guide_copy(struct guide *g, uint32_t child, uint32_t parent, uint32_t n)
{
	struct track *to = &g->tracks[child], *from = &g->tracks[parent];
	assert(child != parent);
	guide_drop(g, child);
	if (!from->form)
		return;
	assert(n <= from->n);
	*to = *from;
	to->form->refs++;
	to->tokens = NULL;
	to->cap = 0;
	array_grow(to->tokens, to->cap, from->n);
	if (from->n)
		memcpy(to->tokens, from->tokens, from->n * sizeof *to->tokens);
	to->matcher = from->matcher ? matcher_copy(from->matcher) : NULL;
	to->failure = from->failure ? xstrdup(from->failure) : NULL;
	to->told = false;
	track_cut(to, n);
}

void guide_put(struct guide *g, uint32_t slot, uint32_t at, uint32_t token)
{
	struct track *t = &g->tracks[slot];
	if (!t->form)
		return;
	assert(at <= t->n);
	track_cut(t, at);
	track_push(t, token);
}

bool guide_has(const struct guide *g, uint32_t slot)
{
	return g && g->tracks[slot].form;
}

/* ---- tokens on their way ---- */

void guide_expect(struct guide *g, uint32_t slot, uint64_t plan, uint32_t index)
{
	struct track *t = &g->tracks[slot];
	if (!t->form)
		return;
	assert(t->n_expected < GUIDE_AHEAD);
	t->expected[t->n_expected++] = (struct expected){t->n, index, plan};
	track_push(t, 0);
}

bool guide_waits(const struct guide *g, uint32_t slot)
{
	return g->tracks[slot].n_expected > 0;
}

void guide_hear(struct guide *g, uint64_t plan, const int32_t *tokens, uint32_t n)
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

/* Brings the matcher to the end of the output.  False: the output has failed. */
static bool catch_up(struct guide *g, struct track *t)
{
	struct entry *e = t->form;
	char why[160];
	if (!e->grammar && !e->why)
		compile(g, e);
	if (!e->grammar) {
		track_fail(t, e->why);
		return false;
	}
	if (!t->matcher)
		t->matcher = matcher_new(e->grammar);
	while (t->n_taken < t->n && !matcher_ended(t->matcher)) {
		int rc = matcher_accept(t->matcher, t->tokens[t->n_taken]);
		if (rc == 0) {
			t->n_taken++;
			continue;
		}
		err_why(why, sizeof why, rc, "the output's token %u (%u): %s", t->n_taken,
			t->tokens[t->n_taken],
			rc == -E2BIG ? matcher_error(t->matcher) : "its form does not allow it there");
		track_fail(t, why);
		return false;
	}
	return true;
}

bool guide_mask(struct guide *g, uint32_t slot, uint32_t *out)
{
	struct track *t = &g->tracks[slot];
	const uint32_t *mask;
	uint32_t any = 0;
	if (!t->form || t->failure)
		return false;
	assert(!t->n_expected);
	t->form->used = g->turn;
	if (!catch_up(g, t))
		return false;
	if (matcher_ended(t->matcher)) {
		memset(out, 0, guide_words(g) * sizeof *out);
		for (uint32_t i = 0; i < g->lexicon->n_ends; i++)
			out[g->lexicon->ends[i] / 32] |= (uint32_t)1 << g->lexicon->ends[i] % 32;
		return true;
	}
	if (matcher_mask(t->matcher, &mask)) {
		track_fail(t, matcher_error(t->matcher));
		return false;
	}
	memcpy(out, mask, guide_words(g) * sizeof *out);
	for (uint32_t w = 0; !any && w < guide_words(g); w++)
		any = out[w];
	if (!any)
		track_fail(t, "no token of the vocabulary can follow in its form");
	return any;
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
	shrink(g, g->lim.bytes);
	g->turn++;
}

void guide_counts(const struct guide *g, struct guide_counts *out)
{
	*out = (struct guide_counts){.compiled = g->compiled};
	for (const struct entry *e = g->forms; e; e = e->next) {
		out->n_forms++;
		out->n_compiled += e->grammar != NULL;
		out->bytes += compiled_bytes(e);
	}
}
