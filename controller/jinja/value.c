#include "controller/jinja/value.h"

#include "controller/jinja/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { SMALL = 8 }; /* a dict of at most SMALL entries has no index */

const struct jv jv_none = {.t = J_NONE}, jv_true = {.t = J_BOOL, .b = true},
		jv_false = {.t = J_BOOL, .b = false}, jv_missing = {.t = J_MISSING};

/* ---- construction ---- */

struct jv jv_int(int64_t i)
{
	return (struct jv){.t = J_INT, .i = i};
}

struct jv jv_float(double d)
{
	return (struct jv){.t = J_FLOAT, .d = d};
}

struct jv jv_undef(struct jctx *c, const char *fmt, ...)
{
	char text[300];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
	struct jundef *u = jinja_alloc_raw(c, sizeof *u + len + 1);
	memcpy(u + 1, text, len);
	((char *)(u + 1))[len] = 0;
	u->what = (const char *)(u + 1);
	return (struct jv){.t = J_UNDEF, .undef = u};
}

struct jv jv_list(struct jctx *c, enum jtype t, struct jv *v, size_t n)
{
	struct jlist *l = jinja_alloc_raw(c, sizeof *l);
	*l = (struct jlist){v, n, NULL};
	return (struct jv){.t = t, .l = l};
}

struct jv jv_dict(struct jctx *c)
{
	return (struct jv){.t = J_DICT, .m = jinja_alloc(c, sizeof(struct jdict))};
}

static struct jv sequence(struct jctx *c, enum jtype t, const char *name, struct jlist list)
{
	struct jseq *s = jinja_alloc(c, sizeof *s);
	s->name = name;
	s->list = list;
	return (struct jv){.t = t, .seq = s};
}

struct jv jv_gen(struct jctx *c, struct jlist list)
{
	return sequence(c, J_GEN, "generator", list);
}

struct jv jv_view(struct jctx *c, const char *name, struct jlist list)
{
	return sequence(c, J_VIEW, name, list);
}

static bool is_word(const struct jinja_var *var, const char *key, const char *text)
{
	if (!var->word_key || !key || strcmp(key, var->word_key) != 0)
		return false;
	for (const char *const *w = var->words; *w; w++)
		if (strcmp(*w, text) == 0)
			return true;
	return false;
}

static struct jv array_from_json(struct jctx *c, const struct jinja_var *var, const json_t *j)
{
	size_t n = json_array_size(j);
	struct jv *v = jinja_alloc_n(c, n, sizeof *v);
	for (size_t i = 0; i < n; i++)
		v[i] = jv_from_json(c, var, json_array_get(j, i), NULL);
	return jv_list(c, J_LIST, v, n);
}

static struct jv object_from_json(struct jctx *c, const struct jinja_var *var, const json_t *j)
{
	struct jv d = jv_dict(c);
	const char *key;
	json_t *value;
	d.m->cap = json_object_size(j);
	d.m->e = jinja_alloc_n(c, d.m->cap, sizeof *d.m->e);
	json_object_foreach((json_t *)j, key, value)
	{
		struct jv k = jv_str(c, key, strlen(key), var->input ? JM_ALL : JM_NONE);
		jdict_set(c, d.m, k, jv_from_json(c, var, value, key));
	}
	return d;
}

struct jv jv_from_json(struct jctx *c, const struct jinja_var *var, const json_t *j, const char *key)
{
	struct jv v = jv_none;
	jinja_enter(c);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		v = object_from_json(c, var, j);
		break;
	case JSON_ARRAY:
		v = array_from_json(c, var, j);
		break;
	case JSON_STRING:
		v = jv_str(c, json_string_value(j), json_string_length(j),
			   var->input && !is_word(var, key, json_string_value(j)) ? JM_ALL : JM_NONE);
		break;
	case JSON_INTEGER:
		v = jv_int(json_integer_value(j));
		break;
	case JSON_REAL:
		v = jv_float(json_real_value(j));
		break;
	case JSON_TRUE:
		v = jv_true;
		break;
	case JSON_FALSE:
		v = jv_false;
		break;
	case JSON_NULL:
		break;
	}
	jinja_leave(c);
	return v;
}

/* ---- properties ---- */

const char *jv_type_name(struct jv v)
{
	switch (v.t) {
	case J_MISSING:
	case J_UNDEF:
		return "Undefined";
	case J_NONE:
		return "NoneType";
	case J_BOOL:
		return "bool";
	case J_INT:
		return "int";
	case J_FLOAT:
		return "float";
	case J_STR:
		return "str";
	case J_LIST:
		return "list";
	case J_TUPLE:
		return "tuple";
	case J_DICT:
		return "dict";
	case J_VIEW:
	case J_GEN:
		return v.seq->name;
	case J_RANGE:
		return "range";
	case J_NS:
		return "Namespace";
	case J_MACRO:
		return "Macro";
	case J_LOOP:
		return "LoopContext";
	case J_FN:
	case J_METHOD:
		break;
	}
	return "function";
}

bool jv_is_true(struct jv v)
{
	switch (v.t) {
	case J_MISSING:
	case J_UNDEF:
	case J_NONE:
		return false;
	case J_BOOL:
		return v.b;
	case J_INT:
		return v.i != 0;
	case J_FLOAT:
		return v.d != 0;
	case J_STR:
		return v.s->n > 0;
	case J_LIST:
	case J_TUPLE:
		return v.l->n > 0;
	case J_DICT:
		return v.m->n > 0;
	case J_VIEW:
		return v.seq->list.n > 0;
	case J_RANGE:
		return v.range->n > 0;
	default:
		return true;
	}
}

bool jv_is_number(struct jv v)
{
	return v.t == J_BOOL || v.t == J_INT || v.t == J_FLOAT;
}

double jv_number(struct jv v)
{
	return v.t == J_BOOL ? v.b : v.t == J_INT ? (double)v.i : v.d;
}

bool jv_as_int(struct jv v, int64_t *out)
{
	*out = v.t == J_BOOL ? v.b : v.i;
	return v.t == J_BOOL || v.t == J_INT;
}

int64_t jv_need_int(struct jctx *c, struct jv v, const char *what)
{
	int64_t i;
	if (!jv_as_int(v, &i))
		jinja_fail(c, -EINVAL, "%s must be an integer, not %s", what, jv_type_name(v));
	return i;
}

struct jstr *jv_need_str(struct jctx *c, struct jv v, const char *what)
{
	if (v.t == J_UNDEF)
		jinja_fail(c, -EINVAL, "%s", v.undef->what);
	if (v.t != J_STR)
		jinja_fail(c, -EINVAL, "%s must be a string, not %s", what, jv_type_name(v));
	return v.s;
}

bool jv_hashable(struct jv v)
{
	if (v.t == J_TUPLE) {
		for (size_t i = 0; i < v.l->n; i++)
			if (v.l->v[i].t == J_TUPLE || !jv_hashable(v.l->v[i]))
				return false; /* tuples in tuples are not supported as keys */
		return true;
	}
	return v.t != J_LIST && v.t != J_DICT && v.t != J_VIEW;
}

/* ---- comparison ---- */

static bool same_elements(struct jctx *c, const struct jlist *a, const struct jlist *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!jv_equal(c, a->v[i], b->v[i]))
			return false;
	return true;
}

static bool same_entries(struct jctx *c, const struct jdict *a, const struct jdict *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		struct jv other = jdict_get(c, b, a->e[i].key);
		if (other.t == J_MISSING || !jv_equal(c, a->e[i].value, other))
			return false;
	}
	return true;
}

static bool same(struct jctx *c, struct jv a, struct jv b)
{
	if (jv_is_number(a) && jv_is_number(b)) {
		if (a.t == J_FLOAT || b.t == J_FLOAT)
			return jv_number(a) == jv_number(b);
		return (a.t == J_BOOL ? a.b : a.i) == (b.t == J_BOOL ? b.b : b.i);
	}
	if (a.t != b.t)
		return false;
	switch (a.t) {
	case J_STR:
		jinja_step(c, a.s->n >> 6);
		return a.s->n == b.s->n && (a.s->p == b.s->p || memcmp(a.s->p, b.s->p, a.s->n) == 0);
	case J_LIST:
	case J_TUPLE:
		return same_elements(c, a.l, b.l);
	case J_DICT:
		return same_entries(c, a.m, b.m);
	case J_UNDEF:
	case J_NONE:
		return true;
	case J_RANGE:
		return a.range->n == b.range->n &&
		       (a.range->n == 0 || (a.range->start == b.range->start &&
					    (a.range->n == 1 || a.range->step == b.range->step)));
	case J_FN:
		return a.fn == b.fn;
	case J_METHOD:
		return a.bound->fn == b.bound->fn && jv_equal(c, a.bound->self, b.bound->self);
	default:
		return a.l == b.l; /* the same object */
	}
}

bool jv_equal(struct jctx *c, struct jv a, struct jv b)
{
	jinja_enter(c);
	bool is = same(c, a, b);
	jinja_leave(c);
	return is;
}

static int compare_str(const struct jstr *a, const struct jstr *b)
{
	int d = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n); /* UTF-8 has the order of code points */
	return d ? d : (a->n > b->n) - (a->n < b->n);
}

int jv_compare(struct jctx *c, struct jv a, struct jv b, const char *op)
{
	int d = 0;
	jinja_enter(c);
	if (a.t == J_UNDEF || b.t == J_UNDEF)
		jinja_fail(c, -EINVAL, "%s", (a.t == J_UNDEF ? a : b).undef->what);
	if (jv_is_number(a) && jv_is_number(b)) {
		int64_t x, y;
		if (jv_as_int(a, &x) && jv_as_int(b, &y))
			d = (x > y) - (x < y);
		else
			d = (jv_number(a) > jv_number(b)) - (jv_number(a) < jv_number(b));
		if (isnan(jv_number(a)) || isnan(jv_number(b)))
			d = op[0] == '<' ? 1 : -1;
	} else if (a.t == J_STR && b.t == J_STR) {
		jinja_step(c, (a.s->n < b.s->n ? a.s->n : b.s->n) >> 6);
		d = compare_str(a.s, b.s);
	} else if (a.t == b.t && (a.t == J_LIST || a.t == J_TUPLE)) {
		size_t i = 0, n = a.l->n < b.l->n ? a.l->n : b.l->n;
		while (i < n && jv_equal(c, a.l->v[i], b.l->v[i]))
			i++;
		d = i < n ? jv_compare(c, a.l->v[i], b.l->v[i], op) : (a.l->n > b.l->n) - (a.l->n < b.l->n);
	} else {
		jinja_fail(c, -EINVAL, "'%s' not supported between instances of '%s' and '%s'", op,
			   jv_type_name(a), jv_type_name(b));
	}
	jinja_leave(c);
	return d;
}

static int by_keys(struct jctx *c, const struct jkeyed *a, const struct jkeyed *b, bool reverse)
{
	/* Equal keys need no order, as in Python, where lists of keys are compared. */
	int d = jv_equal(c, a->key, b->key) ? 0 : jv_compare(c, a->key, b->key, "<");
	if (d)
		return reverse ? -d : d;
	return (a->at > b->at) - (a->at < b->at);
}

/* A heap sort: qsort_r() may allocate memory, which the longjmp of a failed comparison would leak. */
void jkeyed_sort(struct jctx *c, struct jkeyed *k, size_t n, bool reverse)
{
	for (size_t end = n, root = n / 2; end > 1;) {
		if (root > 0) {
			root--;
		} else {
			struct jkeyed t = k[0];
			k[0] = k[--end];
			k[end] = t;
		}
		for (size_t i = root, child; (child = 2 * i + 1) < end; i = child) {
			child += child + 1 < end && by_keys(c, &k[child], &k[child + 1], reverse) < 0;
			if (by_keys(c, &k[i], &k[child], reverse) >= 0)
				break;
			struct jkeyed t = k[i];
			k[i] = k[child];
			k[child] = t;
		}
	}
}

/* ---- containers ---- */

size_t jv_length(struct jctx *c, struct jv v)
{
	switch (v.t) {
	case J_UNDEF:
		return 0;
	case J_STR:
		return jstr_chars(v.s);
	case J_LIST:
	case J_TUPLE:
		return v.l->n;
	case J_DICT:
		return v.m->n;
	case J_VIEW:
		return v.seq->list.n;
	case J_RANGE:
		return v.range->n;
	case J_LOOP:
		return v.loop->items.n;
	default:
		jinja_fail(c, -EINVAL, "object of type '%s' has no len()", jv_type_name(v));
	}
}

static struct jlist characters(struct jctx *c, struct jstr *s)
{
	struct jlist l = {.n = jstr_chars(s)};
	l.v = jinja_alloc_n(c, l.n, sizeof *l.v);
	for (size_t i = 0, at = 0; i < l.n; i++) {
		size_t end = at + 1;
		while (end < s->n && ((unsigned char)s->p[end] & 0xc0) == 0x80)
			end++;
		l.v[i] = jstr_sub(c, s, at, end);
		at = end;
	}
	return l;
}

struct jlist jv_elements(struct jctx *c, struct jv v)
{
	struct jlist l = {0};
	switch (v.t) {
	case J_UNDEF:
		break;
	case J_STR:
		return characters(c, v.s);
	case J_LIST:
	case J_TUPLE:
		l = (struct jlist){v.l->v, v.l->n, NULL};
		break;
	case J_DICT:
		return jdict_list(c, v.m, 'k');
	case J_VIEW:
		l = v.seq->list;
		break;
	case J_GEN:
		if (v.seq->at < v.seq->list.n)
			l = (struct jlist){v.seq->list.v + v.seq->at, v.seq->list.n - v.seq->at, NULL};
		v.seq->at = v.seq->list.n;
		break;
	case J_RANGE:
		l.n = v.range->n;
		l.v = jinja_alloc_n(c, l.n, sizeof *l.v);
		for (size_t i = 0; i < l.n; i++)
			l.v[i] = jv_int(v.range->start + (int64_t)i * v.range->step);
		break;
	default:
		jinja_fail(c, -EINVAL, "'%s' object is not iterable", jv_type_name(v));
	}
	l.grow = NULL;
	return l;
}

static bool str_contains(struct jctx *c, const struct jstr *s, struct jv x)
{
	if (x.t == J_UNDEF)
		jinja_fail(c, -EINVAL, "'in <string>' requires string as left operand, not Undefined");
	if (x.t != J_STR)
		jinja_fail(c, -EINVAL, "'in <string>' requires string as left operand, not %s",
			   jv_type_name(x));
	jinja_step(c, s->n >> 6);
	return memmem(s->p, s->n, x.s->p, x.s->n) != NULL || x.s->n == 0;
}

bool jv_contains(struct jctx *c, struct jv in, struct jv x)
{
	if (in.t == J_STR)
		return str_contains(c, in.s, x);
	if (in.t == J_DICT) {
		if (!jv_hashable(x))
			jinja_fail(c, -EINVAL, "unhashable type: '%s'", jv_type_name(x));
		return jdict_get(c, in.m, x).t != J_MISSING;
	}
	if (in.t == J_NONE || jv_is_number(in) || in.t == J_NS || in.t == J_MACRO || in.t == J_FN ||
	    in.t == J_METHOD)
		jinja_fail(c, -EINVAL, "argument of type '%s' is not iterable", jv_type_name(in));
	struct jlist l = jv_elements(c, in);
	for (size_t i = 0; i < l.n; i++) {
		jinja_step(c, 1);
		if (jv_equal(c, l.v[i], x))
			return true;
	}
	return false;
}

/* ---- lists ---- */

void jlist_push(struct jctx *c, struct jlist *l, struct jv v)
{
	if ((l->n & (l->n - 1)) == 0) {
		size_t cap = l->n ? l->n * 2 : 1;
		l->v = jinja_realloc(c, l->v, l->n * sizeof *l->v, cap * sizeof *l->v);
	}
	l->v[l->n++] = v;
}

struct jv jlist_concat(struct jctx *c, enum jtype t, struct jlist *a, struct jlist *b)
{
	size_t n = a->n + b->n;
	struct jgrow *g = a->grow;
	struct jv *v = a->v;
	if (!g || g->used != a->n || b->n > g->cap - g->used) {
		g = jinja_alloc(c, sizeof *g);
		g->cap = n + n / 2 + 4;
		v = jinja_alloc_raw(c, g->cap * sizeof *v);
		if (a->n)
			memcpy(v, a->v, a->n * sizeof *v);
	}
	if (b->n)
		memcpy(v + a->n, b->v, b->n * sizeof *v);
	g->used = n;
	jinja_step(c, b->n);
	struct jv out = jv_list(c, t, v, n);
	out.l->grow = g;
	return out;
}

/* ---- dicts ---- */

/* Equal numbers of different types have the same hash; a tuple is hashed by its length alone. */
static uint64_t hash_of(struct jv v)
{
	double d;
	switch (v.t) {
	case J_STR:
		return XXH3_64bits(v.s->p, v.s->n);
	case J_BOOL:
	case J_INT:
	case J_FLOAT:
		d = jv_number(v) + 0.0;
		return XXH3_64bits(&d, sizeof d);
	case J_TUPLE:
		return v.l->n;
	default:
		return (uint64_t)v.t;
	}
}

static void index_put(struct jdict *d, uint32_t at)
{
	size_t k = d->e[at].hash & (d->n_index - 1);
	while (d->index[k])
		k = (k + 1) & (d->n_index - 1);
	d->index[k] = at + 1;
}

static struct jentry *find(struct jctx *c, const struct jdict *d, struct jv key, uint64_t hash)
{
	if (!d->index) {
		for (size_t i = 0; i < d->n; i++)
			if (d->e[i].hash == hash && jv_equal(c, d->e[i].key, key))
				return &d->e[i];
		return NULL;
	}
	for (size_t k = hash & (d->n_index - 1); d->index[k]; k = (k + 1) & (d->n_index - 1)) {
		struct jentry *e = &d->e[d->index[k] - 1];
		jinja_step(c, 1); /* an input may consist of colliding hashes */
		if (e->hash == hash && jv_equal(c, e->key, key))
			return e;
	}
	return NULL;
}

void jdict_set(struct jctx *c, struct jdict *d, struct jv key, struct jv value)
{
	uint64_t hash = hash_of(key);
	struct jentry *e = find(c, d, key, hash);
	if (e) {
		e->value = value;
		return;
	}
	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 4;
		d->e = jinja_realloc(c, d->e, d->cap * sizeof *d->e, cap * sizeof *d->e);
		d->cap = cap;
	}
	d->e[d->n++] = (struct jentry){key, value, hash};
	if (d->n <= SMALL)
		return;
	if (d->n * 2 > d->n_index) {
		d->n_index = d->n_index ? d->n_index * 2 : SMALL * 4;
		d->index = jinja_alloc_n(c, d->n_index, sizeof *d->index);
		for (size_t i = 0; i + 1 < d->n; i++)
			index_put(d, (uint32_t)i);
	}
	index_put(d, (uint32_t)d->n - 1);
}

struct jv jdict_get(struct jctx *c, const struct jdict *d, struct jv key)
{
	struct jentry *e = d->n ? find(c, d, key, hash_of(key)) : NULL;
	return e ? e->value : jv_missing;
}

struct jlist jdict_list(struct jctx *c, const struct jdict *d, char what)
{
	struct jlist l = {.n = d->n};
	l.v = jinja_alloc_n(c, l.n, sizeof *l.v);
	for (size_t i = 0; i < d->n; i++) {
		if (what == 'i') {
			struct jv *pair = jinja_alloc_raw(c, 2 * sizeof *pair);
			pair[0] = d->e[i].key;
			pair[1] = d->e[i].value;
			l.v[i] = jv_list(c, J_TUPLE, pair, 2);
		} else {
			l.v[i] = what == 'k' ? d->e[i].key : d->e[i].value;
		}
	}
	return l;
}
