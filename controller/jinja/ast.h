/* ast.h - a parsed template: its syntax tree and its names. */
#ifndef QUERN_CONTROLLER_JINJA_AST_H
#define QUERN_CONTROLLER_JINJA_AST_H

#include "controller/jinja/value.h"

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
	N_NSREF, /* `ns.name` as the target of an assignment */
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

/* The arguments of a call as written in the template. */
struct jcall {
	struct jnodes pos;
	struct jnodes kw;               /* values of the keyword arguments */
	uint32_t *kw_names;             /* [kw.n] */
	struct jnode *star, *star_star; /* NULL if absent */
};

/* The parameters of a macro. */
struct jparams {
	uint32_t *names;
	uint32_t n;
	struct jnodes defaults; /* for the last parameters */
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
		/* LIST, TUPLE, CONCAT, DICT (alternating keys and values), PRINT, SCOPE */
		struct jnodes list;
		struct {
			struct jnode *of;
			uint32_t name;
			struct jv key; /* the name as a string */
		} attr;                /* ATTR; NSREF (of: NULL, name: the namespace) */
		struct {
			struct jnode *a, *b, *c; /* ITEM: a object, b index; COND: a test, b then, c else */
		} op;
		struct {
			struct jnode *of; /* CALL: the callee; FILTER, TEST: the operand, NULL in a block */
			struct jcall *args;
			const struct jfn *fn; /* FILTER, TEST */
		} call;
		struct {
			struct jnodes test;  /* [n] conditions */
			struct jnodes *body; /* [n + 1]: the last is the else branch */
		} branch;
		struct {
			struct jnode *target, *over, *test; /* test: may be NULL */
			struct jnodes body, otherwise;
		} loop;
		struct {
			struct jnode *target,
				*value; /* SET; SET_BLOCK: value is a chain of filters or NULL */
			struct jnodes body;
		} set;
		struct {
			uint32_t name;      /* MACRO */
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
	const char *text; /* NUL-terminated */
};

struct jinja {
	struct jarena arena;
	struct jnodes body;
	struct jname *names; /* [n_names] */
	uint32_t n_names;
};

#endif
