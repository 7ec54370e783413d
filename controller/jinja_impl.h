/* jinja_impl.h - what a template is made of and what it computes with: for jinja*.c alone.
 *
 * Everything of a template lies in one arena, everything of a rendering in another, freed whole.
 * A failure is a longjmp to jinja_parse() or jinja_render(), which is safe since nothing else is
 * held.  Every recursion goes through jinja_enter(), which bounds the C stack. */
#ifndef QUERN_CONTROLLER_JINJA_IMPL_H
#define QUERN_CONTROLLER_JINJA_IMPL_H

#include "controller/jinja.h"

#include <setjmp.h>
#include <string.h>

/* ---- memory and failure ---- */

struct jchunk;

struct jarena {
	struct jchunk *chunks; /* the newest first */
	char *at, *end;        /* what is free of it */
	size_t bytes, max;     /* of all chunks */
};

/* What may fail: a parse or a rendering. */
struct jctx {
	struct jarena arena;
	jmp_buf fail;
	int rc;
	char *why;
	size_t why_n;
	unsigned line; /* of the template, for why */
	unsigned depth, depth_max;
	uint64_t steps, steps_max;
};

void *jinja_alloc(struct jctx *c, size_t bytes); /* zeroed; aligned to 16 */
void *jinja_alloc_raw(struct jctx *c, size_t bytes); /* not zeroed */
void *jinja_alloc_n(struct jctx *c, size_t n, size_t bytes); /* n * bytes, checked, zeroed */
/* p[0..old) to a block of size bytes, in place where nothing was allocated since. */
void *jinja_realloc(struct jctx *c, void *p, size_t old, size_t size);
void jinja_arena_fini(struct jarena *a);
_Noreturn void jinja_fail(struct jctx *c, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void jinja_out_of_steps(struct jctx *c);
_Noreturn void jinja_too_deep(struct jctx *c);

static inline void jinja_step(struct jctx *c, uint64_t n)
{
	if ((c->steps += n) > c->steps_max)
		jinja_out_of_steps(c);
}
static inline void jinja_enter(struct jctx *c)
{
	if (++c->depth > c->depth_max)
		jinja_too_deep(c);
	jinja_step(c, 1);
}
static inline void jinja_leave(struct jctx *c)
{
	c->depth--;
}

/* ---- values ---- */

enum jtype {
	J_MISSING, /* no value at all: an argument not given, a variable not set */
	J_UNDEF,
	J_NONE,
	J_BOOL,
	J_INT,
	J_FLOAT,
	J_STR,
	J_LIST,
	J_TUPLE,
	J_DICT,
	J_VIEW, /* dict.items() and the like: a list that was made, with its name */
	J_GEN,  /* what can be gone through once */
	J_RANGE,
	J_NS,
	J_MACRO,
	J_FN,     /* a function of ours: range, namespace, ... */
	J_METHOD, /* "abc".upper without the call */
	J_LOOP,
};

struct jspan {
	uint32_t start, end; /* bytes of the string */
};

/* Room behind strings and lists, so that `s = s + x` in a loop does not copy s every time: whoever
 * ends where used ends may go on there.  Older values keep seeing their part. */
struct jgrow {
	size_t used, cap;
	struct jspan *spans;
	size_t n_spans, cap_spans;
};

enum jmarks {
	JM_NONE,  /* no byte is input */
	JM_ALL,   /* every byte */
	JM_MIXED, /* those in spans */
};

struct jstr {
	const char *p; /* UTF-8; not terminated */
	uint32_t n;
	uint32_t chars; /* UINT32_MAX: not counted yet */
	enum jmarks marks;
	bool safe; /* HTML that is escaped already (jinja2's Markup): what is added to it is escaped */
	uint32_t n_spans;
	const struct jspan *spans; /* ascending, apart; the last may reach behind n */
	struct jgrow *grow;        /* NULL: none */
};

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
	uint32_t *index; /* [n_index]: entry + 1, by hash; NULL while small */
	size_t n_index;
};

struct jundef {
	const char *what; /* the whole message */
};

struct jseq {
	const char *name; /* "dict_items", "generator" */
	struct jlist list;
	size_t at; /* GEN: what was taken already */
};

struct jrange {
	int64_t start, stop, step;
	size_t n;
};

struct jvar {
	uint32_t name;
	struct jv value;
};

struct jscope {
	struct jscope *up; /* NULL: below it the template's own variables */
	struct jvar *vars;
	uint32_t n, cap;
	bool captured; /* a macro was made in it */
};

struct jns {
	struct jdict vars;
};

struct jmacro {
	const struct jnode *def; /* MACRO, CALL_BLOCK */
	const char *name;        /* NULL: the body of a {% call %} */
	struct jscope *scope;    /* where it was defined */
};

struct jloop {
	const struct jnode *def; /* FOR */
	struct jscope *scope;    /* around it */
	struct jlist items;
	size_t at;
	int depth;
	bool has_changed;
	struct jv changed; /* the last arguments of loop.changed() */
};

struct jrender;
struct jargs {
	struct jv *pos;
	uint32_t n_pos;
	uint32_t n_kw;
	uint32_t *kw; /* names */
	struct jv *kw_value;
};

struct jfn {
	const char *name;
	const char *params; /* "a,b,c"; NULL: takes args as they are */
	/* self: what a filter, test or method is applied to.  a: [params], MISSING where not given. */
	struct jv (*call)(struct jrender *r, struct jv self, const struct jv *a, const struct jargs *args);
};

struct jbound {
	struct jv self;
	const struct jfn *fn;
};

/* ---- the syntax tree ---- */

enum jkind {
	N_CONST,
	N_NAME,
	N_LIST,
	N_TUPLE,
	N_DICT,
	N_ATTR,
	N_ITEM,
	N_SLICE,
	N_CALL,
	N_FILTER,
	N_TEST,
	N_NOT,
	N_NEG,
	N_POS,
	N_AND,
	N_OR,
	N_COND,
	N_BINARY,
	N_COMPARE,
	N_CONCAT,
	N_NSREF, /* an assignment's `ns.name` */
	/* statements */
	N_TEXT,
	N_PRINT,
	N_IF,
	N_FOR,
	N_SET,
	N_SET_BLOCK,
	N_MACRO,
	N_CALL_BLOCK,
	N_FILTER_BLOCK,
	N_WITH,
	N_SCOPE,
	N_BREAK,
	N_CONTINUE,
};

enum jop { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum jcmp { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct jnodes {
	struct jnode **v;
	uint32_t n;
};

/* The arguments of a call as written. */
struct jcall {
	struct jnodes pos;
	struct jnodes kw;   /* the values */
	uint32_t *kw_names; /* [kw.n] */
	struct jnode *star, *star_star; /* NULL */
};

/* What a macro takes. */
struct jparams {
	uint32_t *names;
	uint32_t n;
	struct jnodes defaults; /* of the last ones */
};

enum { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4 };

struct jnode {
	uint8_t kind;
	uint8_t variant; /* jop; macros: USES_*; TEST: negated; FOR: recursive */
	uint16_t height;
	uint32_t line;
	union {
		struct jv value; /* CONST, TEXT */
		uint32_t name;   /* NAME */
		struct jnodes list; /* LIST, TUPLE, CONCAT, DICT (key and value in turn), PRINT, SCOPE */
		struct {
			struct jnode *of;
			uint32_t name;
			struct jv key; /* the name as a string */
		} attr; /* ATTR, NSREF (of: NULL, name: the namespace) */
		struct {
			struct jnode *a, *b, *c; /* ITEM: of, index; COND: test, then, else */
		} op;
		struct {
			struct jnode *of; /* CALL: the callee; FILTER, TEST: the value, NULL in a block */
			struct jcall *args;
			const struct jfn *fn; /* FILTER, TEST */
		} call;
		struct {
			struct jnodes test; /* [n] conditions */
			struct jnodes *body; /* [n + 1]: the last one is else */
		} branch;
		struct {
			struct jnode *target, *over, *test; /* test: NULL */
			struct jnodes body, otherwise;
		} loop;
		struct {
			struct jnode *target, *value; /* SET; SET_BLOCK: value is a chain of filters or NULL */
			struct jnodes body;
		} set;
		struct {
			uint32_t name; /* MACRO */
			struct jnode *call; /* CALL_BLOCK */
			struct jparams *params;
			struct jnodes body;
		} macro;
		struct {
			struct jnode *filter;
			struct jnodes body;
		} filter;
		struct {
			struct jnodes targets, values, body;
		} with;
	};
};

struct jname {
	const char *p;
	uint32_t n;
	const char *text; /* terminated */
};

struct jinja {
	struct jarena arena;
	struct jnodes body;
	struct jname *names; /* [n_names] */
	uint32_t n_names;
};

/* ---- lexer ---- */

enum jtoken_type {
	T_EOF,
	T_DATA,
	T_VAR_BEGIN,
	T_VAR_END,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_OP, /* op: its characters, '*' * 256 + '*' for two */
};

struct jtoken {
	enum jtoken_type t;
	int op;
	uint32_t line;
	uint32_t n;
	const char *p; /* DATA, NAME, STRING: in the arena or the source */
	union {
		int64_t i;
		double d;
	};
};

#define JOP2(a, b) ((a) << 8 | (b))

/* All tokens of text, which must live as long as they do; the last is EOF.  Newlines become "\n". */
struct jtoken *jinja_lex(struct jctx *c, const char *text, size_t n, unsigned flags, size_t *n_tokens);

/* ---- a rendering ---- */

enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/* Text being made, with its marks. */
struct jbuild {
	struct jctx *c;
	char *p;
	size_t n, cap, max;
	struct jspan *spans;
	size_t n_spans, cap_spans;
};

struct jrender {
	struct jctx c; /* first: a jctx is cast to it */
	const struct jinja *t;
	struct jv *globals;   /* [t->n_names] */
	struct jv *top;       /* [t->n_names]: what the template sets outside all scopes */
	struct jscope *scope; /* NULL: top */
	struct jbuild *out;
	struct jv caller; /* of the {% call %} under way, until its macro is entered; MISSING */
	uint32_t loop_name, caller_name, kwargs_name, varargs_name; /* UINT32_MAX: never mentioned */
	int64_t now_us;
};

/* jinja_value.c */
extern const struct jv jv_none, jv_true, jv_false, jv_missing;
static inline struct jv jv_bool(bool b)
{
	return b ? jv_true : jv_false;
}
struct jv jv_int(int64_t i);
struct jv jv_float(double d);
struct jv jv_undef(struct jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct jv jv_str(struct jctx *c, const char *p, size_t n, enum jmarks marks); /* p is borrowed */
struct jv jv_text(struct jctx *c, const char *literal);                        /* borrowed, terminated */
struct jv jv_list(struct jctx *c, enum jtype t, struct jv *v, size_t n);      /* v is borrowed */
struct jv jv_dict(struct jctx *c);
struct jv jv_gen(struct jctx *c, struct jlist list);
struct jv jv_view(struct jctx *c, const char *name, struct jlist list);
struct jv jv_from_json(struct jctx *c, const struct jinja_var *var, const json_t *j, const char *key);

const char *jv_type_name(struct jv v); /* as Python calls it */
bool jv_is_true(struct jv v);
bool jv_equal(struct jctx *c, struct jv a, struct jv b);
int jv_compare(struct jctx *c, struct jv a, struct jv b, const char *op); /* <0, 0, >0; fails where Python does */
bool jv_hashable(struct jv v);
bool jv_is_number(struct jv v); /* bool, int, float */
double jv_number(struct jv v);
bool jv_as_int(struct jv v, int64_t *out); /* int or bool */
int64_t jv_need_int(struct jctx *c, struct jv v, const char *what);
struct jstr *jv_need_str(struct jctx *c, struct jv v, const char *what);
size_t jv_length(struct jctx *c, struct jv v); /* len(); fails where Python does */
/* The elements of what can be iterated; a generator is used up.  Fails where Python does. */
struct jlist jv_elements(struct jctx *c, struct jv v);
bool jv_contains(struct jctx *c, struct jv container, struct jv x);

void jlist_push(struct jctx *c, struct jlist *l, struct jv v); /* of a list being made */
struct jv jlist_concat(struct jctx *c, enum jtype t, struct jlist *a, struct jlist *b);

void jdict_set(struct jctx *c, struct jdict *d, struct jv key, struct jv value);
struct jv jdict_get(struct jctx *c, const struct jdict *d, struct jv key); /* MISSING */
struct jv jdict_get_text(struct jctx *c, const struct jdict *d, const char *key);
/* As it is while the template reads: the entries' keys, values or (key, value) tuples. */
struct jlist jdict_list(struct jctx *c, const struct jdict *d, char what); /* 'k', 'v', 'i' */

/* jinja_text.c: strings with marks */
void jb_init(struct jbuild *b, struct jctx *c);
void jb_put(struct jbuild *b, const char *p, size_t n, bool input);
void jb_puts(struct jbuild *b, const char *literal);
void jb_str(struct jbuild *b, const struct jstr *s);
void jb_sub(struct jbuild *b, const struct jstr *s, size_t from, size_t to); /* bytes */
void jb_char(struct jbuild *b, uint32_t cp, bool input);
struct jv jb_done(struct jbuild *b);
bool jstr_input_at(const struct jstr *s, size_t byte);
struct jv jstr_sub(struct jctx *c, const struct jstr *s, size_t from, size_t to); /* shares the bytes */
struct jv jstr_concat(struct jctx *c, struct jstr *a, struct jstr *b);
size_t jstr_chars(struct jstr *s);
size_t jstr_offset(struct jstr *s, size_t chars); /* the byte where this character begins */
bool jstr_is(const struct jstr *s, const char *literal);
void jv_put(struct jbuild *b, struct jv v);  /* as str() */
void jv_repr(struct jbuild *b, struct jv v); /* as repr() */
struct jv jv_to_str(struct jctx *c, struct jv v);
const char *jv_name_of(struct jctx *c, struct jv v); /* repr() cut short, for messages */
bool jchar_is_space(uint32_t cp); /* str.isspace() */
void jfloat_repr(double d, char out[40]);

/* jinja_case.c */
enum jcase { JCASE_LOWER, JCASE_UPPER, JCASE_TITLE };
enum jrecase { JRECASE_LOWER, JRECASE_UPPER, JRECASE_CAPITAL, JRECASE_TITLE, JRECASE_SWAP };
struct jv jstr_recase(struct jctx *c, const struct jstr *s, enum jrecase how);
struct jv jstr_casefold(struct jctx *c, const struct jstr *s);
bool jchar_is_lower(uint32_t cp);
bool jchar_is_upper(uint32_t cp);
bool jchar_is_cased(uint32_t cp); /* upper, lower or title case */

/* jinja_sequences.c: a stable sort by key; fails where Python's does. */
struct jkeyed {
	struct jv key, value;
	size_t at; /* where it was */
};
void jkeyed_sort(struct jctx *c, struct jkeyed *k, size_t n, bool reverse);

/* jinja_eval.c */
struct jv jinja_eval(struct jrender *r, const struct jnode *n);
/* caller: the body of a {% call %}, or MISSING. */
struct jv jinja_eval_call(struct jrender *r, const struct jnode *n, struct jv caller);
/* x.key as getattr() has it, as the template has it (then x[key]), and x[key].  Not there: undefined. */
struct jv jinja_getattr(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_attr(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_item(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_call(struct jrender *r, struct jv callee, const struct jargs *a);
struct jv jinja_call_fn(struct jrender *r, const struct jfn *fn, struct jv self, const struct jargs *a);
struct jv jinja_binary(struct jrender *r, enum jop op, struct jv a, struct jv b);
bool jinja_compare(struct jrender *r, enum jcmp op, struct jv a, struct jv b);
struct jv jinja_escape(struct jctx *c, struct jstr *s); /* as HTML, safe; jinja_filters.c */
struct jv jinja_apply_filters(struct jrender *r, const struct jnode *chain, struct jv v);

/* jinja_exec.c */
enum jflow jinja_exec(struct jrender *r, const struct jnodes *body);
struct jv jinja_call_macro(struct jrender *r, struct jmacro *m, const struct jargs *a);
struct jv jinja_call_loop(struct jrender *r, struct jloop *l, const struct jargs *a);
struct jv jinja_var_get(struct jrender *r, uint32_t name);

/* Tables; NULL: there is none of that name. */
const struct jfn *jinja_filter(const char *name, size_t n);                        /* jinja_filters.c */
const struct jfn *jinja_filter_seq(const char *name, size_t n);                    /* jinja_sequences.c */
const struct jfn *jinja_test(const char *name, size_t n);                          /* jinja_tests.c */
const struct jfn *jinja_str_method(const struct jstr *name);                       /* jinja_strings.c */
const struct jfn *jinja_method(struct jv self, const struct jstr *name, bool *unsafe); /* jinja_methods.c */
const struct jfn *jinja_function(const char *name, size_t n);                      /* jinja_methods.c */
const struct jfn *jfn_find(const struct jfn *table, size_t n_table, const char *name, size_t n);

/* jinja_format.c */
struct jv jinja_percent(struct jrender *r, struct jstr *format, struct jv args);
struct jv jinja_str_format(struct jrender *r, struct jstr *format, const struct jargs *a);
/* jinja_json.c: (value, a: ensure_ascii, indent, separators, sort_keys) */
struct jv jinja_tojson(struct jrender *r, struct jv self, const struct jv *a, const struct jargs *args);

#endif
