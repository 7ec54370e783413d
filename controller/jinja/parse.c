/* Parses tokens to a syntax tree: statements, and helpers of both parser files. */
#include "controller/jinja/parse_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <stdlib.h>

enum {
	TEXT_MAX = 1 << 20,
	NESTING_MAX = 200, /* blocks and brackets */
	HEIGHT_MAX = 600,  /* height of the tree: a + b + c + ... adds one level per operator */
	MEMORY_MAX = 256 << 20,
};

/* ---- shared with parse_expr.c ---- */

void jparse_fail(struct jparser *p, const char *what)
{
	const struct jtoken *t = p->at;
	p->c.line = t->line;
	switch (t->t) {
	case T_EOF:
		jinja_fail(&p->c, -EINVAL, "%s, but the template ends", what);
	case T_VAR_END:
		jinja_fail(&p->c, -EINVAL, "%s, not '}}'", what);
	case T_BLOCK_END:
		jinja_fail(&p->c, -EINVAL, "%s, not '%%}'", what);
	case T_OP:
		if (t->op > 255)
			jinja_fail(&p->c, -EINVAL, "%s, not '%c%c'", what, t->op >> 8, t->op & 255);
		jinja_fail(&p->c, -EINVAL, "%s, not '%c'", what, t->op);
	case T_NAME:
	case T_STRING:
		jinja_fail(&p->c, -EINVAL, "%s, not '%.*s'", what, (int)(t->n < 60 ? t->n : 60), t->p);
	default:
		jinja_fail(&p->c, -EINVAL, "%s", what);
	}
}

/* Make a string and count its characters now: threads share the tree, so they must not be counted lazily. */
struct jv jparse_str(struct jparser *p, const struct jtoken *t)
{
	struct jv v = jv_str(&p->c, t->p, t->n, JM_NONE);
	jstr_chars(v.s);
	return v;
}

struct jnode *jparse_node(struct jparser *p, enum jkind kind, uint32_t line)
{
	struct jnode *n = jinja_alloc(&p->c, sizeof *n);
	n->kind = (uint8_t)kind;
	n->line = line;
	n->height = 1;
	return n;
}

void jparse_over(struct jparser *p, struct jnode *n, const struct jnode *child)
{
	if (child && child->height >= n->height) {
		n->height = (uint16_t)(child->height + 1);
		p->c.line = n->line;
		if (n->height > HEIGHT_MAX)
			jinja_fail(&p->c, -E2BIG, "an expression of more than %d parts in a row", HEIGHT_MAX);
	}
}

void jnodes_push(struct jparser *p, struct jnodes *l, struct jnode *n)
{
	if ((l->n & (l->n - 1)) == 0) { /* at 0, 1, 2, 4, 8, ... */
		uint32_t cap = l->n ? l->n * 2 : 1;
		l->v = jinja_realloc(&p->c, l->v, l->n * sizeof *l->v, cap * sizeof *l->v);
	}
	l->v[l->n++] = n;
}

bool jparse_at_op(const struct jparser *p, int op)
{
	return p->at->t == T_OP && p->at->op == op;
}

bool jparse_at_word(const struct jparser *p, const char *word)
{
	return p->at->t == T_NAME && p->at->n == strlen(word) && memcmp(p->at->p, word, p->at->n) == 0;
}

bool jparse_skip_op(struct jparser *p, int op)
{
	if (!jparse_at_op(p, op))
		return false;
	p->at++;
	return true;
}

bool jparse_skip_word(struct jparser *p, const char *word)
{
	if (!jparse_at_word(p, word))
		return false;
	p->at++;
	return true;
}

void jparse_need_op(struct jparser *p, int op, const char *what)
{
	if (!jparse_skip_op(p, op))
		jparse_fail(p, what);
}

void jparse_deeper(struct jparser *p)
{
	p->c.line = p->at->line;
	jinja_enter(&p->c);
}

uint32_t jparse_name(struct jparser *p, const char *s, uint32_t n)
{
	uint32_t h = 2166136261u;
	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	if (p->n_names * 2 >= p->n_slots) {
		uint32_t old = p->n_slots;
		p->n_slots = old ? old * 2 : 256;
		uint32_t *slots = jinja_alloc_n(&p->c, p->n_slots, sizeof *slots);
		for (uint32_t i = 0; i < p->n_names; i++) {
			uint32_t at = p->hashes[i] & (p->n_slots - 1);
			while (slots[at])
				at = (at + 1) & (p->n_slots - 1);
			slots[at] = i + 1;
		}
		p->slots = slots;
		p->names = jinja_realloc(&p->c, p->names, p->n_names * sizeof *p->names,
					 p->n_slots * sizeof *p->names);
		p->hashes = jinja_realloc(&p->c, p->hashes, p->n_names * sizeof *p->hashes,
					  p->n_slots * sizeof *p->hashes);
	}
	uint32_t at = h & (p->n_slots - 1);
	for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1)) {
		const struct jname *k = &p->names[p->slots[at] - 1];
		if (k->n == n && memcmp(k->p, s, n) == 0)
			return p->slots[at] - 1;
	}
	char *text = jinja_alloc(&p->c, (size_t)n + 1);
	memcpy(text, s, n);
	p->names[p->n_names] = (struct jname){text, n, text};
	p->hashes[p->n_names] = h;
	p->slots[at] = ++p->n_names;
	return p->n_names - 1;
}

uint32_t jparse_need_name(struct jparser *p, const char *what)
{
	if (p->at->t != T_NAME)
		jparse_fail(p, what);
	const struct jtoken *t = p->at++;
	return jparse_name(p, t->p, t->n);
}

/* ---- blocks ---- */

static void block_end(struct jparser *p)
{
	if (p->at->t != T_BLOCK_END)
		jparse_fail(p, "expected '%}'");
	p->at++;
}

/* Parse the statements up to a tag in ends ("endif else elif"), and stop there. */
static struct jnodes body(struct jparser *p, const char *ends);

static bool ends_with(const struct jparser *p, const char *ends)
{
	for (const char *e = ends; *e;) {
		size_t n = strcspn(e, " ");
		if (p->at->t == T_NAME && p->at->n == n && memcmp(p->at->p, e, n) == 0)
			return true;
		e += n + (e[n] == ' ');
	}
	return false;
}

static struct jnodes block(struct jparser *p, const char *ends)
{
	jparse_skip_op(p, ':');
	block_end(p);
	return body(p, ends);
}

/* Parse a block with a single end tag. */
static struct jnodes whole_block(struct jparser *p, const char *end)
{
	struct jnodes b = block(p, end);
	p->at++;
	return b;
}

/* Parse a block with an output that becomes a value: {% break %} in it cannot leave an outer loop. */
static struct jnodes value_block(struct jparser *p, const char *end)
{
	unsigned loops = p->n_loops;
	p->n_loops = 0;
	struct jnodes b = whole_block(p, end);
	p->n_loops = loops;
	return b;
}

static void over_all(struct jparser *p, struct jnode *n, const struct jnodes *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		jparse_over(p, n, l->v[i]);
}

static struct jnode *parse_if(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_IF, line);
	struct jnodes *bodies = NULL;
	uint32_t n_bodies = 0, cap = 0;
	bool last = false;
	for (;;) {
		if (!last)
			jnodes_push(p, &n->branch.test, jparse_tuple(p, false, NULL));
		struct jnodes b = block(p, last ? "endif" : "elif else endif");
		if (n_bodies + 1 >= cap) {
			uint32_t more = cap ? cap * 2 : 4;
			bodies = jinja_realloc(&p->c, bodies, cap * sizeof *bodies, more * sizeof *bodies);
			cap = more;
		}
		bodies[n_bodies++] = b;
		over_all(p, n, &b);
		if (jparse_skip_word(p, "endif"))
			break;
		last = jparse_at_word(p, "else");
		p->at++;
	}
	if (!last)
		bodies[n_bodies] = (struct jnodes){0};
	n->branch.body = bodies;
	over_all(p, n, &n->branch.test);
	return n;
}

static struct jnode *parse_for(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_FOR, line);
	n->loop.target = jparse_target(p, false, "in");
	if (!jparse_skip_word(p, "in"))
		jparse_fail(p, "expected 'in'");
	n->loop.over = jparse_tuple(p, false, "recursive");
	if (jparse_skip_word(p, "if"))
		n->loop.test = jparse_expr(p);
	n->variant = jparse_skip_word(p, "recursive");
	p->n_loops++;
	n->loop.body = block(p, "endfor else");
	p->n_loops--;
	if (jparse_skip_word(p, "else"))
		n->loop.otherwise = whole_block(p, "endfor");
	else
		p->at++;
	jparse_over(p, n, n->loop.over);
	jparse_over(p, n, n->loop.test);
	over_all(p, n, &n->loop.body);
	over_all(p, n, &n->loop.otherwise);
	return n;
}

static struct jnode *parse_set(struct jparser *p, uint32_t line)
{
	struct jnode *target = jparse_target(p, true, NULL);
	struct jnode *n = jparse_node(p, N_SET, line);
	n->set.target = target;
	if (jparse_skip_op(p, '=')) {
		n->set.value = jparse_tuple(p, true, NULL);
	} else {
		n->kind = N_SET_BLOCK;
		n->set.value = jparse_filters(p, NULL);
		n->set.body = value_block(p, "endset");
		over_all(p, n, &n->set.body);
	}
	jparse_over(p, n, n->set.value);
	return n;
}

static struct jparams *parse_params(struct jparser *p)
{
	struct jparams *s = jinja_alloc(&p->c, sizeof *s);
	struct jnodes names = {0}; /* NAME nodes */
	jparse_need_op(p, '(', "expected '('");
	while (!jparse_at_op(p, ')')) {
		if (names.n)
			jparse_need_op(p, ',', "expected ','");
		struct jnode *name = jparse_node(p, N_NAME, p->at->line);
		name->name = jparse_need_name(p, "expected a parameter's name");
		jnodes_push(p, &names, name);
		if (jparse_skip_op(p, '='))
			jnodes_push(p, &s->defaults, jparse_expr(p));
		else if (s->defaults.n)
			jparse_fail(p, "a parameter without a default behind one with");
	}
	p->at++;
	s->n = names.n;
	s->names = jinja_alloc_n(&p->c, names.n, sizeof *s->names);
	for (uint32_t i = 0; i < names.n; i++)
		s->names[i] = names.v[i]->name;
	return s;
}

/* Parse the body of a macro or {% call %}; n->variant: the USES_* flags of caller, kwargs and varargs. */
static struct jnodes macro_body(struct jparser *p, struct jnode *n, const char *end)
{
	unsigned outer = p->uses;
	p->uses = 0;
	struct jnodes b = value_block(p, end);
	n->variant = (uint8_t)p->uses;
	p->uses |= outer;
	over_all(p, n, &b);
	return b;
}

static struct jnode *parse_macro(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_MACRO, line);
	n->macro.name = jparse_need_name(p, "expected the macro's name");
	n->macro.params = parse_params(p);
	n->macro.body = macro_body(p, n, "endmacro");
	return n;
}

static struct jnode *parse_call(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_CALL_BLOCK, line);
	if (jparse_at_op(p, '('))
		n->macro.params = parse_params(p);
	else
		n->macro.params = jinja_alloc(&p->c, sizeof *n->macro.params);
	n->macro.call = jparse_expr(p);
	if (n->macro.call->kind != N_CALL)
		jparse_fail(p, "{% call %} needs a call");
	n->macro.body = macro_body(p, n, "endcall");
	jparse_over(p, n, n->macro.call);
	return n;
}

static struct jnode *parse_filter_block(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_FILTER_BLOCK, line);
	n->filter.filter = jparse_filter_chain(p);
	n->filter.body = value_block(p, "endfilter");
	over_all(p, n, &n->filter.body);
	jparse_over(p, n, n->filter.filter);
	return n;
}

static struct jnode *parse_with(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_WITH, line);
	while (p->at->t != T_BLOCK_END) {
		if (n->with.targets.n)
			jparse_need_op(p, ',', "expected ','");
		jnodes_push(p, &n->with.targets, jparse_target(p, false, NULL));
		jparse_need_op(p, '=', "expected '='");
		jnodes_push(p, &n->with.values, jparse_expr(p));
	}
	n->with.body = whole_block(p, "endwith");
	over_all(p, n, &n->with.values);
	over_all(p, n, &n->with.body);
	return n;
}

static struct jnode *parse_scope(struct jparser *p, uint32_t line, const char *end)
{
	struct jnode *n = jparse_node(p, N_SCOPE, line);
	n->list = whole_block(p, end);
	over_all(p, n, &n->list);
	return n;
}

static struct jnode *parse_print(struct jparser *p, uint32_t line)
{
	struct jnode *n = jparse_node(p, N_PRINT, line);
	while (p->at->t != T_BLOCK_END) {
		if (n->list.n)
			jparse_need_op(p, ',', "expected ','");
		jnodes_push(p, &n->list, jparse_expr(p));
	}
	over_all(p, n, &n->list);
	return n;
}

static struct jnode *parse_jump(struct jparser *p, uint32_t line, enum jkind kind)
{
	if (!p->n_loops)
		jparse_fail(p,
			    kind == N_BREAK ? "{% break %} outside a loop" : "{% continue %} outside a loop");
	return jparse_node(p, kind, line);
}

static struct jnode *statement(struct jparser *p)
{
	uint32_t line = p->at->line;
	if (p->at->t != T_NAME)
		jparse_fail(p, "expected a statement");
	if (jparse_skip_word(p, "if"))
		return parse_if(p, line);
	if (jparse_skip_word(p, "for"))
		return parse_for(p, line);
	if (jparse_skip_word(p, "set"))
		return parse_set(p, line);
	if (jparse_skip_word(p, "macro"))
		return parse_macro(p, line);
	if (jparse_skip_word(p, "call"))
		return parse_call(p, line);
	if (jparse_skip_word(p, "filter"))
		return parse_filter_block(p, line);
	if (jparse_skip_word(p, "with"))
		return parse_with(p, line);
	if (jparse_skip_word(p, "print"))
		return parse_print(p, line);
	if (jparse_skip_word(p, "generation"))
		return parse_scope(p, line, "endgeneration");
	if (jparse_skip_word(p, "break"))
		return parse_jump(p, line, N_BREAK);
	if (jparse_skip_word(p, "continue"))
		return parse_jump(p, line, N_CONTINUE);
	static const char *const unsupported[] = {"block",  "extends", "include",
						  "import", "from",    "autoescape"};
	for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
		if (jparse_at_word(p, unsupported[i]))
			jinja_fail(&p->c, -EINVAL, "{%% %s %%} is not supported in a chat template",
				   unsupported[i]);
	jparse_fail(p, "expected a statement");
}

static struct jnodes body(struct jparser *p, const char *ends)
{
	struct jnodes b = {0};
	uint32_t begun = p->at->line;
	jparse_deeper(p);
	for (;;) {
		uint32_t line = p->at->line;
		if (p->at->t == T_DATA) {
			struct jnode *n = jparse_node(p, N_TEXT, line);
			n->value = jparse_str(p, p->at);
			jnodes_push(p, &b, n);
			p->at++;
		} else if (p->at->t == T_VAR_BEGIN) {
			struct jnode *n = jparse_node(p, N_PRINT, line);
			p->at++;
			jnodes_push(p, &n->list, jparse_tuple(p, true, NULL));
			jparse_over(p, n, n->list.v[0]);
			if (p->at->t != T_VAR_END)
				jparse_fail(p, "expected '}}'");
			p->at++;
			jnodes_push(p, &b, n);
		} else if (p->at->t == T_BLOCK_BEGIN) {
			p->at++;
			if (ends && ends_with(p, ends))
				break;
			jnodes_push(p, &b, statement(p));
			block_end(p);
		} else {
			if (ends) {
				p->c.line = begun;
				jinja_fail(&p->c, -EINVAL, "a block is not closed: expected %s", ends);
			}
			break;
		}
	}
	jinja_leave(&p->c);
	return b;
}

/* ---- the template ---- */

int jinja_parse(const char *text, size_t n, unsigned flags, struct jinja **out, struct why *why)
{
	if (n > TEXT_MAX)
		return err_why(why, -E2BIG, "the chat template has %zu bytes, at most %d are accepted", n,
			       TEXT_MAX);
	size_t valid = utf8_valid(text, n);
	if (valid < n)
		return err_why(why, -EINVAL, "the chat template is not UTF-8 at byte %zu", valid);
	struct jparser *p = xcalloc(1, sizeof *p);
	p->c = (struct jctx){.arena.max = MEMORY_MAX,
			     .why = why,
			     .line = 1,
			     .depth_max = NESTING_MAX,
			     .steps_max = UINT64_MAX};
	int rc = 0;
	if (setjmp(p->c.fail) == 0) {
		size_t n_tokens;
		struct jinja *t = jinja_alloc(&p->c, sizeof *t);
		p->at = jinja_lex(&p->c, text, n, flags, &n_tokens);
		t->body = body(p, NULL);
		t->names = p->names;
		t->n_names = p->n_names;
		t->arena = p->c.arena;
		*out = t;
	} else {
		rc = p->c.rc;
		jinja_arena_fini(&p->c.arena);
	}
	free(p);
	return rc;
}

void jinja_free(struct jinja *t)
{
	if (t) {
		struct jarena a = t->arena; /* t is stored in this arena */
		jinja_arena_fini(&a);
	}
}
