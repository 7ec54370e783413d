/* parse_impl.h - shared by the parser's two files: statements in parse.c, expressions in parse_expr.c. */
#ifndef QUERN_CONTROLLER_JINJA_PARSE_IMPL_H
#define QUERN_CONTROLLER_JINJA_PARSE_IMPL_H

#include "controller/jinja/ast.h"
#include "controller/jinja/lex.h"
#include "controller/jinja/text.h"

#include <errno.h>
#include <string.h>

struct jparser {
	struct jctx c; /* depth: nesting of blocks and brackets */
	const struct jtoken *at;
	unsigned uses;       /* USES_* of the macro being parsed */
	unsigned n_loops;    /* loops around this place, within the macro */
	struct jname *names; /* [n_names] */
	uint32_t *hashes;    /* [n_names] */
	uint32_t n_names;
	uint32_t *slots; /* [n_slots]: name + 1 */
	uint32_t n_slots;
};

_Noreturn void jparse_fail(struct jparser *p, const char *what); /* "<what>, not <the current token>" */
struct jv jparse_str(struct jparser *p, const struct jtoken *t);
struct jnode *jparse_node(struct jparser *p, enum jkind kind, uint32_t line);
/* Note that child, which may be NULL, became a child of n: bounds the height of the tree. */
void jparse_over(struct jparser *p, struct jnode *n, const struct jnode *child);
void jnodes_push(struct jparser *p, struct jnodes *l, struct jnode *n);
bool jparse_at_op(const struct jparser *p, int op);
bool jparse_at_word(const struct jparser *p, const char *word);
bool jparse_skip_op(struct jparser *p, int op);
bool jparse_skip_word(struct jparser *p, const char *word);
void jparse_need_op(struct jparser *p, int op, const char *what);
/* enter one nesting; jinja_leave() ends it */
void jparse_deeper(struct jparser *p);
uint32_t jparse_name(struct jparser *p, const char *s, uint32_t n); /* interned */
uint32_t jparse_need_name(struct jparser *p, const char *what);

/* ---- parse_expr.c ---- */

struct jnode *jparse_expr(struct jparser *p);
/* Parse an expression, or a tuple of expressions separated by commas. conditional: `a if b` is allowed as an
 * element; end: a word that ends the tuple, or NULL. */
struct jnode *jparse_tuple(struct jparser *p, bool conditional, const char *end);
/* target of an assignment */
struct jnode *jparse_target(struct jparser *p, bool namespaces, const char *end);
/* `| a | b` applied to of; returns of if there is no filter */
struct jnode *jparse_filters(struct jparser *p, struct jnode *of);
struct jnode *jparse_filter_chain(struct jparser *p); /* `a | b` */

#endif
