/* char_set.h - sets of characters under construction: named classes of regular expressions. */
#ifndef QUERN_GRAMMAR_CHAR_SET_H
#define QUERN_GRAMMAR_CHAR_SET_H

#include "grammar/ast.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHAR_MAX_CODE = 0x10ffff };

/* Zeroed is empty. */
struct char_set {
	struct char_range *r; /* owned; in any order, may overlap */
	size_t n, cap;
};

void char_set_fini(struct char_set *s);
void char_set_add(struct char_set *s, uint32_t first, uint32_t last);
void char_set_sort(struct char_set *s);   /* ascending, apart */
void char_set_negate(struct char_set *s); /* sorted, too */
/* Adds the class of \d, \w or \s (c: 'd', 'w', 's'; capital: all others); false: no class. */
bool char_set_add_class(struct char_set *s, char c);
/* Adds a general category by its short or long name ("Lu", "L", "Letter"), "Any" or "ASCII"; false: unknown.
 * Unicode as utf8proc has it. */
bool char_set_add_category(struct char_set *s, const char *name, size_t n);

#endif
