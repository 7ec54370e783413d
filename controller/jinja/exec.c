/* Executes statements, macros and loops; begins and ends a rendering. */
#include "controller/jinja/jinja_impl.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>

enum { DEPTH = 1000 }; /* C stack levels, about 0.3 kB each */
static const struct jinja_limits defaults = {
	.steps = 20000000, .memory = (size_t)256 << 20, .output = (size_t)64 << 20, .depth = DEPTH};

/* ---- variables ---- */

struct jv jinja_var_get(struct jrender *r, uint32_t name)
{
	for (const struct jscope *s = r->scope; s; s = s->up)
		for (uint32_t i = 0; i < s->n; i++)
			if (s->vars[i].name == name)
				return s->vars[i].value;
	struct jv v = r->top[name];
	if (v.t == J_MISSING)
		v = r->globals[name];
	return v.t == J_MISSING ? jv_undef(&r->c, "'%.100s' is undefined", r->t->names[name].text) : v;
}

static void scope_set(struct jrender *r, struct jscope *s, uint32_t name, struct jv v)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->vars[i].name == name) {
			s->vars[i].value = v;
			return;
		}
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 4;
		s->vars = jinja_realloc(&r->c, s->vars, s->cap * sizeof *s->vars, cap * sizeof *s->vars);
		s->cap = cap;
	}
	s->vars[s->n++] = (struct jvar){name, v};
}

static void var_set(struct jrender *r, uint32_t name, struct jv v)
{
	if (r->scope)
		scope_set(r, r->scope, name, v);
	else
		r->top[name] = v;
}

static struct jscope *scope_new(struct jrender *r, struct jscope *up)
{
	struct jscope *s = jinja_alloc(&r->c, sizeof *s);
	s->up = up;
	return s;
}

/* A macro keeps the scopes around it: a loop must not reuse them. */
static void scopes_capture(struct jscope *s)
{
	for (; s && !s->captured; s = s->up)
		s->captured = true;
}

static void assign_attr(struct jrender *r, const struct jnode *target, struct jv v)
{
	struct jv ns = jinja_var_get(r, target->attr.name);
	const struct jstr *key = target->attr.key.s;
	if (ns.t != J_NS)
		jinja_fail(&r->c, -EINVAL, "cannot assign attribute on non-namespace object");
	if (key->p[0] == '_')
		jinja_fail(&r->c, -EINVAL, "a namespace takes no names that begin with '_'");
	jdict_set(&r->c, &ns.ns->vars, target->attr.key, v);
}

static void assign(struct jrender *r, const struct jnode *target, struct jv v)
{
	jinja_enter(&r->c);
	if (target->kind == N_NAME) {
		var_set(r, target->name, v);
	} else if (target->kind == N_NSREF) {
		assign_attr(r, target, v);
	} else {
		if (v.t == J_UNDEF)
			jinja_fail(&r->c, -EINVAL, "cannot unpack: %s", v.undef->what);
		struct jlist l = jv_elements(&r->c, v);
		if (l.n != target->list.n)
			jinja_fail(&r->c, -EINVAL, "%u values to unpack are expected, there are %zu",
				   target->list.n, l.n);
		for (uint32_t i = 0; i < target->list.n; i++)
			assign(r, target->list.v[i], l.v[i]);
	}
	jinja_leave(&r->c);
}

/* ---- blocks ---- */

enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum jflow exec(struct jrender *r, const struct jnodes *body);

/* Return the output of a body as a string. */
static struct jv capture(struct jrender *r, const struct jnodes *body)
{
	struct jbuild b, *outer = r->out;
	jb_init(&b, &r->c);
	b.max = outer->max;
	r->out = &b;
	exec(r, body);
	r->out = outer;
	return jb_done(&b);
}

static struct jv capture_scoped(struct jrender *r, const struct jnodes *body)
{
	struct jscope *outer = r->scope;
	r->scope = scope_new(r, outer);
	struct jv v = capture(r, body);
	r->scope = outer;
	return v;
}

static enum jflow exec_if(struct jrender *r, const struct jnode *n)
{
	uint32_t i = 0;
	while (i < n->branch.test.n && !jv_is_true(jinja_eval(r, n->branch.test.v[i])))
		i++;
	return exec(r, &n->branch.body[i]);
}

/* Return the elements that pass the loop's `if`. */
static struct jlist filtered(struct jrender *r, const struct jnode *n, struct jlist all)
{
	struct jlist some = {0};
	struct jscope *outer = r->scope;
	for (size_t i = 0; i < all.n; i++) {
		r->scope = scope_new(r, outer);
		assign(r, n->loop.target, all.v[i]);
		if (jv_is_true(jinja_eval(r, n->loop.test)))
			jlist_push(&r->c, &some, all.v[i]);
	}
	r->scope = outer;
	return some;
}

static enum jflow run_loop(struct jrender *r, const struct jnode *n, struct jv over, struct jscope *around,
			   int depth)
{
	struct jscope *outer = r->scope, *s = NULL;
	struct jloop *loop = jinja_alloc(&r->c, sizeof *loop);
	enum jflow flow = FLOW_ON;
	r->scope = around;
	*loop = (struct jloop){.def = n, .scope = around, .items = jv_elements(&r->c, over), .depth = depth};
	if (n->loop.test)
		loop->items = filtered(r, n, loop->items);
	for (; loop->at < loop->items.n && flow != FLOW_BREAK; loop->at++) {
		jinja_step(&r->c, 1);
		if (!s || s->captured)
			s = scope_new(r, around);
		s->n = 0;
		r->scope = s;
		if (r->loop_name != UINT32_MAX)
			scope_set(r, s, r->loop_name, (struct jv){.t = J_LOOP, .loop = loop});
		assign(r, n->loop.target, loop->items.v[loop->at]);
		flow = exec(r, &n->loop.body);
	}
	if (!loop->items.n && n->loop.otherwise.n) {
		r->scope = scope_new(r, around);
		flow = exec(r, &n->loop.otherwise);
	} else {
		flow = FLOW_ON;
	}
	r->scope = outer;
	return flow;
}

static enum jflow exec_for(struct jrender *r, const struct jnode *n)
{
	struct jv over = jinja_eval(r, n->loop.over);
	r->c.line = n->line;
	return run_loop(r, n, over, r->scope, 0);
}

struct jv jinja_call_loop(struct jrender *r, struct jloop *l, const struct jargs *a)
{
	struct jbuild b, *outer = r->out;
	if (!l->def->variant)
		jinja_fail(&r->c, -EINVAL,
			   "the loop must have the 'recursive' marker to be called recursively");
	if (a->n_pos != 1 || a->n_kw)
		jinja_fail(&r->c, -EINVAL, "loop() takes one argument");
	jinja_enter(&r->c);
	jb_init(&b, &r->c);
	b.max = outer->max;
	r->out = &b;
	run_loop(r, l->def, a->pos[0], l->scope, l->depth + 1);
	r->out = outer;
	jinja_leave(&r->c);
	return jb_done(&b);
}

static enum jflow exec_with(struct jrender *r, const struct jnode *n)
{
	struct jscope *outer = r->scope, *s = scope_new(r, outer);
	for (uint32_t i = 0; i < n->with.targets.n; i++) {
		struct jv v = jinja_eval(r, n->with.values.v[i]);
		r->scope = s;
		assign(r, n->with.targets.v[i], v);
		r->scope = outer;
	}
	r->scope = s;
	enum jflow flow = exec(r, &n->with.body);
	r->scope = outer;
	return flow;
}

static struct jv macro_new(struct jrender *r, const struct jnode *def)
{
	struct jmacro *m = jinja_alloc(&r->c, sizeof *m);
	const char *name = def->kind == N_MACRO ? r->t->names[def->macro.name].text : NULL;
	*m = (struct jmacro){def, name, r->scope};
	scopes_capture(r->scope);
	return (struct jv){.t = J_MACRO, .macro = m};
}

/* {% call(x) f(y) %}: call f with an additional keyword, caller. */
static void exec_call_block(struct jrender *r, const struct jnode *n)
{
	jv_put(r->out, jinja_eval_call(r, n->macro.call, macro_new(r, n)));
}

static void print(struct jrender *r, const struct jnode *n)
{
	for (uint32_t i = 0; i < n->list.n; i++)
		jv_put(r->out, jinja_eval(r, n->list.v[i]));
}

static enum jflow scoped(struct jrender *r, const struct jnodes *body)
{
	struct jscope *outer = r->scope;
	r->scope = scope_new(r, outer);
	enum jflow flow = exec(r, body);
	r->scope = outer;
	return flow;
}

static enum jflow exec_one(struct jrender *r, const struct jnode *n)
{
	struct jv v;
	switch ((enum jkind)n->kind) {
	case N_TEXT:
		jb_put(r->out, n->value.s->p, n->value.s->n, false);
		return FLOW_ON;
	case N_PRINT:
		print(r, n);
		return FLOW_ON;
	case N_IF:
		return exec_if(r, n);
	case N_FOR:
		return exec_for(r, n);
	case N_SET:
		v = jinja_eval(r, n->set.value);
		r->c.line = n->line;
		assign(r, n->set.target, v);
		return FLOW_ON;
	case N_SET_BLOCK:
		v = capture_scoped(r, &n->set.body);
		if (n->set.value)
			v = jinja_apply_filters(r, n->set.value, v);
		assign(r, n->set.target, v);
		return FLOW_ON;
	case N_MACRO:
		var_set(r, n->macro.name, macro_new(r, n));
		return FLOW_ON;
	case N_CALL_BLOCK:
		exec_call_block(r, n);
		return FLOW_ON;
	case N_FILTER_BLOCK:
		v = capture_scoped(r, &n->filter.body);
		jv_put(r->out, jinja_apply_filters(r, n->filter.filter, v));
		return FLOW_ON;
	case N_WITH:
		return exec_with(r, n);
	case N_SCOPE:
		return scoped(r, &n->list);
	case N_BREAK:
		return FLOW_BREAK;
	case N_CONTINUE:
		return FLOW_CONTINUE;
	default:
		jinja_fail(&r->c, -EINVAL, "not a statement");
	}
}

static enum jflow exec(struct jrender *r, const struct jnodes *body)
{
	enum jflow flow = FLOW_ON;
	jinja_enter(&r->c);
	for (uint32_t i = 0; i < body->n && flow == FLOW_ON; i++) {
		jinja_step(&r->c, 1);
		r->c.line = body->v[i]->line;
		flow = exec_one(r, body->v[i]);
	}
	jinja_leave(&r->c);
	return flow;
}

/* ---- macros ---- */

/* Take the keyword argument of this name from a; MISSING if there is none. */
static struct jv take_keyword(const struct jargs *a, bool *taken, uint32_t name)
{
	for (uint32_t i = 0; i < a->n_kw; i++)
		if (a->kw[i] == name && !taken[i]) {
			taken[i] = true;
			return a->kw_value[i];
		}
	return jv_missing;
}

/* Bind the arguments beyond the parameters to kwargs and varargs, or fail. */
static void bind_rest(struct jrender *r, struct jmacro *m, const struct jargs *a, const bool *taken)
{
	const struct jparams *params = m->def->macro.params;
	unsigned uses = m->def->variant;
	if (uses & USES_KWARGS) {
		struct jv d = jv_dict(&r->c);
		for (uint32_t i = 0; i < a->n_kw; i++)
			if (!taken[i])
				jdict_set(&r->c, d.m, jv_text(&r->c, r->t->names[a->kw[i]].text),
					  a->kw_value[i]);
		scope_set(r, r->scope, r->kwargs_name, d);
	} else {
		for (uint32_t i = 0; i < a->n_kw; i++)
			if (!taken[i])
				jinja_fail(&r->c, -EINVAL, "macro '%.60s' takes no keyword argument '%.60s'",
					   m->name ? m->name : "caller", r->t->names[a->kw[i]].text);
	}
	if (uses & USES_VARARGS) {
		uint32_t n = a->n_pos > params->n ? a->n_pos - params->n : 0;
		scope_set(r, r->scope, r->varargs_name,
			  jv_list(&r->c, J_TUPLE, n ? a->pos + (a->n_pos - n) : NULL, n));
	} else if (a->n_pos > params->n) {
		jinja_fail(&r->c, -EINVAL, "macro '%.60s' takes not more than %u argument(s)",
			   m->name ? m->name : "caller", params->n);
	}
}

static void bind(struct jrender *r, struct jmacro *m, const struct jargs *a, struct jv caller)
{
	const struct jparams *params = m->def->macro.params;
	bool *taken = jinja_alloc_n(&r->c, a->n_kw, sizeof *taken);
	bool explicit_caller = false;
	for (uint32_t i = 0; i < params->n; i++) {
		uint32_t name = params->names[i];
		struct jv v = i < a->n_pos ? a->pos[i] : take_keyword(a, taken, name);
		uint32_t without = params->n - params->defaults.n;
		explicit_caller |= name == r->caller_name;
		if (v.t == J_MISSING && name == r->caller_name)
			v = caller;
		if (v.t == J_MISSING && i >= without)
			v = jinja_eval(r, params->defaults.v[i - without]);
		if (v.t == J_MISSING)
			v = jv_undef(&r->c, "parameter '%.100s' was not provided", r->t->names[name].text);
		scope_set(r, r->scope, name, v);
	}
	if (m->def->variant & USES_CALLER && !explicit_caller) {
		struct jv v = take_keyword(a, taken, r->caller_name);
		v = v.t == J_MISSING ? caller : v;
		scope_set(r, r->scope, r->caller_name,
			  v.t == J_MISSING ? jv_undef(&r->c, "No caller defined") : v);
	} else if (caller.t != J_MISSING && !explicit_caller) {
		jinja_fail(&r->c, -EINVAL, "macro '%.60s' takes no keyword argument 'caller'",
			   m->name ? m->name : "caller");
	}
	bind_rest(r, m, a, taken);
}

struct jv jinja_call_macro(struct jrender *r, struct jmacro *m, const struct jargs *a)
{
	struct jscope *outer = r->scope;
	struct jv caller = r->caller;
	unsigned line = r->c.line;
	jinja_enter(&r->c);
	r->caller = jv_missing;
	r->scope = scope_new(r, m->scope);
	bind(r, m, a, caller);
	struct jv v = capture(r, &m->def->macro.body);
	r->scope = outer;
	r->c.line = line;
	jinja_leave(&r->c);
	return v;
}

/* ---- a rendering ---- */

static uint32_t name_of(const struct jinja *t, const char *name)
{
	for (uint32_t i = 0; i < t->n_names; i++)
		if (strcmp(t->names[i].text, name) == 0)
			return i;
	return UINT32_MAX;
}

static void begin(struct jrender *r, const struct jinja_var *vars, size_t n_vars)
{
	const struct jinja *t = r->t;
	r->globals = jinja_alloc_n(&r->c, t->n_names, sizeof *r->globals); /* zero is MISSING */
	r->top = jinja_alloc_n(&r->c, t->n_names, sizeof *r->top);
	r->loop_name = name_of(t, "loop");
	r->caller_name = name_of(t, "caller");
	r->kwargs_name = name_of(t, "kwargs");
	r->varargs_name = name_of(t, "varargs");
	for (uint32_t i = 0; i < t->n_names; i++) {
		const struct jfn *fn = jinja_function(t->names[i].p, t->names[i].n);
		if (fn)
			r->globals[i] = (struct jv){.t = J_FN, .fn = fn};
	}
	for (size_t i = 0; i < n_vars; i++) {
		uint32_t name = name_of(t, vars[i].name);
		if (name != UINT32_MAX && vars[i].value)
			r->globals[name] = jv_from_json(&r->c, &vars[i], vars[i].value, NULL);
	}
}

static void finish(const struct jbuild *b, struct jinja_result *out)
{
	*out = (struct jinja_result){0};
	buf_put(&out->text, b->p, b->n);
	out->n_input = b->n_spans;
	out->input = xcalloc(b->n_spans, sizeof *out->input);
	for (size_t i = 0; i < b->n_spans; i++)
		out->input[i] = (struct text_span){b->spans[i].start, b->spans[i].end};
}

void jinja_result_fini(struct jinja_result *r)
{
	buf_fini(&r->text);
	free(r->input);
	*r = (struct jinja_result){0};
}

int jinja_render(const struct jinja *t, const struct jinja_var *vars, size_t n_vars,
		 const struct jinja_limits *limits, int64_t now_us, struct jinja_result *out, struct why *why)
{
	struct jinja_limits l = limits ? *limits : defaults;
	struct jrender *r = xcalloc(1, sizeof *r);
	struct jbuild *b = xcalloc(1, sizeof *b);
	int rc = 0;
	r->t = t;
	r->now_us = now_us;
	r->c = (struct jctx){.arena.max = l.memory ? l.memory : defaults.memory,
			     .why = why,
			     .line = 1,
			     .depth_max = l.depth ? l.depth : defaults.depth,
			     .steps_max = l.steps ? l.steps : defaults.steps};
	if (setjmp(r->c.fail) == 0) {
		jb_init(b, &r->c);
		b->max = l.output ? l.output : defaults.output;
		r->out = b;
		begin(r, vars, n_vars);
		exec(r, &t->body);
		finish(b, out);
	} else {
		rc = r->c.rc;
	}
	jinja_arena_fini(&r->c.arena);
	free(b);
	free(r);
	return rc;
}
