/* form_parts.h - builds parts of structured output (grammar/form_source.h) as JSON. Functions return new
 * references and take ownership of json_t * arguments that are not const. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_FORM_PARTS_H
#define QUERN_CONTROLLER_CHAT_FORM_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Predicate for texts that are special tokens of the model. */
struct form_specials {
	bool (*is)(const void *user, const char *text, size_t n); /* NULL: no text is */
	const void *user;
};

bool form_is_special(const struct form_specials *s, const char *text);

json_t *form_literal(const char *text, size_t n);
json_t *form_regex(const char *pattern);
json_t *form_text(json_t *until); /* an array of strings that end it; NULL: any text */
json_t *form_sequence(json_t *parts);
json_t *form_either(json_t *parts);
json_t *form_option(json_t *part);
json_t *form_repeat(json_t *part, int min, int max);
/* Append a text as a template spells it: special tokens as such, and a byte 1 as a number of up to three
 * digits. NULL: append nothing. */
void form_put_spelled(json_t *parts, const char *text, const struct form_specials *s);
json_t *form_spelled(const char *text, const struct form_specials *s);

#endif
