/* char_set.h - sets of characters under construction, and the named classes of regular expressions. */
#ifndef QUERN_GRAMMAR_CHAR_SET_H
#define QUERN_GRAMMAR_CHAR_SET_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHAR_MAX_CODE = 0x10ffff };

/* A zeroed set is empty. */
struct char_set {
	struct char_range *r; /* owned; in any order, may overlap */
	size_t n, cap;
};

void char_set_fini(struct char_set *s);
void char_set_add(struct char_set *s, uint32_t first, uint32_t last);
void char_set_sort(struct char_set *s);   /* ascending, disjoint */
void char_set_negate(struct char_set *s); /* also sorts */
/* Add all characters that differ from one of the set only in case (Unicode simple case
 * folding). Also sorts. */
void char_set_add_cases(struct char_set *s);
/* Add the class \d, \w or \s (c: 'd', 'w', 's'; a capital adds the complement).  Return false for other c. */
bool char_set_add_class(struct char_set *s, char c);
/* Add a general category by its short or long name ("Lu", "L", "Letter"), "Any" or "ASCII". Return false if
 * the name is unknown. The Unicode data is utf8proc's. */
bool char_set_add_category(struct char_set *s, const char *name, size_t n);

#endif
