/* value.h - the Python values of templates: construction, comparison, iteration (value.c), conversion to
 * text (value_repr.c) and to JSON (value_json.c).
 * An operation fails (jinja_fail) where Python raises an exception. Values are never freed one by one: they
 * are stored in the arena of the rendering. */
#ifndef QUERN_CONTROLLER_JINJA_VALUE_H
#define QUERN_CONTROLLER_JINJA_VALUE_H

#include "controller/jinja/arena.h"
#include "controller/jinja/jinja.h"

#include <stdbool.h>
#include <string.h>

struct jbuild;
struct jnode;
struct jrender;
struct jscope;

enum jtype {
	J_MISSING, /* no value: an argument not given, a variable not set */
	J_UNDEF,
	J_NONE,
	J_BOOL,
	J_INT,
	J_FLOAT,
	J_STR,
	J_LIST,
	J_TUPLE,
	J_DICT,
	J_VIEW, /* dict.items() and similar: a copy as a list, with its type's name */
	J_GEN,  /* a generator: can be iterated only once */
	J_RANGE,
	J_NS,
	J_MACRO,
	J_FN,     /* a built-in function: range, namespace, ... */
	J_METHOD, /* a bound method, such as "abc".upper before the call */
	J_LOOP,
};

struct jspan {
	uint32_t start, end; /* bytes of the string */
};

/* Spare room after a string or list, so that `s = s + x` in a loop does not copy s every time. The value
 * that ends at `used` may grow in place; older values keep their length:
 *
 *     [ a b c d e f . . . . ]     . is spare, used = 6, cap = 10
 *       ^---^                     an older value, n = 3: appending to it copies
 *       ^---------^               the newest value, n = 6: appending to it writes here */
struct jgrow {
	size_t used, cap;
	struct jspan *spans;
	size_t n_spans, cap_spans;
};

enum jmarks {
	JM_NONE,  /* no byte is input */
	JM_ALL,   /* every byte is input */
	JM_MIXED, /* the bytes in spans are input */
};

struct jstr {
	const char *p; /* UTF-8; not NUL-terminated */
	uint32_t n;
	uint32_t chars; /* UINT32_MAX: not counted */
	enum jmarks marks;
	bool safe; /* escaped HTML (jinja2's Markup): strings appended to it are escaped first */
	uint32_t n_spans;
	const struct jspan *spans; /* ascending, disjoint; the last may extend past n */
	struct jgrow *grow;        /* NULL: no spare room */
};

/* A number that the JSON reader keeps as written is stored as a mark of this many bytes and the number's
 * text (json_big() in base/json.h). */
enum { JSTR_NUMBER_MARK = 3 };
static inline bool jstr_is_number(const struct jstr *s)
{
	if (s->n <= JSTR_NUMBER_MARK || memcmp(s->p, "\xef\xb7\x90", JSTR_NUMBER_MARK) != 0)
		return false;
	for (uint32_t i = JSTR_NUMBER_MARK; i < s->n; i++)
		if (!s->p[i] || !strchr("+-.0123456789eE", s->p[i]))
			return false;
	return true;
}

struct jv {
	enum jtype t;
	union {
		bool b;
		int64_t i;
		double d;
		struct jstr *s;
		struct jlist *l; /* LIST, TUPLE */
		struct jdict *m;
		struct jseq *seq; /* VIEW, GEN */
		struct jrange *range;
		struct jns *ns;
		struct jmacro *macro;
		const struct jfn *fn;
		struct jbound *bound;
		struct jloop *loop;
		const struct jundef *undef;
	};
};

struct jlist {
	struct jv *v;
	size_t n;
	struct jgrow *grow;
};

struct jentry {
	struct jv key, value;
	uint64_t hash;
};

struct jdict {
	struct jentry *e; /* in the order of insertion */
	size_t n, cap;
	uint32_t *index; /* [n_index]: entry + 1, by hash; NULL for small dicts */
	size_t n_index;
};

struct jundef {
	const char *what; /* the error message when it is used */
};

struct jseq {
	const char *name; /* "dict_items", "generator" */
	struct jlist list;
	size_t at; /* GEN: number of elements consumed */
};

struct jrange {
	int64_t start, stop, step;
	size_t n;
};

struct jns {
	struct jdict vars;
};

struct jmacro {
	const struct jnode *def; /* MACRO, CALL_BLOCK */
	const char *name;        /* NULL: the body of a {% call %} */
	struct jscope *scope;    /* scope of the definition */
};

struct jloop {
	const struct jnode *def; /* FOR */
	struct jscope *scope;    /* the enclosing scope */
	struct jlist items;
	size_t at;
	int depth;
	bool has_changed;
	struct jv changed; /* the last arguments of loop.changed() */
};

/* The evaluated arguments of a call. */
struct jargs {
	struct jv *pos;
	uint32_t n_pos;
	uint32_t n_kw;
	uint32_t *kw; /* [n_kw]: indices into the template's names */
	struct jv *kw_value;
};

struct jfn {
	const char *name;
	const char *params; /* "a,b,c"; NULL: the function reads args itself */
	/* self: the value to which a filter, test or method is applied. a: one per parameter, MISSING if not
	 * given; NULL without params. */
	struct jv (*call)(struct jrender *r, struct jv self, const struct jv *a, const struct jargs *args);
};

struct jbound {
	struct jv self;
	const struct jfn *fn;
};

/* ---- construction ---- */

extern const struct jv jv_none, jv_true, jv_false, jv_missing;
static inline struct jv jv_bool(bool b)
{
	return b ? jv_true : jv_false;
}
struct jv jv_int(int64_t i);
struct jv jv_float(double d);
/* Return an undefined value that fails with this message when it is used. */
struct jv jv_undef(struct jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct jv jv_list(struct jctx *c, enum jtype t, struct jv *v, size_t n); /* v is borrowed */
struct jv jv_dict(struct jctx *c);
struct jv jv_gen(struct jctx *c, struct jlist list);
struct jv jv_view(struct jctx *c, const char *name, struct jlist list);
/* Convert j, a value inside var's value.  key: its key in its object, or NULL. */
struct jv jv_from_json(struct jctx *c, const struct jinja_var *var, const json_t *j, const char *key);

/* ---- properties ---- */

const char *jv_type_name(struct jv v); /* Python's name of the type */
bool jv_is_true(struct jv v);
bool jv_hashable(struct jv v);
bool jv_is_number(struct jv v); /* bool, int, float */
double jv_number(struct jv v);
bool jv_as_int(struct jv v, int64_t *out); /* int or bool */
/* Fail if v has another type.  what: the subject of the message. */
int64_t jv_need_int(struct jctx *c, struct jv v, const char *what);
struct jstr *jv_need_str(struct jctx *c, struct jv v, const char *what);

/* ---- comparison ---- */

bool jv_equal(struct jctx *c, struct jv a, struct jv b);
int jv_compare(struct jctx *c, struct jv a, struct jv b, const char *op); /* <0, 0, >0; op: for the message */

/* A value to sort by key.  The sort is stable. */
struct jkeyed {
	struct jv key, value;
	size_t at; /* position before sorting */
};
void jkeyed_sort(struct jctx *c, struct jkeyed *k, size_t n, bool reverse);

/* ---- containers ---- */

size_t jv_length(struct jctx *c, struct jv v);         /* len() */
struct jlist jv_elements(struct jctx *c, struct jv v); /* elements of an iterable; exhausts a generator */
bool jv_contains(struct jctx *c, struct jv container, struct jv x);

void jlist_push(struct jctx *c, struct jlist *l, struct jv v); /* appends to a list under construction */
static inline struct jv jlist_done(struct jctx *c, const struct jlist *l)
{
	return jv_list(c, J_LIST, l->v, l->n);
}
struct jv jlist_concat(struct jctx *c, enum jtype t, struct jlist *a, struct jlist *b);

void jdict_set(struct jctx *c, struct jdict *d, struct jv key, struct jv value);
struct jv jdict_get(struct jctx *c, const struct jdict *d, struct jv key); /* MISSING if absent */
/* Return the entries' keys (what 'k'), values ('v') or (key, value) tuples ('i'). */
struct jlist jdict_list(struct jctx *c, const struct jdict *d, char what);

/* ---- as text: value_repr.c ---- */

void jv_put(struct jbuild *b, struct jv v);  /* as str() */
void jv_repr(struct jbuild *b, struct jv v); /* as repr() */
struct jv jv_to_str(struct jctx *c, struct jv v);
const char *jv_name_of(struct jctx *c, struct jv v); /* repr() shortened, for messages */
void jfloat_repr(double d, char out[40]);            /* the shortest digits that parse to d */

/* ---- as JSON: value_json.c ---- */

/* Return json.dumps() with the options of transformers' tojson, each MISSING if not given. */
struct jv jv_to_json(struct jctx *c, struct jv v, struct jv ensure_ascii, struct jv indent,
		     struct jv separators, struct jv sort_keys);

#endif
