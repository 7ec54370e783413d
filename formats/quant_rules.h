/* quant_rules.h - patterns of module names in quantization_config, and the rule that each is for.
 *
 *   "model.layers.0.mlp.up_proj"   the module of this name
 *   "re:.*self_attn.*"             compressed-tensors: names that begin with a match, as PCRE2 and Python
 *                                  understand it
 *   "Linear"                       compressed-tensors: a class; every linear module without a pattern of its
 *                                  own
 *   "model.layers.*.self_attn*"    ModelOpt: * stands for any text, ? for one character
 *
 * A name comes before a pattern, a pattern before a class, and within each kind the first before the others;
 * what is ignored comes before all.  If no pattern names a module that holds the rows of several (qkv_proj,
 * gate_up_proj), the patterns of its parts are asked. */
#ifndef QUERN_FORMATS_QUANT_RULES_H
#define QUERN_FORMATS_QUANT_RULES_H

#include "base/err.h"

#include <jansson.h>

struct quant_rules;

enum { QUANT_RULE_NONE = 0, QUANT_RULE_IGNORED = -1 }; /* others: numbers from 1 */

enum quant_style { QUANT_STYLE_REGEX, QUANT_STYLE_WILDCARDS };

struct quant_match {
	int rule;
	const char *pattern; /* borrowed from the rules; NULL: no pattern matches */
};

/* Add a pattern, or a list of patterns, for a rule.  names NULL: none.  *r NULL: made.  -EINVAL: a pattern is
 * no string or no regular expression. */
int quant_rules_add(struct quant_rules **r, enum quant_style style, const json_t *names, int rule,
		    struct why *why);
int quant_rules_add_name(struct quant_rules **r, enum quant_style style, const char *name, int rule,
			 struct why *why);
void quant_rules_free(struct quant_rules *r); /* NULL is fine */

/* Find the rule of a module.  r NULL: none.  -ENOTSUP: the parts of the module have different rules;
 * -E2BIG: a pattern takes too long on this name. */
int quant_rules_find(const struct quant_rules *r, const char *module, struct quant_match *out,
		     struct why *why);

#endif
