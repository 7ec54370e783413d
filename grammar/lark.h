/* lark.h - parses grammars in a subset of Lark's language to a tree.
 *
 *     start: "let" NAME "=" sum          // rules in lower case, terminals in upper case
 *     sum: sum "+" NAME | NAME -> leaf   // left recursion is fine
 *     NAME: /[a-z]+/ | "it"i             // regular expressions (regex.h); i: any case
 *     pair: [NAME] (":" NAME)~1..3       // [optional], groups, ? * + ~n ~n..m, "a".."z"
 *     %import common.WS                  // common's INT, WORD, NUMBER, ESCAPED_STRING, ...
 *     %ignore WS                         // before, between and after the terminals of rules
 *
 *     %import common (INT, WS)           // several
 *
 * // and # begin comments. Supported from llguidance's dialect: %llguidance {...} at the head,
 * name[capture]: for rules, and %json {...} in place of a terminal: the texts that the schema accepts,
 * bounded (schema/schema.h). Regular expressions have the flags i, s and u. Aliases (-> leaf) and the
 * prefixes ? and ! of rules have no effect. There is no lexer: a text is accepted if any division into
 * terminals fits, not only the longest one. Priorities, templates, %declare, %extend, %override, other
 * imports, and attributes that would change sampling (max_tokens, temperature, stop, suffix, lazy) are
 * refused by name. */
#ifndef QUERN_GRAMMAR_LARK_H
#define QUERN_GRAMMAR_LARK_H

#include "grammar/ast.h"

/* Return the node of the rule start of p[0..n), UTF-8; AST_FAILED with the reason in a. */
int lark_parse(struct ast *a, const char *p, size_t n);

#endif
