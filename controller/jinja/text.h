/* text.h - strings that track which of their bytes are input: the marks follow the bytes through every
 * operation (text.c), including changes of case (text_case.c). */
#ifndef QUERN_CONTROLLER_JINJA_TEXT_H
#define QUERN_CONTROLLER_JINJA_TEXT_H

#include "controller/jinja/value.h"

/* A string under construction, with its marks. */
struct jbuild {
	struct jctx *c;
	char *p;
	size_t n, cap, max; /* max: longer strings fail with E2BIG */
	struct jspan *spans;
	size_t n_spans, cap_spans;
};

struct jv jv_str(struct jctx *c, const char *p, size_t n, enum jmarks marks); /* p is borrowed */
struct jv jv_text(struct jctx *c, const char *literal);                       /* borrowed, NUL-terminated */

void jb_init(struct jbuild *b, struct jctx *c);
void jb_put(struct jbuild *b, const char *p, size_t n, bool input);
void jb_puts(struct jbuild *b, const char *literal);
void jb_str(struct jbuild *b, const struct jstr *s);
void jb_sub(struct jbuild *b, const struct jstr *s, size_t from, size_t to); /* from, to: bytes */
void jb_char(struct jbuild *b, uint32_t cp, bool input);
struct jv jb_done(struct jbuild *b);
bool jstr_input_at(const struct jstr *s, size_t byte);
struct jv jstr_sub(struct jctx *c, const struct jstr *s, size_t from, size_t to); /* shares the bytes */
struct jv jstr_concat(struct jctx *c, struct jstr *a, struct jstr *b);
size_t jstr_chars(struct jstr *s);
size_t jstr_offset(struct jstr *s, size_t chars); /* the byte at which this character begins */
bool jstr_is(const struct jstr *s, const char *literal);
bool jchar_is_space(uint32_t cp); /* str.isspace() */

/* ---- text_case.c ---- */

enum jrecase { JRECASE_LOWER, JRECASE_UPPER, JRECASE_CAPITAL, JRECASE_TITLE, JRECASE_SWAP };
struct jv jstr_recase(struct jctx *c, const struct jstr *s, enum jrecase how);
struct jv jstr_casefold(struct jctx *c, const struct jstr *s);
bool jchar_is_lower(uint32_t cp);
bool jchar_is_upper(uint32_t cp);
bool jchar_is_cased(uint32_t cp); /* upper, lower or title case */

#endif
