/* Filters of sequences and mappings. Where jinja2 returns a lazy generator, the elements are computed at
 * once here; it can still be iterated only once. */
#include "controller/jinja/jinja_impl.h"

/* ---- attributes by path: "a.b.0" ---- */

static struct jv part_of(struct jrender *r, const struct jstr *path, size_t from, size_t to)
{
	int64_t i = 0;
	size_t at = from;
	for (; at < to && path->p[at] >= '0' && path->p[at] <= '9' && at - from < 9; at++)
		i = i * 10 + (path->p[at] - '0');
	return at == to && to > from ? jv_int(i) : jstr_sub(&r->c, path, from, to);
}

static struct jv by_path(struct jrender *r, struct jv v, struct jv path, struct jv otherwise)
{
	if (!jarg_given(path))
		return v;
	if (path.t != J_STR) {
		v = jinja_item(r, v, path);
		return v.t == J_UNDEF && jarg_given(otherwise) ? otherwise : v;
	}
	for (size_t at = 0; at <= path.s->n;) {
		const char *dot = at < path.s->n ? memchr(path.s->p + at, '.', path.s->n - at) : NULL;
		size_t end = dot ? (size_t)(dot - path.s->p) : path.s->n;
		v = jinja_item(r, v, part_of(r, path.s, at, end));
		if (v.t == J_UNDEF && jarg_given(otherwise))
			v = otherwise;
		at = end + 1;
	}
	return v;
}

static struct jv folded(struct jrender *r, struct jv v, bool case_sensitive)
{
	return v.t == J_STR && !case_sensitive ? jinja_call_str_method(r, v, "lower", NULL, 0) : v;
}

/* ---- sorting ---- */

static struct jv sort_key(struct jrender *r, struct jv v, struct jv attribute, bool case_sensitive)
{
	if (attribute.t != J_STR || !memchr(attribute.s->p, ',', attribute.s->n))
		return folded(r, by_path(r, v, attribute, jv_missing), case_sensitive);
	struct jlist keys = {0};
	for (size_t at = 0; at <= attribute.s->n;) {
		const char *comma =
			at < attribute.s->n ? memchr(attribute.s->p + at, ',', attribute.s->n - at) : NULL;
		size_t end = comma ? (size_t)(comma - attribute.s->p) : attribute.s->n;
		struct jv path = jstr_sub(&r->c, attribute.s, at, end);
		jlist_push(&r->c, &keys, folded(r, by_path(r, v, path, jv_missing), case_sensitive));
		at = end + 1;
	}
	return jlist_done(&r->c, &keys);
}

static struct jlist sorted_by(struct jrender *r, struct jlist l, struct jv attribute, bool case_sensitive,
			      bool reverse)
{
	struct jkeyed *k = jinja_alloc_n(&r->c, l.n, sizeof *k);
	struct jlist out = {.v = jinja_alloc_n(&r->c, l.n, sizeof *out.v), .n = l.n};
	for (size_t i = 0; i < l.n; i++)
		k[i] = (struct jkeyed){sort_key(r, l.v[i], attribute, case_sensitive), l.v[i], i};
	jkeyed_sort(&r->c, k, l.n, reverse);
	for (size_t i = 0; i < l.n; i++)
		out.v[i] = k[i].value;
	return out;
}

JINJA_FN(do_sort, v)
{
	struct jlist l = sorted_by(r, jv_elements(&r->c, v), a[2], jarg_flag(a[1]), jarg_flag(a[0]));
	return jlist_done(&r->c, &l);
}

static struct jdict *need_dict(struct jrender *r, struct jv v, const char *what)
{
	if (v.t == J_UNDEF)
		jinja_fail(&r->c, -EINVAL, "%s", v.undef->what);
	if (v.t != J_DICT)
		jinja_fail(&r->c, -EINVAL, "%s", what);
	return v.m;
}

JINJA_FN(do_dictsort, v)
{
	struct jlist l = jdict_list(&r->c, need_dict(r, v, "dictsort needs a mapping"), 'i');
	bool by_value = jarg_given(a[1]) && jstr_is(jv_need_str(&r->c, a[1], "by"), "value");
	if (jarg_given(a[1]) && !by_value && !jstr_is(a[1].s, "key"))
		jinja_fail(&r->c, -EINVAL, "You can only sort by either \"key\" or \"value\"");
	l = sorted_by(r, l, jv_int(by_value), jarg_flag(a[0]), jarg_flag(a[2]));
	return jlist_done(&r->c, &l);
}

static struct jv least(struct jrender *r, struct jv v, const struct jv *a, int sign)
{
	struct jlist l = jv_elements(&r->c, v);
	if (!l.n)
		return jv_undef(&r->c, "No aggregated item, sequence was empty.");
	size_t best = 0;
	struct jv key = folded(r, by_path(r, l.v[0], a[1], jv_missing), jarg_flag(a[0]));
	for (size_t i = 1; i < l.n; i++) {
		struct jv k = folded(r, by_path(r, l.v[i], a[1], jv_missing), jarg_flag(a[0]));
		if (jv_compare(&r->c, k, key, sign > 0 ? ">" : "<") * sign > 0) {
			best = i;
			key = k;
		}
	}
	return l.v[best];
}

JINJA_FN(do_min, v)
{
	return least(r, v, a, -1);
}

JINJA_FN(do_max, v)
{
	return least(r, v, a, 1);
}

JINJA_FN(do_groupby, v)
{
	struct jlist l = sorted_by(r, jv_elements(&r->c, v), a[0], jarg_flag(a[2]), false), out = {0};
	for (size_t i = 0; i < l.n;) {
		struct jv shown = by_path(r, l.v[i], a[0], a[1]), key = folded(r, shown, jarg_flag(a[2]));
		size_t end = i + 1;
		while (end < l.n &&
		       jv_equal(&r->c, folded(r, by_path(r, l.v[end], a[0], a[1]), jarg_flag(a[2])), key))
			end++;
		struct jv *pair = jinja_alloc_n(&r->c, 2, sizeof *pair);
		pair[0] = shown;
		pair[1] = jv_list(&r->c, J_LIST, l.v + i, end - i);
		jlist_push(&r->c, &out, jv_list(&r->c, J_TUPLE, pair, 2));
		i = end;
	}
	return jlist_done(&r->c, &out);
}

/* ---- selection ---- */

static const struct jfn *need_test(struct jrender *r, struct jv name)
{
	const struct jstr *s = jv_need_str(&r->c, name, "the test's name");
	const struct jfn *fn = jinja_test(s->p, s->n);
	if (!fn)
		jinja_fail(&r->c, -EINVAL, "there is no test named '%.*s'", (int)(s->n < 60 ? s->n : 60),
			   s->p);
	return fn;
}

/* Return the elements of v; none if v is falsy, None included. */
static struct jlist falsy_or_elements(struct jrender *r, struct jv v)
{
	return jv_is_true(v) ? jv_elements(&r->c, v) : (struct jlist){0};
}

static struct jv choose(struct jrender *r, struct jv v, const struct jargs *args, bool attribute, bool keep)
{
	struct jlist l = falsy_or_elements(r, v), out = {0};
	uint32_t used = attribute;
	const struct jfn *test = NULL;
	if (attribute && !args->n_pos)
		jinja_fail(&r->c, -EINVAL, "Missing parameter for attribute name");
	if (args->n_pos > used)
		test = need_test(r, args->pos[used++]);
	struct jargs rest = *args;
	if (used) {
		rest.pos += used;
		rest.n_pos -= used;
	}
	for (size_t i = 0; i < l.n; i++) {
		struct jv x = attribute ? by_path(r, l.v[i], args->pos[0], jv_missing) : l.v[i];
		jinja_step(&r->c, 1);
		if (test)
			x = jinja_call_fn(r, test, x, &rest);
		if (jv_is_true(x) == keep)
			jlist_push(&r->c, &out, l.v[i]);
	}
	return jv_gen(&r->c, out);
}

JINJA_FN(do_select, v)
{
	return choose(r, v, args, false, true);
}

JINJA_FN(do_reject, v)
{
	return choose(r, v, args, false, false);
}

JINJA_FN(do_selectattr, v)
{
	return choose(r, v, args, true, true);
}

JINJA_FN(do_rejectattr, v)
{
	return choose(r, v, args, true, false);
}

static struct jv keyword(struct jrender *r, const struct jargs *args, const char *name)
{
	for (uint32_t i = 0; i < args->n_kw; i++)
		if (strcmp(r->t->names[args->kw[i]].text, name) == 0)
			return args->kw_value[i];
	return jv_missing;
}

JINJA_FN(do_map, v)
{
	struct jlist l = falsy_or_elements(r, v), out = {0};
	struct jv path = keyword(r, args, "attribute"), otherwise = keyword(r, args, "default");
	const struct jfn *filter = NULL;
	struct jargs rest = *args;
	if (args->n_pos) {
		const struct jstr *name = jv_need_str(&r->c, args->pos[0], "the filter's name");
		filter = jinja_filter(name->p, name->n);
		if (!filter)
			jinja_fail(&r->c, -EINVAL, "there is no filter named '%.*s'",
				   (int)(name->n < 60 ? name->n : 60), name->p);
		rest.pos++;
		rest.n_pos--;
	} else if (path.t == J_MISSING) {
		jinja_fail(&r->c, -EINVAL, "map requires a filter argument");
	}
	for (size_t i = 0; i < l.n; i++) {
		jinja_step(&r->c, 1);
		jinja_enter(&r->c);
		struct jv x = filter ? jinja_call_fn(r, filter, l.v[i], &rest)
				     : by_path(r, l.v[i], path, otherwise);
		jinja_leave(&r->c);
		jlist_push(&r->c, &out, x);
	}
	return jv_gen(&r->c, out);
}

JINJA_FN(do_unique, v)
{
	struct jlist l = jv_elements(&r->c, v), out = {0};
	struct jv seen = jv_dict(&r->c);
	for (size_t i = 0; i < l.n; i++) {
		struct jv key = folded(r, by_path(r, l.v[i], a[1], jv_missing), jarg_flag(a[0]));
		if (!jv_hashable(key))
			jinja_fail(&r->c, -EINVAL, "unhashable type: '%s'", jv_type_name(key));
		if (jdict_get(&r->c, seen.m, key).t != J_MISSING)
			continue;
		jdict_set(&r->c, seen.m, key, jv_true);
		jlist_push(&r->c, &out, l.v[i]);
	}
	return jv_gen(&r->c, out);
}

/* ---- first, last and other parts ---- */

JINJA_FN(do_first, v)
{
	if (v.t == J_STR && v.s->n)
		return jinja_item(r, v, jv_int(0));
	if (v.t == J_GEN && v.seq->at < v.seq->list.n)
		return v.seq->list.v[v.seq->at++];
	struct jlist l = jv_elements(&r->c, v);
	return l.n ? l.v[0] : jv_undef(&r->c, "No first item, sequence was empty.");
}

JINJA_FN(do_last, v)
{
	if (v.t == J_GEN)
		jinja_fail(&r->c, -EINVAL, "'generator' object is not reversible");
	if (v.t == J_STR && v.s->n)
		return jinja_item(r, v, jv_int(-1));
	struct jlist l = jv_elements(&r->c, v);
	return l.n ? l.v[l.n - 1] : jv_undef(&r->c, "No last item, sequence was empty.");
}

JINJA_FN(do_length, v)
{
	return jv_int((int64_t)jv_length(&r->c, v));
}

JINJA_FN(do_list, v)
{
	struct jlist l = jv_elements(&r->c, v);
	return jlist_done(&r->c, &l);
}

JINJA_FN(do_items, v)
{
	struct jlist l = {0};
	if (v.t != J_UNDEF)
		l = jdict_list(&r->c, need_dict(r, v, "Can only get item pairs from a mapping."), 'i');
	return jv_gen(&r->c, l);
}

JINJA_FN(do_reverse, v)
{
	struct jlist l = jv_elements(&r->c, v), out = {.n = l.n};
	struct jbuild b;
	out.v = jinja_alloc_n(&r->c, l.n, sizeof *out.v);
	for (size_t i = 0; i < l.n; i++)
		out.v[i] = l.v[l.n - 1 - i];
	if (v.t != J_STR)
		return jv_gen(&r->c, out);
	jb_init(&b, &r->c);
	for (size_t i = 0; i < out.n; i++)
		jb_str(&b, out.v[i].s);
	return jb_done(&b);
}

JINJA_FN(do_join, v)
{
	struct jlist l = jv_elements(&r->c, v);
	struct jv by = a[0].t == J_MISSING ? jv_text(&r->c, "") : jv_to_str(&r->c, a[0]);
	struct jbuild b;
	jb_init(&b, &r->c);
	for (size_t i = 0; i < l.n; i++) {
		if (i)
			jb_str(&b, by.s);
		jv_put(&b, by_path(r, l.v[i], a[1], jv_missing));
	}
	return jb_done(&b);
}

JINJA_FN(do_sum, v)
{
	struct jlist l = jv_elements(&r->c, v);
	struct jv sum = a[1].t == J_MISSING ? jv_int(0) : a[1];
	if (sum.t == J_STR)
		jinja_fail(&r->c, -EINVAL, "sum() can't sum strings [use ''.join(seq) instead]");
	for (size_t i = 0; i < l.n; i++)
		sum = jinja_binary(r, OP_ADD, sum, by_path(r, l.v[i], a[0], jv_missing));
	return sum;
}

JINJA_FN(do_batch, v)
{
	struct jlist l = jv_elements(&r->c, v), out = {0};
	int64_t size = jv_need_int(&r->c, a[0], "linecount");
	if (size < 1)
		jinja_fail(&r->c, -EINVAL, "batch(): linecount must be at least 1");
	for (size_t i = 0; i < l.n; i += (size_t)size) {
		struct jlist part = {0};
		for (size_t k = i; k < l.n && k - i < (size_t)size; k++)
			jlist_push(&r->c, &part, l.v[k]);
		while (jarg_given(a[1]) && part.n < (size_t)size)
			jlist_push(&r->c, &part, a[1]);
		jlist_push(&r->c, &out, jlist_done(&r->c, &part));
		if ((size_t)size >= l.n)
			break;
	}
	return jv_gen(&r->c, out);
}

JINJA_FN(do_slice, v)
{
	struct jlist l = jv_elements(&r->c, v), out = {0};
	int64_t n = jv_need_int(&r->c, a[0], "slices");
	if (n < 1)
		jinja_fail(&r->c, -EINVAL, "slice(): slices must be at least 1");
	size_t slices = (size_t)n, each = l.n / slices, more = l.n % slices, at = 0;
	for (size_t i = 0; i < slices; i++) {
		size_t size = each + (i < more);
		struct jlist part = {0};
		jinja_step(&r->c, 1);
		for (size_t k = 0; k < size; k++)
			jlist_push(&r->c, &part, l.v[at++]);
		if (jarg_given(a[1]) && i >= more)
			jlist_push(&r->c, &part, a[1]);
		jlist_push(&r->c, &out, jlist_done(&r->c, &part));
	}
	return jv_gen(&r->c, out);
}

static const struct jfn filters[] = {
	{"batch", "linecount,fill_with", do_batch},
	{"count", "", do_length},
	{"dictsort", "case_sensitive,by,reverse", do_dictsort},
	{"first", "", do_first},
	{"groupby", "attribute,default,case_sensitive", do_groupby},
	{"items", "", do_items},
	{"join", "d,attribute", do_join},
	{"last", "", do_last},
	{"length", "", do_length},
	{"list", "", do_list},
	{"map", NULL, do_map},
	{"max", "case_sensitive,attribute", do_max},
	{"min", "case_sensitive,attribute", do_min},
	{"reject", NULL, do_reject},
	{"rejectattr", NULL, do_rejectattr},
	{"reverse", "", do_reverse},
	{"select", NULL, do_select},
	{"selectattr", NULL, do_selectattr},
	{"slice", "slices,fill_with", do_slice},
	{"sort", "reverse,case_sensitive,attribute", do_sort},
	{"sum", "attribute,start", do_sum},
	{"unique", "case_sensitive,attribute", do_unique},
};

const struct jfn *jinja_filter_seq(const char *name, size_t n)
{
	return jfn_find(filters, sizeof filters / sizeof filters[0], name, n);
}
