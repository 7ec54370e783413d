/* composite_parts.h - builds parts of structured output (grammar/composite.h) as JSON. Functions return new
 * references and take ownership of json_t * arguments that are not const. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_COMPOSITE_PARTS_H
#define QUERN_CONTROLLER_CHAT_COMPOSITE_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Predicate for texts that are special tokens of the model. */
struct composite_specials {
	bool (*is)(const void *user, const char *text, size_t n); /* NULL: no text is */
	const void *user;
};

bool composite_is_special(const struct composite_specials *s, const char *text);

json_t *composite_literal(const char *text, size_t n);
json_t *composite_regex(const char *pattern);
json_t *composite_text(json_t *until); /* an array of strings that end it; NULL: any text */
json_t *composite_sequence(json_t *parts);
json_t *composite_either(json_t *parts);
json_t *composite_option(json_t *part);
json_t *composite_repeat(json_t *part, int min, int max);
/* Append a text as a template spells it: special tokens as such, and a byte 1 as a number of up to three
 * digits. NULL: append nothing. */
void composite_put_spelled(json_t *parts, const char *text, const struct composite_specials *s);
json_t *composite_spelled(const char *text, const struct composite_specials *s);

#endif
