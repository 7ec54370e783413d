/* matcher.c - a position in a text: its state and the bytes before it. */
#include "grammar/grammar_impl.h"
#include "base/alloc.h"
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The position before a call that accepted something. */
struct mark {
	size_t bytes;
	uint32_t state;
};

struct matcher {
	struct grammar *g;
	uint64_t generation; /* generation of the machine in which state and marks are valid */
	uint32_t state;
	bool ended;
	struct buf text; /* accepted bytes */
	struct mark *marks;
	size_t n_marks, cap_marks;
	char error[96]; /* message of the last -E2BIG */
};

struct matcher *matcher_new(struct grammar *g)
{
	struct matcher *m = xcalloc(1, sizeof *m);
	m->g = g;
	return m;
}

struct matcher *matcher_copy(const struct matcher *from)
{
	struct matcher *m = xmemdup(from, sizeof *from);
	m->text = (struct buf){0};
	if (from->text.len)
		buf_put(&m->text, from->text.p, from->text.len);
	m->marks = NULL;
	m->n_marks = m->cap_marks = 0;
	array_grow(m->marks, m->cap_marks, from->n_marks);
	if (from->n_marks)
		memcpy(m->marks, from->marks, from->n_marks * sizeof *m->marks);
	m->n_marks = from->n_marks;
	return m;
}

void matcher_free(struct matcher *m)
{
	if (!m)
		return;
	buf_fini(&m->text);
	free(m->marks);
	free(m);
}

/* Follow p[0..n) from *state as far as possible.  Return the number of bytes followed. */
static size_t follow(struct matcher *m, uint32_t *state, const char *p, size_t n)
{
	size_t i = 0;
	for (; i < n; i++) {
		uint32_t to = machine_step(m->g->m, *state, (uint8_t)p[i]);
		if (to == MACHINE_DEAD)
			break;
		*state = to;
	}
	return i;
}

/* Find the state again after a reset. -ENOMEM: it does not fit even in empty caches. -EAGAIN: the work limit
 * is reached. */
static int sync(struct matcher *m)
{
	struct machine *a = m->g->m;
	int rc;
	if (m->generation == machine_generation(a))
		return 0;
	uint32_t state = machine_start(a);
	size_t at = 0;
	for (size_t i = 0; i <= m->n_marks; i++) {
		size_t to = i < m->n_marks ? m->marks[i].bytes : m->text.len;
		const bool followed = to == at || follow(m, &state, m->text.p + at, to - at) == to - at;
		if ((rc = machine_error(a)))
			return rc;
		if (!followed)
			return -ENOMEM;
		at = to;
		if (i < m->n_marks)
			m->marks[i].state = state;
	}
	m->state = state;
	m->generation = machine_generation(a);
	return 0;
}

/* For the `again` loops: after -ENOMEM, retry once with empty caches. */
static bool try_again(struct matcher *m, int *rc, bool *tried)
{
	struct grammar *g = m->g;
	if (*rc != -ENOMEM)
		return false;
	if (*tried) {
		memcpy(m->error, "the states of the grammar take too much memory",
		       sizeof "the states of the grammar take too much memory");
		*rc = -E2BIG;
		return false;
	}
	*tried = true;
	machine_reset(g->m);
	mask_reset(g);
	g->n_resets++;
	return true;
}

const char *matcher_error(const struct matcher *m)
{
	return m->error;
}

static void mark_put(struct matcher *m)
{
	array_grow(m->marks, m->cap_marks, m->n_marks + 1);
	m->marks[m->n_marks++] = (struct mark){m->text.len, m->state};
}

/* If the budget is spent, return the state after the budget byte where the grammar allows it, else state.
 * *spent: the byte was taken and must be stored in the text, to find the state again. */
static uint32_t spend(struct matcher *m, uint32_t state, bool *spent)
{
	const struct grammar *g = m->g;
	*spent = false;
	if (g->budget < 0 || m->n_marks + 1 < (uint64_t)g->budget)
		return state;
	const uint32_t behind = machine_step(g->m, state, AST_BUDGET_BYTE);
	*spent = behind != MACHINE_DEAD;
	return *spent ? behind : state;
}

/* used NULL: all or nothing. */
static int accept_once(struct matcher *m, const char *p, size_t n, size_t *used)
{
	int rc = sync(m);
	if (rc)
		return rc;
	uint32_t state = m->state;
	bool spent = false;
	machine_clear_refusal(m->g->m);
	size_t got = follow(m, &state, p, n);
	if ((rc = machine_error(m->g->m)))
		return rc;
	const char *refusal = got < n ? machine_refusal(m->g->m) : NULL;
	if (got == n)
		state = spend(m, state, &spent);
	if ((rc = machine_error(m->g->m)))
		return rc;
	if (got == n || (used && got)) {
		mark_put(m);
		buf_put(&m->text, p, got);
		if (spent)
			buf_putc(&m->text, (char)AST_BUDGET_BYTE);
		m->state = state;
	}
	if (used)
		*used = got;
	if (refusal) {
		memcpy(m->error, refusal, strlen(refusal) + 1);
		return -E2BIG;
	}
	return got < n ? -EINVAL : 0;
}

int matcher_accept_bytes(struct matcher *m, const char *p, size_t n, size_t *used)
{
	bool tried = false;
	int rc;
	if (used)
		*used = 0;
	if (m->ended)
		return -EINVAL;
	do
		rc = accept_once(m, p, n, used);
	while (try_again(m, &rc, &tried));
	return rc;
}

int matcher_can_end(struct matcher *m, bool *out)
{
	bool tried = false;
	int rc;
	*out = m->ended;
	if (m->ended)
		return 0;
	do
		rc = sync(m);
	while (try_again(m, &rc, &tried));
	if (rc == 0)
		*out = machine_accepts(m->g->m, m->state);
	return rc;
}

bool matcher_ended(const struct matcher *m)
{
	return m->ended;
}

int matcher_accept(struct matcher *m, uint32_t token)
{
	const struct lexicon *v = m->g->v;
	bool can_end;
	assert(v);
	if (m->ended || token >= v->n_tokens || v->kinds[token] == LEXICON_CONTROL)
		return -EINVAL;
	if (v->kinds[token] == LEXICON_END) {
		int rc = matcher_can_end(m, &can_end);
		if (rc || !can_end)
			return rc ? rc : -EINVAL;
		mark_put(m);
		m->ended = true;
		return 0;
	}
	size_t n = v->at[token + 1] - v->at[token];
	return n ? matcher_accept_bytes(m, v->bytes + v->at[token], n, NULL) : -EINVAL;
}

size_t matcher_length(const struct matcher *m)
{
	return m->n_marks;
}

void matcher_rollback(struct matcher *m, size_t n)
{
	assert(n <= m->n_marks);
	if (n == 0)
		return;
	m->n_marks -= n;
	m->text.len = m->marks[m->n_marks].bytes;
	m->state = m->marks[m->n_marks].state;
	m->ended = false;
}

int matcher_mask(struct matcher *m, const uint32_t **mask)
{
	bool tried = false;
	int rc;
	assert(m->g->v);
	if (m->ended) {
		*mask = m->g->none;
		return 0;
	}
	do {
		rc = sync(m);
		if (rc == 0)
			rc = mask_of_state(m->g, m->state, mask);
	} while (try_again(m, &rc, &tried));
	return rc;
}

/* Return the only byte that may follow state; -1: several bytes, or the text may end. */
static int only_byte(struct machine *m, uint32_t state)
{
	int only = -1;
	for (int b = 0; b < 256; b++) {
		if (machine_step(m, state, (uint8_t)b) == MACHINE_DEAD)
			continue;
		if (only >= 0)
			return -1;
		only = b;
	}
	return machine_accepts(m, state) ? -1 : only;
}

static int forced_once(struct matcher *m, char *out, size_t max)
{
	int rc = sync(m), n = 0;
	for (uint32_t state = m->state; rc == 0 && (size_t)n < max;) {
		int b = only_byte(m->g->m, state);
		if ((rc = machine_error(m->g->m)))
			return rc;
		if (b < 0)
			break;
		out[n++] = (char)b;
		state = machine_step(m->g->m, state, (uint8_t)b);
	}
	return rc ? rc : n;
}

int matcher_forced(struct matcher *m, char *out, size_t max)
{
	bool tried = false;
	int rc;
	if (m->ended)
		return 0;
	do
		rc = forced_once(m, out, max < INT32_MAX ? max : INT32_MAX);
	while (try_again(m, &rc, &tried));
	return rc;
}
