/* The methods of dicts, lists, numbers and loops, and the global functions. */
#include "controller/jinja/jinja_impl.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { RANGE_MAX = 100000, DATE_BYTES_MAX = 512 }; /* RANGE_MAX: as in jinja2's sandbox */

const struct jfn *jfn_find(const struct jfn *table, size_t n_table, const char *name, size_t n)
{
	for (size_t i = 0; i < n_table; i++)
		if (table[i].name[0] == name[0] && strncmp(table[i].name, name, n) == 0 && !table[i].name[n])
			return &table[i];
	return NULL;
}

/* ---- dict ---- */

JINJA_FN(dict_get, self)
{
	if (a[0].t == J_MISSING)
		jinja_fail(&r->c, -EINVAL, "get expected at least 1 argument, got 0");
	if (!jv_hashable(a[0]))
		jinja_fail(&r->c, -EINVAL, "unhashable type: '%s'", jv_type_name(a[0]));
	struct jv v = jdict_get(&r->c, self.m, a[0]);
	return v.t != J_MISSING ? v : a[1].t == J_MISSING ? jv_none : a[1];
}

JINJA_FN(dict_items, self)
{
	return jv_view(&r->c, "dict_items", jdict_list(&r->c, self.m, 'i'));
}

JINJA_FN(dict_keys, self)
{
	return jv_view(&r->c, "dict_keys", jdict_list(&r->c, self.m, 'k'));
}

JINJA_FN(dict_values, self)
{
	return jv_view(&r->c, "dict_values", jdict_list(&r->c, self.m, 'v'));
}

static void copy_into(struct jrender *r, struct jdict *to, const struct jdict *from)
{
	for (size_t i = 0; i < from->n; i++)
		jdict_set(&r->c, to, from->e[i].key, from->e[i].value);
}

JINJA_FN(dict_copy, self)
{
	struct jv d = jv_dict(&r->c);
	copy_into(r, d.m, self.m);
	return d;
}

static const struct jfn dict_methods[] = {
	{"get", "key,default", dict_get}, {"items", "", dict_items}, {"keys", "", dict_keys},
	{"values", "", dict_values},      {"copy", "", dict_copy},
};

/* ---- list, tuple, range ---- */

JINJA_FN(list_index, self)
{
	struct jlist l = jv_elements(&r->c, self);
	int64_t n = (int64_t)l.n, from = 0, to = n;
	if (a[1].t != J_MISSING)
		from = jv_need_int(&r->c, a[1], "start");
	if (a[2].t != J_MISSING)
		to = jv_need_int(&r->c, a[2], "stop");
	from = from < 0 ? (from < -n ? 0 : from + n) : from;
	to = to < 0 ? (to < -n ? 0 : to + n) : to > n ? n : to;
	for (int64_t i = from; i < to; i++)
		if (jv_equal(&r->c, l.v[i], a[0]))
			return jv_int(i);
	jinja_fail(&r->c, -EINVAL, "%s is not in the %s", jv_name_of(&r->c, a[0]), jv_type_name(self));
}

JINJA_FN(list_count, self)
{
	struct jlist l = jv_elements(&r->c, self);
	int64_t n = 0;
	for (size_t i = 0; i < l.n; i++)
		n += jv_equal(&r->c, l.v[i], a[0]);
	return jv_int(n);
}

JINJA_FN(list_copy, self)
{
	return jv_list(&r->c, J_LIST, self.l->v, self.l->n);
}

static const struct jfn list_methods[] = {
	{"index", "value,start,stop", list_index},
	{"count", "value", list_count},
	{"copy", "", list_copy},
};

/* ---- numbers ---- */

JINJA_FN(float_is_integer, self)
{
	return jv_bool(self.t != J_FLOAT || (isfinite(self.d) && floor(self.d) == self.d));
}

static const struct jfn number_methods[] = {{"is_integer", "", float_is_integer}};

/* ---- loop ---- */

JINJA_FN(loop_cycle, self)
{
	if (!args->n_pos)
		jinja_fail(&r->c, -EINVAL, "no items for cycling given");
	return args->pos[self.loop->at % args->n_pos];
}

JINJA_FN(loop_changed, self)
{
	struct jloop *l = self.loop;
	struct jv now = jv_list(&r->c, J_TUPLE, args->pos, args->n_pos);
	if (l->has_changed && jv_equal(&r->c, l->changed, now))
		return jv_false;
	l->has_changed = true;
	l->changed = now;
	return jv_true;
}

static const struct jfn loop_methods[] = {{"cycle", NULL, loop_cycle}, {"changed", NULL, loop_changed}};

static bool is_one_of(const struct jstr *name, const char *const *words)
{
	for (; *words; words++)
		if (jstr_is(name, *words))
			return true;
	return false;
}

#define FIND(table_) jfn_find(table_, sizeof(table_) / sizeof(table_)[0], name->p, name->n)

const struct jfn *jinja_method(struct jv self, const struct jstr *name, bool *unsafe)
{
	/* Methods that modify their object: a sandboxed template must not call them. */
	static const char *const dict_changes[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
	static const char *const list_changes[] = {"append", "clear",  "pop",    "reverse", "insert",
						   "sort",   "extend", "remove", NULL};
	switch (self.t) {
	case J_STR:
		return jinja_str_method(name);
	case J_DICT:
		*unsafe = is_one_of(name, dict_changes);
		return FIND(dict_methods);
	case J_LIST:
		*unsafe = is_one_of(name, list_changes);
		return FIND(list_methods);
	case J_TUPLE:
	case J_RANGE:
		return jstr_is(name, "copy") ? NULL : FIND(list_methods);
	case J_BOOL:
	case J_INT:
	case J_FLOAT:
		return FIND(number_methods);
	case J_LOOP:
		return FIND(loop_methods);
	default:
		return NULL;
	}
}

/* ---- functions ---- */

JINJA_FN(fn_range, self)
{
	struct jrange *g = jinja_alloc(&r->c, sizeof *g);
	if (a[0].t == J_MISSING)
		jinja_fail(&r->c, -EINVAL, "range expected at least 1 argument, got 0");
	int64_t first = jv_need_int(&r->c, a[0], "range() argument");
	*g = (struct jrange){.stop = first, .step = 1};
	if (a[1].t != J_MISSING) {
		g->start = first;
		g->stop = jv_need_int(&r->c, a[1], "range() argument");
	}
	if (a[2].t != J_MISSING)
		g->step = jv_need_int(&r->c, a[2], "range() argument");
	if (g->step == 0)
		jinja_fail(&r->c, -EINVAL, "range() arg 3 must not be zero");
	__int128 span = g->step > 0 ? (__int128)g->stop - g->start : (__int128)g->start - g->stop;
	__int128 step = g->step > 0 ? g->step : -(__int128)g->step;
	__int128 n = span > 0 ? (span + step - 1) / step : 0;
	if (n > RANGE_MAX)
		jinja_fail(&r->c, -E2BIG, "range too big: more than %d elements", RANGE_MAX);
	g->n = (size_t)n;
	return (struct jv){.t = J_RANGE, .range = g};
}

/* Fill in d from the arguments of dict(...) or namespace(...). */
static void fill(struct jrender *r, struct jdict *d, const struct jargs *args, const char *name)
{
	if (args->n_pos > 1)
		jinja_fail(&r->c, -EINVAL, "%s expected at most 1 argument, got %u", name, args->n_pos);
	if (args->n_pos && args->pos[0].t == J_DICT) {
		copy_into(r, d, args->pos[0].m);
	} else if (args->n_pos) {
		struct jlist l = jv_elements(&r->c, args->pos[0]);
		for (size_t i = 0; i < l.n; i++) {
			struct jlist pair = jv_elements(&r->c, l.v[i]);
			if (pair.n != 2)
				jinja_fail(&r->c, -EINVAL, "element %zu has length %zu; 2 is required", i,
					   pair.n);
			if (!jv_hashable(pair.v[0]))
				jinja_fail(&r->c, -EINVAL, "unhashable type: '%s'", jv_type_name(pair.v[0]));
			jdict_set(&r->c, d, pair.v[0], pair.v[1]);
		}
	}
	for (uint32_t i = 0; i < args->n_kw; i++) {
		const struct jname *k = &r->t->names[args->kw[i]];
		jdict_set(&r->c, d, jv_str(&r->c, k->p, k->n, JM_NONE), args->kw_value[i]);
	}
}

JINJA_FN(fn_dict, self)
{
	struct jv d = jv_dict(&r->c);
	fill(r, d.m, args, "dict");
	return d;
}

JINJA_FN(fn_namespace, self)
{
	struct jns *ns = jinja_alloc(&r->c, sizeof *ns);
	fill(r, &ns->vars, args, "namespace");
	for (size_t i = 0; i < ns->vars.n; i++) {
		struct jv k = ns->vars.e[i].key;
		if (k.t == J_STR && k.s->n && k.s->p[0] == '_')
			jinja_fail(&r->c, -EINVAL, "a namespace takes no names that begin with '_'");
	}
	return (struct jv){.t = J_NS, .ns = ns};
}

JINJA_FN(fn_raise_exception, self)
{
	struct jv text = jv_to_str(&r->c, a[0].t == J_MISSING ? jv_none : a[0]);
	jinja_fail(&r->c, -EINVAL, "%.*s", (int)(text.s->n < 300 ? text.s->n : 300), text.s->p);
}

JINJA_FN(fn_strftime_now, self)
{
	const struct jstr *format = jv_need_str(&r->c, a[0], "strftime_now() argument");
	time_t now = (time_t)(r->now_us / 1000000);
	struct tm tm;
	if (format->n > DATE_BYTES_MAX || memchr(format->p, 0, format->n) || !localtime_r(&now, &tm))
		jinja_fail(&r->c, -EINVAL, "strftime_now() takes a format of at most %d bytes",
			   DATE_BYTES_MAX);
	/* %f, microseconds, is specific to Python. */
	char *f = jinja_alloc(&r->c, format->n * 6 + 2), *out = jinja_alloc(&r->c, DATE_BYTES_MAX * 8);
	size_t n = 0;
	for (size_t i = 0; i < format->n; i++) {
		bool code = format->p[i] == '%' && i + 1 < format->n;
		if (code && format->p[i + 1] == 'f') {
			n += (size_t)snprintf(f + n, 7, "%06d", (int)(r->now_us % 1000000));
			i++;
			continue;
		}
		f[n++] = format->p[i];
		if (code)
			f[n++] = format->p[++i];
	}
	f[n] = ' '; /* so that an empty result differs from an error */
	size_t len = strftime(out, DATE_BYTES_MAX * 8, f, &tm);
	if (!len)
		jinja_fail(&r->c, -EINVAL, "strftime_now(): the format gives too long a text");
	return jv_str(&r->c, out, len - 1, format->n && jstr_input_at(format, 0) ? JM_ALL : JM_NONE);
}

static const struct jfn functions[] = {
	{"range", "start,stop,step", fn_range},      {"dict", NULL, fn_dict},
	{"namespace", NULL, fn_namespace},           {"raise_exception", "message", fn_raise_exception},
	{"strftime_now", "format", fn_strftime_now},
};

const struct jfn *jinja_function(const char *name, size_t n)
{
	return jfn_find(functions, sizeof functions / sizeof functions[0], name, n);
}
