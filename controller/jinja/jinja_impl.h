/* jinja_impl.h - shared by the evaluator's files: a rendering, expressions (eval.c), statements (exec.c),
 * and the tables of filters, tests, methods and functions. These files call each other recursively. They
 * build on values (value.h), strings (text.h) and the syntax tree (ast.h). */
#ifndef QUERN_CONTROLLER_JINJA_JINJA_IMPL_H
#define QUERN_CONTROLLER_JINJA_JINJA_IMPL_H

#include "controller/jinja/ast.h"
#include "controller/jinja/text.h"
#include "controller/jinja/value.h"

#include <errno.h>
#include <string.h>

struct jvar {
	uint32_t name;
	struct jv value;
};

struct jscope {
	struct jscope *up; /* enclosing scope; NULL: the template's top level */
	struct jvar *vars;
	uint32_t n, cap;
	bool captured; /* by a macro defined in the scope */
};

struct jrender {
	struct jctx c;
	const struct jinja *t;
	struct jv *globals;   /* [t->n_names]: variables of the rendering, and functions */
	struct jv *top;       /* [t->n_names]: variables set at top level */
	struct jscope *scope; /* NULL: top level */
	struct jbuild *out;
	struct jv caller; /* body of the current {% call %} until its macro is entered; else MISSING */
	uint32_t loop_name, caller_name, kwargs_name, varargs_name; /* UINT32_MAX: not used in the template */
	int64_t now_us;
};

/* ---- eval.c: expressions ---- */

struct jv jinja_eval(struct jrender *r, const struct jnode *n);
/* caller: the body of a {% call %}, or MISSING. */
struct jv jinja_eval_call(struct jrender *r, const struct jnode *n, struct jv caller);
/* jinja_getattr: getattr(of, key). jinja_attr: of.key in a template (an attribute, else an item).
 * jinja_item: of[key] (an item, else an attribute). Undefined if there is none. */
struct jv jinja_getattr(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_attr(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_item(struct jrender *r, struct jv of, struct jv key);
struct jv jinja_call_fn(struct jrender *r, const struct jfn *fn, struct jv self, const struct jargs *a);
struct jv jinja_binary(struct jrender *r, enum jop op, struct jv a, struct jv b);
bool jinja_compare(struct jrender *r, enum jcmp op, struct jv a, struct jv b);
struct jv jinja_apply_filters(struct jrender *r, const struct jnode *chain, struct jv v);

/* ---- exec.c: variables, macros, loops ---- */

struct jv jinja_call_macro(struct jrender *r, struct jmacro *m, const struct jargs *a);
struct jv jinja_call_loop(struct jrender *r, struct jloop *l, const struct jargs *a);
struct jv jinja_var_get(struct jrender *r, uint32_t name);

/* ---- tables of functions; lookups return NULL for an unknown name ---- */

/* Define a function of a table; self_ is the value to which it is applied. */
#define JINJA_FN(name_, self_)                                                                               \
	static struct jv name_(struct jrender *r __attribute__((unused)),                                    \
			       struct jv self_ __attribute__((unused)),                                      \
			       const struct jv *a __attribute__((unused)),                                   \
			       const struct jargs *args __attribute__((unused)))

/* jarg_given: an optional argument is present and not None.  jarg_flag: an optional flag is true. */
static inline bool jarg_given(struct jv v)
{
	return v.t != J_MISSING && v.t != J_NONE;
}
static inline bool jarg_flag(struct jv v)
{
	return v.t != J_MISSING && jv_is_true(v);
}

const struct jfn *jfn_find(const struct jfn *table, size_t n_table, const char *name,
			   size_t n);                                                  /* methods.c */
const struct jfn *jinja_filter(const char *name, size_t n);                            /* filters.c */
const struct jfn *jinja_filter_seq(const char *name, size_t n);                        /* sequences.c */
const struct jfn *jinja_test(const char *name, size_t n);                              /* tests.c */
const struct jfn *jinja_function(const char *name, size_t n);                          /* methods.c */
const struct jfn *jinja_method(struct jv self, const struct jstr *name, bool *unsafe); /* methods.c */
const struct jfn *jinja_str_method(const struct jstr *name);                           /* str_methods.c */
/* Return str(self).name(a[0], ..., a[n - 1]); str_methods.c */
struct jv jinja_call_str_method(struct jrender *r, struct jv self, const char *name, const struct jv *a,
				uint32_t n);

/* Return s escaped as HTML and marked safe; filters.c. */
struct jv jinja_escape(struct jctx *c, struct jstr *s);
/* Return format % args, and format.format(...); format.c. */
struct jv jinja_percent(struct jrender *r, struct jstr *format, struct jv args);
struct jv jinja_str_format(struct jrender *r, struct jstr *format, const struct jargs *a);

#endif
