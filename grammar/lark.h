/* lark.h - grammars in a subset of Lark's language as a tree.
 *
 *     start: "let" NAME "=" sum          // rules in lower case, terminals in upper case
 *     sum: sum "+" NAME | NAME -> leaf   // left recursion is fine
 *     NAME: /[a-z]+/ | "it"i             // regular expressions (regex.h); i: any case of ASCII letters
 *     pair: [NAME] (":" NAME)~1..3       // [optional], groups, ? * + ~n ~n..m, "a".."z"
 *     %import common.WS                  // common's INT, WORD, NUMBER, ESCAPED_STRING, ...
 *     %ignore WS                         // before, between and behind the terminals of rules
 *
 * Aliases (-> leaf) and the prefixes ? and ! of rules mean nothing here.
 * There is no lexer: a text is accepted if some division into terminals fits, not only the longest ones.
 * Priorities, templates, %declare, %extend, %override and other imports are refused by name. */
#ifndef QUERN_GRAMMAR_LARK_H
#define QUERN_GRAMMAR_LARK_H

#include "grammar/ast.h"

/* The node of the rule start of p[0..n), UTF-8; AST_FAILED with the reason in a. */
int lark_parse(struct ast *a, const char *p, size_t n);

#endif
