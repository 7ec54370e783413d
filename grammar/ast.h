/* ast.h - a grammar as a tree: what the front ends (JSON schema, regex, GBNF, Lark, choice) build, and the
 * automaton (machine.h) is compiled from.
 * Owns: nodes, the bytes of literals, sets of bytes, rules.  Nodes are integers, in the order in which they
 * were made; a node may be used in several places.  Everything is over bytes; characters are their UTF-8
 * encoding.
 *
 *     struct ast *a = ast_new(NULL);
 *     int list = ast_rule(a, "list");                      list ::= "[" (list ("," list)*)? "]"
 *     int more = ast_repeat(a, ast_seq2(a, ast_text(a, ","), ast_ref(a, list)), 0, -1);
 *     int some = ast_repeat(a, ast_seq2(a, ast_ref(a, list), more), 0, 1);
 *     ast_rule_set(a, list, ast_seq3(a, ast_text(a, "["), some, ast_text(a, "]")));
 *     ast_start(a, ast_ref(a, list));
 *     if (ast_check(a, why, sizeof why)) ...
 *
 * Errors are sticky: the first one (a bound, a child that failed) makes this and all later nodes AST_FAILED,
 * which every function takes; ast_check() names it.  So a front end checks once, at its end.
 *
 * Cost: a repeat costs one node whatever its bounds ({0, 100000} is a counter in the automaton), an
 * alternative of many literals one node and their bytes.  A reference to a rule that is not recursive costs
 * nothing at run time. Intersection and complement are for regular nodes (no recursive rule below): each
 * becomes a product automaton, built lazily.  Two ways to say the same are the same automaton where their
 * nodes are equal: share nodes. */
#ifndef QUERN_GRAMMAR_AST_H
#define QUERN_GRAMMAR_AST_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AST_FAILED = -1 };

enum ast_kind {
	AST_NEVER,     /* matches no text */
	AST_EMPTY,     /* matches the empty text */
	AST_LITERAL,   /* bytes */
	AST_SET,       /* one byte of a set */
	AST_CHARS,     /* one character of a set of ranges */
	AST_SEQ,       /* children in order */
	AST_ALT,       /* one of the children */
	AST_REPEAT,    /* the child, min to max times */
	AST_REF,       /* a rule */
	AST_AND,       /* both children match the same text */
	AST_NOT,       /* any bytes that the child does not match: of use within AST_AND */
	AST_UNORDERED, /* a separator, others, members in any order */
};

/* Bounds on what a client may ask for; 0: the default. */
struct ast_limits {
	size_t nodes; /* 1 << 20 */
	size_t bytes; /* of literals, sets, ranges, children and names: 64 MiB */
	size_t rules; /* 200,000 */
	int depth;    /* of nested nodes, references not followed: 1,000 */
};

struct char_range {
	uint32_t first, last; /* code points, both included; surrogates are left out */
};

struct ast;

struct ast *ast_new(const struct ast_limits *limits); /* NULL: the defaults */
void ast_free(struct ast *a);                         /* NULL is fine */

int ast_never(struct ast *a);
int ast_empty(struct ast *a);
int ast_literal(struct ast *a, const void *p, size_t n); /* n = 0: empty */
int ast_text(struct ast *a, const char *s);
int ast_set(struct ast *a, const uint8_t set[32]); /* bit b of set[b / 8] for byte b */
/* One character of n ranges, in any order; negated: any other character. */
int ast_chars(struct ast *a, const struct char_range *r, size_t n, bool negated);
int ast_seq(struct ast *a, const int *kids, size_t n); /* n = 0: empty */
int ast_alt(struct ast *a, const int *kids, size_t n); /* n = 0: never */
int ast_seq2(struct ast *a, int x, int y);
int ast_seq3(struct ast *a, int x, int y, int z);
int ast_alt2(struct ast *a, int x, int y);
int ast_option(struct ast *a, int x);
int ast_repeat(struct ast *a, int x, int64_t min, int64_t max); /* max -1: no bound; at most AST_REPEAT_MAX */
int ast_and(struct ast *a, int x, int y);
/* x, of min to max units, where each text of x is a sequence of units: the intersection, which may say so. */
int ast_counted(struct ast *a, int x, int unit, int64_t min, int64_t max);
/* members[0..n), each at most once and in any order, the first n_required of them once, and any number of
 * others among them (AST_FAILED: none); separator, which does not match the empty text, between two. Followed
 * lazily: what is left after each member is a state. */
int ast_unordered(struct ast *a, int separator, const int *members, size_t n, size_t n_required, int other);
int ast_not(struct ast *a, int x);
int ast_minus(struct ast *a, int x, int y); /* x, but not y */

enum { AST_REPEAT_MAX = 1 << 30 };

/* Nothing, from when the whole text has n tokens or more: at the first place behind them where the grammar
 * has this, it is passed.  One n per grammar.  It is a byte that no text holds (matcher_accept() adds it). */
int ast_budget(struct ast *a, uint32_t n);
enum { AST_BUDGET_MAX = 1 << 30, AST_BUDGET_BYTE = 0xfd };
/* n, or -1: the grammar has none. */
int64_t ast_budget_of(const struct ast *a);

/* Rules: made first, set once (later, for recursion).  name is for messages and is copied.  The rule's
 * number, or AST_FAILED. */
int ast_rule(struct ast *a, const char *name);
void ast_rule_set(struct ast *a, int rule, int node);
int ast_ref(struct ast *a, int rule);
void ast_start(struct ast *a, int node); /* what a whole text must match; the last call counts */

/* A front end's own error, in its words; the first error stays.  Returns AST_FAILED. */
int ast_fail(struct ast *a, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* 0, or the first error: -E2BIG for a bound, -EINVAL (a rule that was never set, no start, a front end's). */
int ast_check(const struct ast *a, char *why, size_t why_n);

/* Reading. */
enum ast_kind ast_kind(const struct ast *a, int node);
int ast_n_kids(const struct ast *a, int node);
int ast_kid(const struct ast *a, int node, int i);
const char *ast_bytes(const struct ast *a, int node, size_t *n); /* of a literal; moves with the next node */
const uint8_t *ast_set_of(const struct ast *a, int node);        /* [32]; likewise */
const struct char_range *ast_ranges(const struct ast *a, int node,
				    size_t *n); /* ascending, apart; likewise */
void ast_bounds(const struct ast *a, int node, int64_t *min,
		int64_t *max); /* of unordered members: min are required; of an intersection, min: counted */
int ast_rule_of(const struct ast *a, int node);
int ast_n_rules(const struct ast *a);
const char *ast_rule_name(const struct ast *a, int rule);
int ast_rule_body(const struct ast *a, int rule);
int ast_start_of(const struct ast *a);
int ast_n_nodes(const struct ast *a);
size_t ast_memory(const struct ast *a); /* bytes held */

/* Appends the grammar as text, a rule per line, for people: list ::= "[" (list ("," list)*)? "]"; at most max
 * bytes and then "...". */
void ast_print(const struct ast *a, struct buf *out, size_t max);
void ast_print_node(const struct ast *a, int node, struct buf *out, size_t max);

#endif
