/* Evaluates expressions. */
#include "controller/jinja/jinja_impl.h"

#include <math.h>
#include <stdio.h>

static _Noreturn void fail_undefined(struct jrender *r, struct jv v)
{
	jinja_fail(&r->c, -EINVAL, "%s", v.undef->what);
}

static _Noreturn void fail_overflow(struct jrender *r)
{
	jinja_fail(&r->c, -EINVAL, "an integer is larger than 64 bits");
}

/* ---- attributes and items ---- */

/* Return undefined with jinja2's message "'dict object' has no attribute 'x'". */
static struct jv not_found(struct jrender *r, struct jv of, struct jv key)
{
	const char *name = jv_name_of(&r->c, key);
	if (key.t != J_STR)
		return jv_undef(&r->c, "%s object has no element %s", jv_type_name(of), name);
	if (of.t == J_NONE)
		return jv_undef(&r->c, "'None' has no attribute %s", name);
	return jv_undef(&r->c, "'%s object' has no attribute %s", jv_type_name(of), name);
}

static struct jv loop_attr(struct jrender *r, struct jloop *l, const struct jstr *key)
{
	size_t n = l->items.n, at = l->at;
	if (jstr_is(key, "index"))
		return jv_int((int64_t)at + 1);
	if (jstr_is(key, "index0"))
		return jv_int((int64_t)at);
	if (jstr_is(key, "revindex"))
		return jv_int((int64_t)(n - at));
	if (jstr_is(key, "revindex0"))
		return jv_int((int64_t)(n - at) - 1);
	if (jstr_is(key, "first"))
		return jv_bool(at == 0);
	if (jstr_is(key, "last"))
		return jv_bool(at + 1 >= n);
	if (jstr_is(key, "length"))
		return jv_int((int64_t)n);
	if (jstr_is(key, "depth"))
		return jv_int(l->depth + 1);
	if (jstr_is(key, "depth0"))
		return jv_int(l->depth);
	if (jstr_is(key, "previtem"))
		return at > 0 ? l->items.v[at - 1] : jv_undef(&r->c, "there is no previous item");
	if (jstr_is(key, "nextitem"))
		return at + 1 < n ? l->items.v[at + 1] : jv_undef(&r->c, "there is no next item");
	return jv_missing;
}

static struct jv macro_attr(struct jrender *r, const struct jmacro *m, const struct jstr *key)
{
	const struct jnode *def = m->def;
	if (jstr_is(key, "name"))
		return m->name ? jv_text(&r->c, m->name) : jv_none;
	if (jstr_is(key, "arguments")) {
		const struct jparams *params = def->macro.params;
		struct jv *v = jinja_alloc_n(&r->c, params->n, sizeof *v);
		for (uint32_t i = 0; i < params->n; i++)
			v[i] = jv_text(&r->c, r->t->names[params->names[i]].text);
		return jv_list(&r->c, J_TUPLE, v, params->n);
	}
	if (jstr_is(key, "caller"))
		return jv_bool(def->variant & USES_CALLER);
	if (jstr_is(key, "catch_kwargs"))
		return jv_bool(def->variant & USES_KWARGS);
	if (jstr_is(key, "catch_varargs"))
		return jv_bool(def->variant & USES_VARARGS);
	return jv_missing;
}

/* Return a field or method, as Python's getattr(), or MISSING. */
static struct jv own_attr(struct jrender *r, struct jv of, struct jstr *key)
{
	struct jv v = jv_missing;
	bool unsafe = false;
	if (of.t == J_LOOP)
		v = loop_attr(r, of.loop, key);
	else if (of.t == J_MACRO)
		v = macro_attr(r, of.macro, key);
	else if (of.t == J_NS)
		return jdict_get(&r->c, &of.ns->vars, (struct jv){.t = J_STR, .s = key});
	if (v.t != J_MISSING)
		return v;
	const struct jfn *fn = jinja_method(of, key, &unsafe);
	if (unsafe)
		return jv_undef(&r->c, "access to attribute %s of '%s' object is unsafe",
				jv_name_of(&r->c, (struct jv){.t = J_STR, .s = key}), jv_type_name(of));
	if (!fn)
		return jv_missing;
	struct jbound *b = jinja_alloc(&r->c, sizeof *b);
	*b = (struct jbound){of, fn};
	return (struct jv){.t = J_METHOD, .bound = b};
}

/* Return Python's of[key], or MISSING. */
static struct jv own_item(struct jrender *r, struct jv of, struct jv key)
{
	int64_t i;
	if (of.t == J_DICT)
		return jv_hashable(key) ? jdict_get(&r->c, of.m, key) : jv_missing;
	if (!jv_as_int(key, &i))
		return jv_missing;
	if (of.t == J_STR) {
		int64_t n = (int64_t)jstr_chars(of.s);
		i += i < 0 ? n : 0;
		if (i < 0 || i >= n)
			return jv_missing;
		jinja_step(&r->c, of.s->n >> 6);
		size_t from = jstr_offset(of.s, (size_t)i), to = from + 1;
		while (to < of.s->n && ((unsigned char)of.s->p[to] & 0xc0) == 0x80)
			to++;
		return jstr_sub(&r->c, of.s, from, to);
	}
	if (of.t == J_LIST || of.t == J_TUPLE) {
		i += i < 0 ? (int64_t)of.l->n : 0;
		return i >= 0 && (size_t)i < of.l->n ? of.l->v[i] : jv_missing;
	}
	if (of.t == J_RANGE) {
		i += i < 0 ? (int64_t)of.range->n : 0;
		return i >= 0 && (size_t)i < of.range->n ? jv_int(of.range->start + i * of.range->step)
							 : jv_missing;
	}
	return jv_missing;
}

struct jv jinja_getattr(struct jrender *r, struct jv of, struct jv key)
{
	if (of.t == J_UNDEF)
		fail_undefined(r, of);
	struct jv v = own_attr(r, of, key.s);
	return v.t == J_MISSING ? not_found(r, of, key) : v;
}

struct jv jinja_attr(struct jrender *r, struct jv of, struct jv key)
{
	if (of.t == J_UNDEF)
		fail_undefined(r, of);
	struct jv v = own_attr(r, of, key.s);
	if (v.t == J_MISSING)
		v = own_item(r, of, key);
	return v.t == J_MISSING ? not_found(r, of, key) : v;
}

struct jv jinja_item(struct jrender *r, struct jv of, struct jv key)
{
	if (of.t == J_UNDEF)
		fail_undefined(r, of);
	struct jv v = own_item(r, of, key);
	if (v.t == J_MISSING && key.t == J_STR)
		v = own_attr(r, of, key.s);
	return v.t == J_MISSING ? not_found(r, of, key) : v;
}

static int64_t slice_part(struct jrender *r, const struct jnode *n, int64_t otherwise)
{
	struct jv v = n ? jinja_eval(r, n) : jv_none;
	if (v.t == J_NONE)
		return otherwise;
	if (v.t == J_UNDEF)
		fail_undefined(r, v);
	int64_t i;
	if (!jv_as_int(v, &i))
		jinja_fail(&r->c, -EINVAL, "slice indices must be integers or None");
	return i;
}

static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
	if (i < 0)
		i = i < -n ? -1 : i + n;
	int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
	return i < lo ? lo : i > hi ? hi : i;
}

/* Return n characters of a string: from, from + step, ... */
static struct jv slice_str(struct jrender *r, struct jstr *s, int64_t from, int64_t n, int64_t step)
{
	struct jbuild b;
	if (step == 1 && n > 0) {
		size_t start = jstr_offset(s, (size_t)from);
		return jstr_sub(&r->c, s, start, jstr_offset(s, (size_t)(from + n)));
	}
	jb_init(&b, &r->c);
	struct jlist chars = jv_elements(&r->c, (struct jv){.t = J_STR, .s = s});
	for (int64_t i = 0; i < n; i++)
		jb_str(&b, chars.v[from + i * step].s);
	return jb_done(&b);
}

/* Return a slice of a range, which is a range: n elements, from index `from` towards `to`. */
static struct jv slice_range(struct jrender *r, const struct jrange *of, int64_t from, int64_t to, int64_t n,
			     int64_t step)
{
	struct jrange *g = jinja_alloc(&r->c, sizeof *g);
	__int128 by = (__int128)of->step * step, start = of->start + (__int128)from * of->step,
		 stop = of->start + (__int128)to * of->step;
	if (by > INT64_MAX || by < INT64_MIN || start > INT64_MAX || start < INT64_MIN || stop > INT64_MAX ||
	    stop < INT64_MIN)
		fail_overflow(r);
	*g = (struct jrange){(int64_t)start, (int64_t)stop, (int64_t)by, (size_t)n};
	return (struct jv){.t = J_RANGE, .range = g};
}

static struct jv slice(struct jrender *r, struct jv of, const struct jnode *n)
{
	int64_t step = slice_part(r, n->op.c, 1), from, to, count = 0;
	if (step == 0)
		jinja_fail(&r->c, -EINVAL, "slice step cannot be zero");
	if (step > INT32_MAX || step < -INT32_MAX)
		step = step > 0 ? INT32_MAX : -INT32_MAX;
	from = slice_part(r, n->op.a, step > 0 ? 0 : INT64_MAX);
	to = slice_part(r, n->op.b, step > 0 ? INT64_MAX : INT64_MIN);
	if (of.t == J_UNDEF)
		fail_undefined(r, of);
	if (of.t != J_STR && of.t != J_LIST && of.t != J_TUPLE && of.t != J_RANGE)
		jinja_fail(&r->c, -EINVAL, "'%s' object cannot be sliced", jv_type_name(of));
	int64_t len = (int64_t)jv_length(&r->c, of);
	from = clamp(from, len, step);
	to = to == INT64_MIN ? -1 : clamp(to, len, step);
	if (step > 0 ? to > from : to < from)
		count = step > 0 ? (to - from - 1) / step + 1 : (from - to - 1) / -step + 1;
	jinja_step(&r->c, (uint64_t)count);
	if (of.t == J_STR)
		return slice_str(r, of.s, from, count, step);
	if (of.t == J_RANGE)
		return slice_range(r, of.range, from, to, count, step);
	struct jlist l = jv_elements(&r->c, of);
	struct jv *v = jinja_alloc_n(&r->c, (size_t)count, sizeof *v);
	for (int64_t i = 0; i < count; i++)
		v[i] = l.v[from + i * step];
	return jv_list(&r->c, of.t == J_TUPLE ? J_TUPLE : J_LIST, v, (size_t)count);
}

/* ---- arithmetic ---- */

static _Noreturn void fail_operands(struct jrender *r, const char *op, struct jv a, struct jv b)
{
	jinja_fail(&r->c, -EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", op, jv_type_name(a),
		   jv_type_name(b));
}

static struct jv power_int(struct jrender *r, int64_t a, int64_t b)
{
	int64_t x = 1;
	if (b < 0) {
		if (a == 0)
			jinja_fail(&r->c, -EINVAL, "0.0 cannot be raised to a negative power");
		return jv_float(pow((double)a, (double)b));
	}
	if (a == 0 || a == 1 || b == 0)
		return jv_int(b == 0 ? 1 : a);
	if (a == -1)
		return jv_int(b % 2 ? -1 : 1);
	for (; b > 0; b--)
		if (__builtin_mul_overflow(x, a, &x))
			fail_overflow(r);
	return jv_int(x);
}

static struct jv integers(struct jrender *r, enum jop op, int64_t a, int64_t b)
{
	int64_t x = 0;
	if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
		jinja_fail(&r->c, -EINVAL,
			   op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
	switch (op) {
	case OP_ADD:
		if (__builtin_add_overflow(a, b, &x))
			fail_overflow(r);
		return jv_int(x);
	case OP_SUB:
		if (__builtin_sub_overflow(a, b, &x))
			fail_overflow(r);
		return jv_int(x);
	case OP_MUL:
		if (__builtin_mul_overflow(a, b, &x))
			fail_overflow(r);
		return jv_int(x);
	case OP_DIV:
		return jv_float((double)a / (double)b);
	case OP_FLOORDIV:
		if (a == INT64_MIN && b == -1)
			fail_overflow(r);
		return jv_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
	case OP_MOD:
		if (b == -1)
			return jv_int(0);
		x = a % b;
		return jv_int(x != 0 && (x < 0) != (b < 0) ? x + b : x);
	case OP_POW:
		break;
	}
	return power_int(r, a, b);
}

static struct jv reals(struct jrender *r, enum jop op, double a, double b)
{
	if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
		jinja_fail(&r->c, -EINVAL, "float division by zero");
	double m;
	switch (op) {
	case OP_ADD:
		return jv_float(a + b);
	case OP_SUB:
		return jv_float(a - b);
	case OP_MUL:
		return jv_float(a * b);
	case OP_DIV:
		return jv_float(a / b);
	case OP_FLOORDIV:
	case OP_MOD:
		m = fmod(a, b);
		if (m != 0 && (m < 0) != (b < 0))
			m += b;
		return jv_float(op == OP_MOD ? m : floor((a - m) / b + 0.5));
	case OP_POW:
		break;
	}
	return jv_float(pow(a, b));
}

static struct jv repeat(struct jrender *r, struct jv v, int64_t times)
{
	size_t n = times > 0 ? (size_t)times : 0;
	if (v.t == J_STR) {
		struct jbuild b;
		jb_init(&b, &r->c);
		if (n && v.s->n > (b.max - 1) / n)
			jinja_fail(&r->c, -E2BIG, "it makes a text of more than %zu bytes", b.max);
		for (size_t i = 0; v.s->n && i < n; i++) {
			jinja_step(&r->c, 1);
			jb_str(&b, v.s);
		}
		return jb_done(&b);
	}
	size_t all;
	if (__builtin_mul_overflow(v.l->n, n, &all))
		all = SIZE_MAX / sizeof(struct jv);
	struct jv *e = jinja_alloc_n(&r->c, all, sizeof *e);
	for (size_t i = 0; i < all; i++)
		e[i] = v.l->v[i % v.l->n];
	return jv_list(&r->c, v.t, e, all);
}

static bool is_sequence(struct jv v)
{
	return v.t == J_STR || v.t == J_LIST || v.t == J_TUPLE;
}

static struct jv add(struct jrender *r, struct jv a, struct jv b)
{
	if (a.t == J_STR && b.t == J_STR && (a.s->safe || b.s->safe)) {
		struct jv v = jstr_concat(&r->c, jinja_escape(&r->c, a.s).s, jinja_escape(&r->c, b.s).s);
		v.s->safe = true;
		return v;
	}
	if (a.t == J_STR && b.t == J_STR)
		return jstr_concat(&r->c, a.s, b.s);
	if (a.t == b.t && is_sequence(a))
		return jlist_concat(&r->c, a.t, a.l, b.l);
	if (is_sequence(a))
		jinja_fail(&r->c, -EINVAL, "can only concatenate %s (not \"%s\") to %s", jv_type_name(a),
			   jv_type_name(b), jv_type_name(a));
	fail_operands(r, "+", a, b);
}

struct jv jinja_binary(struct jrender *r, enum jop op, struct jv a, struct jv b)
{
	static const char *const names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
	int64_t i, j;
	if (op == OP_MOD && a.t == J_STR)
		return jinja_percent(r, a.s, b);
	if (a.t == J_UNDEF || b.t == J_UNDEF)
		fail_undefined(r, a.t == J_UNDEF ? a : b);
	if (jv_is_number(a) && jv_is_number(b)) {
		if (jv_as_int(a, &i) && jv_as_int(b, &j))
			return integers(r, op, i, j);
		return reals(r, op, jv_number(a), jv_number(b));
	}
	if (op == OP_ADD)
		return add(r, a, b);
	if (op == OP_MUL && is_sequence(a) && jv_as_int(b, &i))
		return repeat(r, a, i);
	if (op == OP_MUL && is_sequence(b) && jv_as_int(a, &i))
		return repeat(r, b, i);
	fail_operands(r, names[op], a, b);
}

bool jinja_compare(struct jrender *r, enum jcmp op, struct jv a, struct jv b)
{
	switch (op) {
	case CMP_EQ:
		return jv_equal(&r->c, a, b);
	case CMP_NE:
		return !jv_equal(&r->c, a, b);
	case CMP_LT:
		return jv_compare(&r->c, a, b, "<") < 0;
	case CMP_LE:
		return jv_compare(&r->c, a, b, "<=") <= 0;
	case CMP_GT:
		return jv_compare(&r->c, a, b, ">") > 0;
	case CMP_GE:
		return jv_compare(&r->c, a, b, ">=") >= 0;
	case CMP_IN:
		return jv_contains(&r->c, b, a);
	case CMP_NOT_IN:
		break;
	}
	return !jv_contains(&r->c, b, a);
}

static bool compare_chain(struct jrender *r, const struct jnode *n)
{
	struct jv left = jinja_eval(r, n->list.v[0]);
	for (uint32_t i = 1; i + 1 < n->list.n; i += 2) {
		struct jv right = jinja_eval(r, n->list.v[i + 1]);
		r->c.line = n->line;
		if (!jinja_compare(r, (enum jcmp)n->list.v[i]->value.i, left, right))
			return false;
		left = right;
	}
	return true;
}

static struct jv sign(struct jrender *r, const struct jnode *n, bool negative)
{
	struct jv v = jinja_eval(r, n->op.a);
	int64_t i;
	if (v.t == J_UNDEF)
		fail_undefined(r, v);
	if (v.t == J_FLOAT)
		return jv_float(negative ? -v.d : v.d);
	if (!jv_as_int(v, &i))
		jinja_fail(&r->c, -EINVAL, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
			   jv_type_name(v));
	if (negative && i == INT64_MIN)
		fail_overflow(r);
	return jv_int(negative ? -i : i);
}

/* ---- calls ---- */

static struct jargs arguments(struct jrender *r, const struct jcall *call)
{
	struct jargs a = {.n_pos = call->pos.n, .n_kw = call->kw.n, .kw = call->kw_names};
	if (!call->star && !call->star_star && !a.n_pos && !a.n_kw)
		return a;
	a.pos = jinja_alloc_n(&r->c, a.n_pos, sizeof *a.pos);
	for (uint32_t i = 0; i < call->pos.n; i++)
		a.pos[i] = jinja_eval(r, call->pos.v[i]);
	if (call->star) {
		struct jlist more = jv_elements(&r->c, jinja_eval(r, call->star));
		struct jlist all = {.v = a.pos, .n = a.n_pos};
		all = *jlist_concat(&r->c, J_LIST, &all, &more).l;
		a.pos = all.v;
		a.n_pos = (uint32_t)all.n;
	}
	struct jv named = call->star_star ? jinja_eval(r, call->star_star) : jv_none;
	if (call->star_star && named.t != J_DICT)
		jinja_fail(&r->c, -EINVAL, "argument after ** must be a mapping, not %s",
			   jv_type_name(named));
	size_t n_more = call->star_star ? named.m->n : 0;
	a.kw_value = jinja_alloc_n(&r->c, a.n_kw + n_more, sizeof *a.kw_value);
	for (uint32_t i = 0; i < call->kw.n; i++)
		a.kw_value[i] = jinja_eval(r, call->kw.v[i]);
	if (n_more) {
		a.kw = jinja_alloc_n(&r->c, a.n_kw + n_more, sizeof *a.kw);
		if (call->kw.n)
			memcpy(a.kw, call->kw_names, call->kw.n * sizeof *a.kw);
	}
	for (size_t i = 0; i < n_more; i++) {
		/* A name that is not in the template cannot be a parameter of anything in it. */
		const struct jstr *key = jv_need_str(&r->c, named.m->e[i].key, "a keyword");
		uint32_t name = 0;
		while (name < r->t->n_names &&
		       (r->t->names[name].n != key->n || memcmp(r->t->names[name].p, key->p, key->n)))
			name++;
		jinja_step(&r->c, r->t->n_names);
		if (name == r->t->n_names)
			jinja_fail(&r->c, -EINVAL, "unexpected keyword argument '%.*s'",
				   (int)(key->n < 60 ? key->n : 60), key->p);
		a.kw[a.n_kw] = name;
		a.kw_value[a.n_kw++] = named.m->e[i].value;
	}
	return a;
}

enum { PARAMS_MAX = 8 };

struct jv jinja_call_fn(struct jrender *r, const struct jfn *fn, struct jv self, const struct jargs *args)
{
	struct jv a[PARAMS_MAX] = {{.t = J_MISSING}};
	const char *param[PARAMS_MAX];
	size_t n = 0;
	if (!fn->params)
		return fn->call(r, self, NULL, args);
	for (const char *p = fn->params; *p; n++) {
		param[n] = p;
		p += strcspn(p, ",");
		p += *p == ',';
	}
	if (args->n_pos > n)
		jinja_fail(&r->c, -EINVAL, "%s() takes at most %zu arguments, %u are given", fn->name, n,
			   args->n_pos);
	for (uint32_t i = 0; i < args->n_pos; i++)
		a[i] = args->pos[i];
	for (uint32_t i = 0; i < args->n_kw; i++) {
		const struct jname *k = &r->t->names[args->kw[i]];
		size_t at = 0;
		while (at < n && (strncmp(param[at], k->p, k->n) != 0 || strcspn(param[at], ",") != k->n))
			at++;
		if (at == n)
			jinja_fail(&r->c, -EINVAL, "%s() got an unexpected keyword argument '%.60s'",
				   fn->name, k->text);
		if (a[at].t != J_MISSING)
			jinja_fail(&r->c, -EINVAL, "%s() got multiple values for argument '%.60s'", fn->name,
				   k->text);
		a[at] = args->kw_value[i];
	}
	return fn->call(r, self, a, args);
}

static struct jv call(struct jrender *r, struct jv callee, const struct jargs *a)
{
	switch (callee.t) {
	case J_UNDEF:
		fail_undefined(r, callee);
	case J_MACRO:
		return jinja_call_macro(r, callee.macro, a);
	case J_FN:
		return jinja_call_fn(r, callee.fn, jv_none, a);
	case J_METHOD:
		return jinja_call_fn(r, callee.bound->fn, callee.bound->self, a);
	case J_LOOP:
		return jinja_call_loop(r, callee.loop, a);
	default:
		jinja_fail(&r->c, -EINVAL, "'%s' object is not callable", jv_type_name(callee));
	}
}

/* Call with the body of a {% call %}, which only a macro accepts. */
static struct jv call_with(struct jrender *r, const struct jnode *n, struct jv callee, struct jv caller)
{
	struct jargs a = arguments(r, n->call.args);
	r->c.line = n->line;
	if (caller.t != J_MISSING && callee.t != J_MACRO)
		jinja_fail(&r->c, -EINVAL, "{%% call %%} of a '%s', which is not a macro",
			   jv_type_name(callee));
	r->caller = caller;
	return call(r, callee, &a);
}

struct jv jinja_eval_call(struct jrender *r, const struct jnode *n, struct jv caller)
{
	const struct jnode *of = n->call.of;
	if (of->kind != N_ATTR)
		return call_with(r, n, jinja_eval(r, of), caller);
	/* Usually a method: called directly, without making a bound value. */
	struct jv self = jinja_eval(r, of->attr.of);
	bool unsafe = false;
	r->c.line = n->line;
	const struct jfn *fn = jinja_method(self, of->attr.key.s, &unsafe);
	if (!fn || caller.t != J_MISSING)
		return call_with(r, n, jinja_attr(r, self, of->attr.key), caller);
	struct jargs a = arguments(r, n->call.args);
	r->c.line = n->line;
	return jinja_call_fn(r, fn, self, &a);
}

static struct jv apply_filter(struct jrender *r, const struct jnode *n, struct jv v)
{
	r->c.line = n->line;
	if (!n->call.fn->call)
		jinja_fail(&r->c, -EINVAL, "there is no filter named '%.60s'", n->call.fn->name);
	struct jargs a = arguments(r, n->call.args);
	r->c.line = n->line;
	return jinja_call_fn(r, n->call.fn, v, &a);
}

struct jv jinja_apply_filters(struct jrender *r, const struct jnode *chain, struct jv v)
{
	jinja_enter(&r->c);
	if (chain->call.of)
		v = jinja_apply_filters(r, chain->call.of, v);
	v = apply_filter(r, chain, v);
	jinja_leave(&r->c);
	return v;
}

static struct jv eval_test(struct jrender *r, const struct jnode *n)
{
	struct jv v = jinja_eval(r, n->call.of);
	r->c.line = n->line;
	if (!n->call.fn->call)
		jinja_fail(&r->c, -EINVAL, "there is no test named '%.60s'", n->call.fn->name);
	struct jargs a = arguments(r, n->call.args);
	bool is = jv_is_true(jinja_call_fn(r, n->call.fn, v, &a));
	return jv_bool(is != n->variant);
}

/* ---- expressions ---- */

static struct jv eval_list(struct jrender *r, const struct jnode *n)
{
	struct jv *v = jinja_alloc_n(&r->c, n->list.n, sizeof *v);
	for (uint32_t i = 0; i < n->list.n; i++)
		v[i] = jinja_eval(r, n->list.v[i]);
	return jv_list(&r->c, n->kind == N_TUPLE ? J_TUPLE : J_LIST, v, n->list.n);
}

static struct jv eval_dict(struct jrender *r, const struct jnode *n)
{
	struct jv d = jv_dict(&r->c);
	for (uint32_t i = 0; i < n->list.n; i += 2) {
		struct jv key = jinja_eval(r, n->list.v[i]);
		if (!jv_hashable(key))
			jinja_fail(&r->c, -EINVAL, "unhashable type: '%s'", jv_type_name(key));
		jdict_set(&r->c, d.m, key, jinja_eval(r, n->list.v[i + 1]));
	}
	return d;
}

static struct jv eval_concat(struct jrender *r, const struct jnode *n)
{
	struct jv v = jv_to_str(&r->c, jinja_eval(r, n->list.v[0]));
	for (uint32_t i = 1; i < n->list.n; i++) {
		struct jv next = jv_to_str(&r->c, jinja_eval(r, n->list.v[i]));
		v = jstr_concat(&r->c, v.s, next.s);
	}
	return v;
}

static struct jv eval_item(struct jrender *r, const struct jnode *n)
{
	struct jv of = jinja_eval(r, n->op.a);
	if (n->op.b->kind == N_SLICE)
		return slice(r, of, n->op.b);
	struct jv key = jinja_eval(r, n->op.b);
	r->c.line = n->line;
	return jinja_item(r, of, key);
}

static struct jv eval_cond(struct jrender *r, const struct jnode *n)
{
	if (jv_is_true(jinja_eval(r, n->op.a)))
		return jinja_eval(r, n->op.b);
	if (n->op.c)
		return jinja_eval(r, n->op.c);
	return jv_undef(
		&r->c,
		"the inline if-expression on line %u evaluated to false and no else section was defined",
		n->line);
}

static struct jv eval_binary(struct jrender *r, const struct jnode *n)
{
	struct jv a = jinja_eval(r, n->op.a), b = jinja_eval(r, n->op.b);
	r->c.line = n->line;
	return jinja_binary(r, (enum jop)n->variant, a, b);
}

static struct jv eval(struct jrender *r, const struct jnode *n)
{
	struct jv v;
	switch ((enum jkind)n->kind) {
	case N_CONST:
		return n->value;
	case N_NAME:
		return jinja_var_get(r, n->name);
	case N_LIST:
	case N_TUPLE:
		return eval_list(r, n);
	case N_DICT:
		return eval_dict(r, n);
	case N_ATTR:
		v = jinja_eval(r, n->attr.of);
		r->c.line = n->line;
		return jinja_attr(r, v, n->attr.key);
	case N_ITEM:
		return eval_item(r, n);
	case N_CALL:
		return jinja_eval_call(r, n, jv_missing);
	case N_FILTER:
		v = jinja_eval(r, n->call.of);
		return apply_filter(r, n, v);
	case N_TEST:
		return eval_test(r, n);
	case N_NOT:
		return jv_bool(!jv_is_true(jinja_eval(r, n->op.a)));
	case N_NEG:
	case N_POS:
		return sign(r, n, n->kind == N_NEG);
	case N_AND:
	case N_OR:
		v = jinja_eval(r, n->op.a);
		return jv_is_true(v) == (n->kind == N_OR) ? v : jinja_eval(r, n->op.b);
	case N_COND:
		return eval_cond(r, n);
	case N_BINARY:
		return eval_binary(r, n);
	case N_COMPARE:
		return jv_bool(compare_chain(r, n));
	case N_CONCAT:
		return eval_concat(r, n);
	default:
		jinja_fail(&r->c, -EINVAL, "not an expression");
	}
}

struct jv jinja_eval(struct jrender *r, const struct jnode *n)
{
	jinja_enter(&r->c);
	r->c.line = n->line;
	struct jv v = eval(r, n);
	jinja_leave(&r->c);
	return v;
}
