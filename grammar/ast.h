/* ast.h - a grammar as a tree. The front ends (JSON schema, regex, GBNF, Lark, choice) build the tree; the
 * automaton (machine.h) is compiled from it.
 * Owns: nodes, the bytes of literals, sets of bytes, rules. Nodes are integers in the order of their
 * creation; a node may be used in several places. Everything is over bytes; characters are their UTF-8
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
 * Errors are sticky: after the first error (an exceeded bound, a failed child) this call and all later ones
 * return AST_FAILED. Every function accepts AST_FAILED as a node, and ast_check() reports the error, so a
 * front end checks once, at its end.
 *
 * Cost: a repeat costs one node whatever its bounds ({0, 100000} is a counter in the automaton). An
 * alternative of many literals costs one node and their bytes. A reference to a non-recursive rule costs
 * nothing at run time. Intersection and complement need regular operands (no recursive rule inside); each
 * becomes a product automaton, built lazily. Equal nodes give the same automaton: share nodes. */
#ifndef QUERN_GRAMMAR_AST_H
#define QUERN_GRAMMAR_AST_H

#include "base/buf.h"
#include "base/err.h"
#include "grammar/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AST_FAILED = -1 };

enum ast_kind {
	AST_NEVER,     /* matches no text */
	AST_EMPTY,     /* matches the empty text */
	AST_LITERAL,   /* bytes */
	AST_SET,       /* one byte from a set */
	AST_CHARS,     /* one character from a set of ranges */
	AST_SEQ,       /* children in order */
	AST_ALT,       /* one of the children */
	AST_REPEAT,    /* the child, min to max times */
	AST_REF,       /* a reference to a rule */
	AST_AND,       /* both children match the same text */
	AST_NOT,       /* any bytes that the child does not match; used within AST_AND */
	AST_UNORDERED, /* separator, others, members: the members in any order */
};

/* Bounds on the grammar that a client may request.  0 means the default. */
struct ast_limits {
	size_t nodes;                    /* 1 << 20 */
	size_t bytes;                    /* literals, sets, ranges, children and names; 64 MiB */
	size_t rules;                    /* 200,000 */
	int depth;                       /* nesting of nodes, references not followed; 1,000 */
	struct grammar_account *account; /* charged for the nodes and the front end's work; NULL: none */
};

struct char_range {
	uint32_t first, last; /* code points, both included; surrogates are excluded */
};

struct ast;

struct ast *ast_new(const struct ast_limits *limits); /* NULL: the defaults */
void ast_free(struct ast *a);                         /* NULL is fine */

int ast_never(struct ast *a);
int ast_empty(struct ast *a);
int ast_literal(struct ast *a, const void *p, size_t n); /* n = 0: empty */
int ast_text(struct ast *a, const char *s);
int ast_set(struct ast *a, const uint8_t set[32]); /* bit b of set[b / 8] for byte b */
/* Match one character from n ranges, given in any order; negated: any other character. */
int ast_chars(struct ast *a, const struct char_range *r, size_t n, bool negated);
int ast_seq(struct ast *a, const int *kids, size_t n); /* n = 0: empty */
int ast_alt(struct ast *a, const int *kids, size_t n); /* n = 0: never */
int ast_seq2(struct ast *a, int x, int y);
int ast_seq3(struct ast *a, int x, int y, int z);
int ast_alt2(struct ast *a, int x, int y);
int ast_option(struct ast *a, int x);
/* max -1: unbounded; at most AST_REPEAT_MAX */
int ast_repeat(struct ast *a, int x, int64_t min, int64_t max);
int ast_and(struct ast *a, int x, int y);
/* Match the texts of x that have min to max units; every text of x must be a sequence of units. An
 * intersection, marked as one that only counts. */
int ast_counted(struct ast *a, int x, int unit, int64_t min, int64_t max);
/* Match members[0..n) in any order, each at most once; the first n_required must occur. Texts of other may
 * occur among them any number of times (AST_FAILED: none). separator stands between two and must not match
 * the empty text. Evaluated lazily: each set of remaining members is a state. */
int ast_unordered(struct ast *a, int separator, const int *members, size_t n, size_t n_required, int other);
int ast_not(struct ast *a, int x);
int ast_minus(struct ast *a, int x, int y); /* texts of x that y does not match */

enum { AST_REPEAT_MAX = 1 << 30 };

/* Match the empty text once the whole text has n tokens: it is passed at the first place after the n-th
 * token where the grammar has this node. One n per grammar. Encoded as a byte that no text holds;
 * matcher_accept() inserts it. */
int ast_budget(struct ast *a, uint32_t n);
enum { AST_BUDGET_MAX = 1 << 30, AST_BUDGET_BYTE = 0xfd };
/* Return n, or -1 if the grammar has no budget. */
int64_t ast_budget_of(const struct ast *a);

/* Rules are created first and set once, later, which permits recursion. name is for messages and is copied.
 * Return the rule's number, or AST_FAILED. */
int ast_rule(struct ast *a, const char *name);
void ast_rule_set(struct ast *a, int rule, int node);
int ast_ref(struct ast *a, int rule);
void ast_start(struct ast *a, int node); /* the node that a whole text must match; the last call wins */

/* Charge the account of the limits. Return false if it is used up, which becomes the
 * tree's error (-EAGAIN). */
bool ast_charge(struct ast *a, uint64_t units);
struct grammar_account *ast_account(const struct ast *a); /* NULL: none */

/* Record a front end's own error; the first error is kept.  Returns AST_FAILED. */
int ast_fail(struct ast *a, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Return 0, or the first error: -E2BIG (a bound), -EAGAIN (ast_charge()), -EINVAL (a rule never set, no
 * start, a front end's error). */
int ast_check(const struct ast *a, struct why *why);

/* Accessors.  Pointers to bytes, sets and ranges are invalid after the next node is made. */
enum ast_kind ast_kind(const struct ast *a, int node);
int ast_n_kids(const struct ast *a, int node);
int ast_kid(const struct ast *a, int node, int i);
const char *ast_bytes(const struct ast *a, int node, size_t *n);               /* AST_LITERAL */
const uint8_t *ast_set_of(const struct ast *a, int node);                      /* [32]; AST_SET */
const struct char_range *ast_ranges(const struct ast *a, int node, size_t *n); /* ascending, disjoint */
/* AST_UNORDERED: min members are required; AST_AND: min is nonzero if counted */
void ast_bounds(const struct ast *a, int node, int64_t *min, int64_t *max);
int ast_rule_of(const struct ast *a, int node);
int ast_n_rules(const struct ast *a);
const char *ast_rule_name(const struct ast *a, int rule);
int ast_rule_body(const struct ast *a, int rule);
int ast_start_of(const struct ast *a);
int ast_n_nodes(const struct ast *a);

/* Append the grammar as text for people, one rule per line: list ::= "[" (list ("," list)*)? "]". Stop after
 * max bytes with "...". */
void ast_print(const struct ast *a, struct buf *out, size_t max);
void ast_print_node(const struct ast *a, int node, struct buf *out, size_t max);

#endif
