/* machine.c - states and the steps between them. */
#include "grammar/machine_impl.h"
#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_DEFAULT = 1000 };
static const size_t bytes_default = (size_t)128 << 20;

static void states_reset(struct machine *m)
{
	m->n_states = 0;
	m->n_positions = 0;
	m->start = MACHINE_DEAD;
	numbers_reset(&m->state_table, 1);
	pages_grow(m->states, m->cap_states, 1);
	pages_grow(m->positions, m->cap_positions, 1);
	array_grow(m->work, m->cap_work, 1);
	pages_grow(m->rows, m->cap_rows, (size_t)m->n_classes);
	memset(m->rows, 0, (size_t)m->n_classes * sizeof *m->rows);
	m->states[m->n_states++] = (struct state){.clamp = MACHINE_DEAD, .mask = UINT32_MAX};
}

int machine_open(const struct ast *a, const struct machine_limits *limits, struct machine **out,
		 struct why *why)
{
	struct machine *m = xcalloc(1, sizeof *m);
	m->max_bytes = limits && limits->bytes ? limits->bytes : bytes_default;
	m->max_depth = limits && limits->depth ? (uint32_t)limits->depth : DEPTH_DEFAULT;
	m->x = exprs_new(m->max_bytes);
	if (limits)
		exprs_allow(m->x, limits->work);
	int rc = compile_ast(a, m->x, &m->grammar, why);
	if (rc) {
		rc = exprs_error(m->x) == -EAGAIN ? -EAGAIN : rc;
		machine_free(m);
		return rc;
	}
	if (exprs_memory(m->x) > m->max_bytes / 2) {
		machine_free(m);
		return err_why(why, -E2BIG, "the grammar takes too much memory");
	}
	*out = m;
	return 0;
}

void machine_seal(struct machine *m)
{
	exprs_seal(m->x);
	m->n_classes = exprs_n_classes(m->x);
	m->classes = exprs_classes(m->x);
	m->seen = xcalloc(POSITIONS_TABLE, sizeof *m->seen);
	m->temp_of = xcalloc(m->grammar.n_bodies + 1, sizeof *m->temp_of);
	m->generation = 1;
	machine_nodes_reset(m);
	states_reset(m);
}

void machine_free(struct machine *m)
{
	if (!m)
		return;
	exprs_free(m->x);
	compiled_fini(&m->grammar);
	free(m->nodes);
	free(m->edges);
	numbers_fini(&m->node_table);
	free(m->groups);
	pages_free(m->states, m->cap_states, sizeof *m->states);
	pages_free(m->positions, m->cap_positions, sizeof *m->positions);
	numbers_fini(&m->state_table);
	pages_free(m->rows, m->cap_rows, sizeof *m->rows);
	free(m->work);
	free(m->seen);
	free(m->temps);
	free(m->temp_edges);
	free(m->temp_of);
	free(m->tarjan);
	free(m->scratch);
	free(m->words);
	free(m);
}

size_t machine_memory(const struct machine *m)
{
	return exprs_memory(m->x) + m->n_nodes * sizeof *m->nodes + m->n_edges * sizeof *m->edges +
	       m->n_groups * sizeof *m->groups + m->n_positions * sizeof *m->positions +
	       m->n_states * (sizeof *m->states + (size_t)m->n_classes * sizeof *m->rows) +
	       numbers_bytes(&m->node_table) + numbers_bytes(&m->state_table);
}

void machine_reset(struct machine *m)
{
	exprs_reset(m->x);
	machine_nodes_reset(m);
	states_reset(m);
	m->full = m->deep = m->wide = false;
	m->generation++;
}

uint64_t machine_generation(const struct machine *m)
{
	return m->generation;
}

int machine_error(const struct machine *m)
{
	const int rc = exprs_error(m->x);
	return m->full || rc == -ENOMEM ? -ENOMEM : rc == -EAGAIN ? -EAGAIN : 0;
}

void machine_allow(struct machine *m, struct grammar_work work)
{
	exprs_allow(m->x, work);
}

const char *machine_refusal(const struct machine *m)
{
	return m->refusal;
}

void machine_clear_refusal(struct machine *m)
{
	m->refusal = NULL;
}

/* Return true if the current step has failed: out of memory, or a bound of its state exceeded. */
static bool failed(const struct machine *m)
{
	return m->full || m->deep || m->wide || exprs_error(m->x);
}

/* End a step and return whether it failed.  An exceeded bound refuses only this step. */
static bool step_failed(struct machine *m)
{
	if (machine_error(m)) {
		m->deep = m->wide = false;
		return true;
	}
	if (!failed(m))
		return false;
	m->refusal = m->deep ? "the text is nested deeper than the grammar's bound"
			     : "the text leads to too many positions in the grammar at once";
	exprs_clear_over(m->x);
	m->deep = m->wide = false;
	return true;
}

static uint32_t positions_hash(const struct position *p, uint32_t n, bool accepts)
{
	uint32_t h = n + accepts;
	for (uint32_t i = 0; i < n; i++) {
		h = (h ^ p[i].e) * 0x9e3779b1u;
		h = ((h ^ h >> 15) ^ p[i].node) * 0x85ebca6bu;
	}
	return h ^ h >> 13;
}

/* The content by which a state is found. */
struct state_key {
	const struct position *positions;
	uint32_t n;
	bool accepts;
};

static bool is_state(const void *owner, uint32_t state, const void *what)
{
	const struct machine *m = owner;
	const struct state *s = &m->states[state];
	const struct state_key *k = what;
	return s->n_positions == k->n && s->accepts == k->accepts &&
	       memcmp(m->positions + s->positions, k->positions, k->n * sizeof *k->positions) == 0;
}

/* Make the row of a new state: bytes that no position can begin with are dead. */
static void row_begin(struct machine *m, uint32_t state)
{
	const struct state *s = &m->states[state];
	size_t n = (size_t)m->n_classes;
	pages_grow(m->rows, m->cap_rows, (state + 1) * n);
	uint32_t *row = m->rows + state * n;
	memset(row, 0, n * sizeof *row);
	for (uint32_t i = 0; i < s->n_positions; i++) {
		const uint64_t *first = expr_first(m->x, m->positions[s->positions + i].e);
		for (size_t c = 0; c < n; c++) {
			uint8_t b = exprs_class_byte(m->x, (int)c);
			if (first[b >> 6] >> (b & 63) & 1)
				row[c] = EXPR_UNKNOWN;
		}
	}
}

static uint32_t state_intern(struct machine *m, const struct position *p, uint32_t n, bool accepts)
{
	if (failed(m) || (n == 0 && !accepts))
		return MACHINE_DEAD;
	const uint32_t hash = positions_hash(p, n, accepts);
	const uint32_t known =
		numbers_find(&m->state_table, hash, is_state, m, &(struct state_key){p, n, accepts});
	if (known != UINT32_MAX)
		return known;
	if (machine_memory(m) > m->max_bytes || m->n_states >= UINT32_MAX / 2) {
		m->full = true;
		return MACHINE_DEAD;
	}
	pages_grow(m->states, m->cap_states, m->n_states + 1);
	pages_grow(m->positions, m->cap_positions, m->n_positions + n);
	memcpy(m->positions + m->n_positions, p, n * sizeof *p);
	uint32_t state = m->n_states++;
	m->states[state] = (struct state){.positions = (uint32_t)m->n_positions,
					  .n_positions = n,
					  .clamp = UINT32_MAX,
					  .mask = UINT32_MAX,
					  .accepts = accepts};
	m->n_positions += n;
	row_begin(m, state);
	numbers_put(&m->state_table, hash, state);
	return state;
}

/* Add a position to the closure unless it is there. */
static void work_add(struct machine *m, uint32_t e, uint32_t node)
{
	uint32_t i = (e * 0x9e3779b1u ^ node * 0x85ebca6bu) % POSITIONS_TABLE;
	for (; m->seen[i] >> 32 == m->stamp; i = (i + 1) % POSITIONS_TABLE) {
		const struct position *p = &m->work[(uint32_t)m->seen[i] - 1];
		if (p->e == e && p->node == node)
			return;
	}
	if (m->n_work >= POSITIONS_MAX) {
		m->wide = true;
		return;
	}
	array_grow(m->work, m->cap_work, m->n_work + 1);
	m->work[m->n_work++] = (struct position){e, node};
	m->seen[i] = (uint64_t)m->stamp << 32 | m->n_work;
}

static void temp_edge_add(struct machine *m, uint32_t t, uint32_t rest, uint32_t parent)
{
	for (uint32_t i = m->temps[t].edges; i != UINT32_MAX; i = m->temp_edges[i].next)
		if (m->temp_edges[i].rest == rest && m->temp_edges[i].parent == parent)
			return;
	if (m->n_temp_edges >= POSITIONS_MAX) {
		m->wide = true;
		return;
	}
	array_grow(m->temp_edges, m->cap_temp_edges, m->n_temp_edges + 1);
	m->temp_edges[m->n_temp_edges] = (struct temp_edge){rest, parent, m->temps[t].edges};
	m->temps[t].edges = m->n_temp_edges++;
	if (m->temps[t].popped)
		work_add(m, rest, parent);
}

/* Return the temporary node of a rule called at this place; the first call makes it. */
static uint32_t temp_of(struct machine *m, uint32_t rule)
{
	if (m->temp_of[rule] >> 32 == m->stamp)
		return (uint32_t)m->temp_of[rule];
	array_grow(m->temps, m->cap_temps, m->n_temps + 1);
	m->temps[m->n_temps] = (struct temp_node){.rule = rule, .edges = UINT32_MAX, .final = UINT32_MAX};
	m->temp_of[rule] = (uint64_t)m->stamp << 32 | m->n_temps;
	work_add(m, m->grammar.bodies[rule], NODE_TEMP | m->n_temps);
	return m->n_temps++;
}

/* Continue the callers of a rule that has matched. */
static void pop(struct machine *m, uint32_t node)
{
	if (node == NODE_END) {
		m->accepts = true;
	} else if (node & NODE_TEMP) {
		struct temp_node *t = &m->temps[node & ~NODE_TEMP];
		if (t->popped)
			return;
		t->popped = true;
		for (uint32_t i = t->edges; i != UINT32_MAX; i = m->temp_edges[i].next)
			work_add(m, m->temp_edges[i].rest, m->temp_edges[i].parent);
	} else {
		struct stack_node s = m->nodes[node];
		for (uint32_t k = 0; k < s.n_edges; k++)
			work_add(m, m->edges[s.edges + k].rest, m->edges[s.edges + k].parent);
	}
}

static int by_node(const void *p, const void *q)
{
	const struct position *a = p, *b = q;
	if (a->node != b->node)
		return a->node > b->node ? 1 : -1;
	return (a->e > b->e) - (a->e < b->e);
}

/* Keep the positions that a byte can follow, finish their nodes, and merge the positions of each node. */
static uint32_t work_finish(struct machine *m)
{
	uint32_t n = 0, k = 0;
	for (uint32_t i = 0; i < m->n_work && !failed(m); i++) {
		const uint64_t *first = expr_first(m->x, m->work[i].e);
		if (!(first[0] | first[1] | first[2] | first[3]))
			continue;
		m->work[n] = m->work[i];
		if (m->work[n].node & NODE_TEMP)
			m->work[n].node = machine_finish_node(m, m->work[n].node & ~NODE_TEMP);
		n++;
	}
	if (n > 1)
		qsort(m->work, n, sizeof *m->work, by_node);
	for (uint32_t i = 0; i < n; i++) {
		if (k && m->work[k - 1].node == m->work[i].node)
			m->work[k - 1].e = expr_alt2(m->x, m->work[k - 1].e, m->work[i].e);
		else
			m->work[k++] = m->work[i];
	}
	return k;
}

static void work_begin(struct machine *m)
{
	m->n_work = m->n_temps = m->n_temp_edges = m->n_tarjan = m->tarjan_index = 0;
	m->accepts = false;
	if (++m->stamp == 0) { /* the counter wrapped: old stamps would match new ones */
		memset(m->seen, 0, POSITIONS_TABLE * sizeof *m->seen);
		memset(m->temp_of, 0, m->grammar.n_bodies * sizeof *m->temp_of);
		m->stamp = 1;
	}
}

/* Follow calls and ends of rules from the positions in work.  Return the resulting state. */
static uint32_t closure(struct machine *m)
{
	for (uint32_t i = 0; i < m->n_work && !failed(m); i++) {
		uint32_t e = m->work[i].e, node = m->work[i].node;
		size_t n_calls;
		if (expr_nullable(m->x, e))
			pop(m, node);
		if (!expr_has_call(m->x, e))
			continue;
		const struct expr_call *calls = expr_calls(m->x, e, &n_calls);
		for (size_t k = 0; k < n_calls; k++)
			temp_edge_add(m, temp_of(m, calls[k].rule), calls[k].rest, node);
	}
	if (failed(m))
		return MACHINE_DEAD;
	uint32_t n = work_finish(m);
	return state_intern(m, m->work, n, m->accepts);
}

uint32_t machine_start(struct machine *m)
{
	if (m->start == MACHINE_DEAD) {
		work_begin(m);
		work_add(m, m->grammar.start, NODE_END);
		m->start = closure(m);
		if (step_failed(m))
			m->start = MACHINE_DEAD;
	}
	return m->start;
}

uint32_t machine_slow_step(struct machine *m, uint32_t state, int class)
{
	struct state s = m->states[state];
	uint32_t to;
	if (s.n_positions == 1) {
		struct position p = m->positions[s.positions];
		p.e = expr_next(m->x, p.e, class);
		if (p.e == EXPR_NEVER) {
			to = MACHINE_DEAD;
			goto done;
		}
		if (!expr_nullable(m->x, p.e) && !expr_has_call(m->x, p.e)) {
			to = state_intern(m, &p, 1, false);
			goto done;
		}
	}
	work_begin(m);
	for (uint32_t i = 0; i < s.n_positions; i++) {
		struct position p = m->positions[s.positions + i];
		p.e = expr_next(m->x, p.e, class);
		if (p.e != EXPR_NEVER)
			work_add(m, p.e, p.node);
	}
	to = closure(m);
done:
	if (step_failed(m))
		return MACHINE_DEAD;
	m->rows[(size_t)state * (size_t)m->n_classes + (size_t) class] = to;
	return to;
}

uint32_t machine_step(struct machine *m, uint32_t state, uint8_t byte)
{
	assert(state < m->n_states);
	return machine_step_class(m, state, m->classes[byte]);
}

bool machine_accepts(const struct machine *m, uint32_t state)
{
	assert(state < m->n_states);
	return m->states[state].accepts;
}

uint32_t machine_clamp(struct machine *m, uint32_t state, uint32_t n)
{
	struct state s = m->states[state];
	if (s.clamp != UINT32_MAX)
		return s.clamp;
	struct position *p = xcalloc(s.n_positions + 1, sizeof *p);
	uint32_t k = 0;
	for (uint32_t i = 0; i < s.n_positions; i++) {
		struct position from = m->positions[s.positions + i];
		p[i] = (struct position){expr_clamp(m->x, from.e, n), machine_clamp_node(m, from.node, n)};
	}
	qsort(p, s.n_positions, sizeof *p, by_node);
	for (uint32_t i = 0; i < s.n_positions; i++) {
		if (k && p[k - 1].node == p[i].node)
			p[k - 1].e = expr_alt2(m->x, p[k - 1].e, p[i].e);
		else
			p[k++] = p[i];
	}
	uint32_t to = state_intern(m, p, k, s.accepts);
	free(p);
	if (step_failed(m))
		return MACHINE_DEAD;
	m->states[to].clamp = to;
	return m->states[state].clamp = to;
}

bool machine_clamp_is_far(struct machine *m, uint32_t state, uint32_t n, uint32_t far)
{
	const struct state s = m->states[state];
	for (uint32_t i = 0; i < s.n_positions; i++) {
		const struct position p = m->positions[s.positions + i];
		if (machine_clamp_node(m, p.node, n) != p.node || !expr_clamp_is_far(m->x, p.e, n, far))
			return false;
	}
	return true;
}

size_t machine_n_states(const struct machine *m)
{
	return m->n_states - 1;
}

size_t machine_n_exprs(const struct machine *m)
{
	return exprs_count(m->x);
}
