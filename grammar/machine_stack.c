/* machine_stack.c - the graph-structured stack; nodes are hash-consed by content. */
#include "grammar/machine_impl.h"
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static uint32_t edges_hash(const struct edge *e, uint32_t n)
{
	uint32_t h = n;
	for (uint32_t i = 0; i < n; i++) {
		h = (h ^ e[i].rest) * 0x9e3779b1u;
		h = ((h ^ h >> 15) ^ e[i].parent) * 0x85ebca6bu;
	}
	return h ^ h >> 13;
}

struct edges {
	const struct edge *e;
	uint32_t n;
};

static bool is_node(const void *owner, uint32_t node, const void *what)
{
	const struct machine *m = owner;
	const struct stack_node *s = &m->nodes[node];
	const struct edges *k = what;
	return s->n_edges == k->n && memcmp(m->edges + s->edges, k->e, k->n * sizeof *k->e) == 0;
}

void machine_nodes_reset(struct machine *m)
{
	m->n_nodes = 0;
	m->n_edges = m->n_groups = 0;
	array_grow(m->nodes, m->cap_nodes, 1);
	array_grow(m->edges, m->cap_edges, 1);
	array_grow(m->scratch, m->cap_scratch, 1);
	m->nodes[m->n_nodes++] = (struct stack_node){.clamp = NODE_END};
	numbers_reset(&m->node_table, 1);
}

static int by_parent(const void *p, const void *q)
{
	const struct edge *a = p, *b = q;
	if (a->parent != b->parent)
		return a->parent > b->parent ? 1 : -1;
	return (a->rest > b->rest) - (a->rest < b->rest);
}

/* Sort the edges and merge those with the same parent into one, with their rests as alternatives. */
static uint32_t edges_normalize(struct machine *m, struct edge *e, uint32_t n)
{
	uint32_t k = 0;
	if (n > 1)
		qsort(e, n, sizeof *e, by_parent);
	for (uint32_t i = 0; i < n; i++) {
		if (k && e[k - 1].parent == e[i].parent)
			e[k - 1].rest = expr_alt2(m->x, e[k - 1].rest, e[i].rest);
		else
			e[k++] = e[i];
	}
	return k;
}

static uint32_t node_append(struct machine *m, const struct edge *e, uint32_t n, bool circular)
{
	uint32_t depth = 0;
	for (uint32_t i = 0; i < n; i++)
		if (!(e[i].parent & NODE_TEMP) && m->nodes[e[i].parent].depth >= depth)
			depth = m->nodes[e[i].parent].depth + 1;
	if (depth > m->max_depth)
		m->deep = true;
	array_grow(m->nodes, m->cap_nodes, m->n_nodes + 1);
	array_grow(m->edges, m->cap_edges, m->n_edges + n);
	memcpy(m->edges + m->n_edges, e, n * sizeof *e);
	m->nodes[m->n_nodes] = (struct stack_node){.edges = (uint32_t)m->n_edges,
						   .n_edges = n,
						   .clamp = UINT32_MAX,
						   .depth = depth,
						   .circular = circular};
	m->n_edges += n;
	return m->n_nodes++;
}

/* Return the node with these edges. */
static uint32_t node_intern(struct machine *m, const struct edge *e, uint32_t n)
{
	const uint32_t hash = edges_hash(e, n);
	uint32_t node = numbers_find(&m->node_table, hash, is_node, m, &(struct edges){e, n});
	if (node != UINT32_MAX)
		return node;
	node = node_append(m, e, n, false);
	numbers_put(&m->node_table, hash, node);
	return node;
}

static void scratch_put(struct machine *m, uint32_t rest, uint32_t parent)
{
	array_grow(m->scratch, m->cap_scratch, m->n_scratch + 1);
	m->scratch[m->n_scratch++] = (struct edge){rest, parent};
}

/* Append the edges of t to scratch. Parents within t's own group stay temporary. A caller with nothing left
 * to match is replaced by its own callers, so that a tail-recursive rule does not grow the stack. */
static void put_edges(struct machine *m, uint32_t t)
{
	for (uint32_t i = m->temps[t].edges; i != UINT32_MAX; i = m->temp_edges[i].next) {
		uint32_t rest = m->temp_edges[i].rest, parent = m->temp_edges[i].parent;
		if (parent & NODE_TEMP && m->temps[parent & ~NODE_TEMP].final != UINT32_MAX)
			parent = m->temps[parent & ~NODE_TEMP].final;
		if (rest == EXPR_EMPTY && !(parent & NODE_TEMP) && parent != NODE_END) {
			struct stack_node p = m->nodes[parent];
			for (uint32_t k = 0; k < p.n_edges; k++)
				scratch_put(m, m->edges[p.edges + k].rest, m->edges[p.edges + k].parent);
		} else {
			scratch_put(m, rest, parent);
		}
	}
}

static void word_put(struct machine *m, uint32_t w)
{
	array_grow(m->words, m->cap_words, m->n_words + 1);
	m->words[m->n_words++] = w;
}

static int by_rule(const void *p, const void *q, void *temps)
{
	const struct temp_node *t = temps;
	uint32_t a = t[*(const uint32_t *)p].rule, b = t[*(const uint32_t *)q].rule;
	return (a > b) - (a < b);
}

/* Write the content of a group of n members to words: rules and edges; parents within the group are written
 * as their index. Nodes first..first + n of another group (UINT32_MAX: none) are treated as
 * this group's own. */
static void group_text(struct machine *m, const uint32_t *members, uint32_t n, uint32_t first)
{
	m->n_words = 0;
	word_put(m, n);
	for (uint32_t i = 0; i < n; i++) {
		m->n_scratch = 0;
		put_edges(m, members[i]);
		for (uint32_t k = 0; k < m->n_scratch; k++) {
			uint32_t p = m->scratch[k].parent;
			if (p & NODE_TEMP)
				m->scratch[k].parent = NODE_TEMP | m->temps[p & ~NODE_TEMP].index;
			else if (first != UINT32_MAX && p >= first && p - first < n)
				m->scratch[k].parent = NODE_TEMP | (p - first);
		}
		m->n_scratch = edges_normalize(m, m->scratch, m->n_scratch);
		word_put(m, m->temps[members[i]].rule);
		word_put(m, m->n_scratch);
		for (uint32_t k = 0; k < m->n_scratch; k++) {
			word_put(m, m->scratch[k].rest);
			word_put(m, m->scratch[k].parent);
		}
	}
}

/* Return the first node of the group with the content in words, or UINT32_MAX. only: compare with
 * this group alone. */
static uint32_t group_find(const struct machine *m, uint32_t only)
{
	for (size_t g = 0; g < m->n_groups; g += m->groups[g] + 2) {
		uint32_t first = m->groups[g + 1 + m->groups[g]];
		if (m->groups[g] == m->n_words && (only == UINT32_MAX || only == first) &&
		    memcmp(m->groups + g + 1, m->words, m->n_words * sizeof *m->words) == 0)
			return first;
	}
	return UINT32_MAX;
}

/* Return the first node of a group that calls this one and would equal it if both were identified;
 * UINT32_MAX: none. Example: s ::= s s | "a" calls itself at each place of the text. */
static uint32_t group_like_caller(struct machine *m, const uint32_t *members, uint32_t n)
{
	uint32_t tried = UINT32_MAX;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = m->temps[members[i]].edges; k != UINT32_MAX; k = m->temp_edges[k].next) {
			uint32_t p = m->temp_edges[k].parent;
			if (p & NODE_TEMP && m->temps[p & ~NODE_TEMP].final != UINT32_MAX)
				p = m->temps[p & ~NODE_TEMP].final;
			if (p & NODE_TEMP || !m->nodes[p].circular || m->nodes[p].group == tried)
				continue;
			tried = m->nodes[p].group;
			group_text(m, members, n, tried);
			if (group_find(m, tried) == tried)
				return tried;
		}
	return UINT32_MAX;
}

static uint32_t group_new(struct machine *m, uint32_t n)
{
	uint32_t first = m->n_nodes, depth = 0;
	const uint32_t *w = m->words + 1;
	for (uint32_t i = 0; i < n; i++, w += 2 + 2 * w[1])
		node_append(m, (const struct edge *)(w + 2), w[1], true);
	for (uint32_t i = first; i < first + n; i++)
		depth = m->nodes[i].depth > depth ? m->nodes[i].depth : depth;
	for (uint32_t i = first; i < first + n; i++) {
		m->nodes[i].depth = depth;
		m->nodes[i].group = first;
		for (uint32_t k = 0; k < m->nodes[i].n_edges; k++) {
			struct edge *e = &m->edges[m->nodes[i].edges + k];
			if (e->parent & NODE_TEMP)
				e->parent = first + (e->parent & ~NODE_TEMP);
		}
	}
	array_grow(m->groups, m->cap_groups, m->n_groups + m->n_words + 2);
	m->groups[m->n_groups] = (uint32_t)m->n_words;
	memcpy(m->groups + m->n_groups + 1, m->words, m->n_words * sizeof *m->words);
	m->groups[m->n_groups + 1 + m->n_words] = first;
	m->n_groups += m->n_words + 2;
	return first;
}

/* Finish a group of rules that call each other; members are ordered by rule, which are distinct. */
static void finish_group(struct machine *m, uint32_t *members, uint32_t n)
{
	qsort_r(members, n, sizeof *members, by_rule, m->temps);
	for (uint32_t i = 0; i < n; i++)
		m->temps[members[i]].index = i;
	uint32_t first = group_like_caller(m, members, n);
	if (first == UINT32_MAX) {
		group_text(m, members, n, UINT32_MAX);
		first = group_find(m, UINT32_MAX);
	}
	if (first == UINT32_MAX)
		first = group_new(m, n);
	for (uint32_t i = 0; i < n; i++)
		m->temps[members[i]].final = first + i;
}

static bool calls_itself(const struct machine *m, uint32_t t)
{
	for (uint32_t i = m->temps[t].edges; i != UINT32_MAX; i = m->temp_edges[i].next)
		if (m->temp_edges[i].parent == (NODE_TEMP | t))
			return true;
	return false;
}

/* Tarjan's strongly connected components: callers are finished before the nodes that they call. */
static void visit(struct machine *m, uint32_t t)
{
	m->temps[t].index = m->temps[t].low = ++m->tarjan_index;
	m->temps[t].on_stack = true;
	array_grow(m->tarjan, m->cap_tarjan, m->n_tarjan + 1);
	m->tarjan[m->n_tarjan++] = t;
	for (uint32_t i = m->temps[t].edges; i != UINT32_MAX; i = m->temp_edges[i].next) {
		uint32_t p = m->temp_edges[i].parent;
		if (!(p & NODE_TEMP))
			continue;
		p &= ~NODE_TEMP;
		if (!m->temps[p].index && m->temps[p].final == UINT32_MAX) {
			visit(m, p);
			if (m->temps[p].low < m->temps[t].low)
				m->temps[t].low = m->temps[p].low;
		} else if (m->temps[p].on_stack && m->temps[p].index < m->temps[t].low) {
			m->temps[t].low = m->temps[p].index;
		}
	}
	if (m->temps[t].low != m->temps[t].index)
		return;
	uint32_t from = m->n_tarjan;
	do
		m->temps[m->tarjan[--from]].on_stack = false;
	while (m->tarjan[from] != t);
	if (m->n_tarjan - from > 1 || calls_itself(m, t)) {
		finish_group(m, m->tarjan + from, m->n_tarjan - from);
	} else {
		m->n_scratch = 0;
		put_edges(m, t);
		m->n_scratch = edges_normalize(m, m->scratch, m->n_scratch);
		m->temps[t].final = node_intern(m, m->scratch, m->n_scratch);
	}
	m->n_tarjan = from;
}

uint32_t machine_finish_node(struct machine *m, uint32_t t)
{
	if (m->temps[t].final == UINT32_MAX)
		visit(m, t);
	return m->temps[t].final;
}

uint32_t machine_clamp_node(struct machine *m, uint32_t node, uint32_t n)
{
	if (m->nodes[node].clamp != UINT32_MAX || m->nodes[node].circular)
		return m->nodes[node].circular ? node : m->nodes[node].clamp;
	struct stack_node s = m->nodes[node];
	struct edge *e = xcalloc(s.n_edges + 1, sizeof *e);
	for (uint32_t k = 0; k < s.n_edges; k++) {
		struct edge from = m->edges[s.edges + k];
		e[k] = (struct edge){expr_clamp(m->x, from.rest, n), machine_clamp_node(m, from.parent, n)};
	}
	const uint32_t n_edges = edges_normalize(m, e, s.n_edges);
	/* On an error the rests are wrong, so nothing is kept. */
	const bool whole = !exprs_error(m->x);
	const uint32_t to = whole ? node_intern(m, e, n_edges) : node;
	free(e);
	if (whole)
		m->nodes[to].clamp = m->nodes[node].clamp = to;
	return to;
}
