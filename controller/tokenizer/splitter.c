#include "controller/tokenizer/splitter.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/charclass.h"
#include "controller/tokenizer/regex_dialect.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Limits of a match before the text is refused: far more than real models' patterns need for the longest
 * word, and less than a second. */
enum { MATCH_LIMIT = 20 * 1000 * 1000, HEAP_LIMIT_KB = 64 << 10 };
enum { JIT_STACK_MIN = 32 << 10, JIT_STACK_MAX = 8 << 20 };

const char splitter_gpt2_pattern[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define LLAMA3_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define LLAMA3_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
	const char *pattern;
	int max_digits;
} llama3_patterns[] = {
	{LLAMA3_HEAD "\\p{N}{1,3}" LLAMA3_TAIL, 3},
	{LLAMA3_HEAD "\\p{N}" LLAMA3_TAIL, 1},
};

/* ---- hand-written matchers ---- */

/* Return the class of the character at p + i; *len: its bytes. */
static inline enum charclass class_at(const char *p, size_t i, int *len)
{
	unsigned char c = (unsigned char)p[i];
	if (c < 0x80) {
		*len = 1;
		return (enum charclass)charclass_ascii[c];
	}
	return charclass_other(utf8_at(p + i, len));
}

/* Return the end of a run of characters of class c. */
static inline size_t run_of(const char *p, size_t n, size_t i, enum charclass c)
{
	int len;
	while (i < n && class_at(p, i, &len) == c)
		i += (size_t)len;
	return i;
}

/* Return the length of 's, 't, 're, 've, 'm, 'll or 'd at i, without the apostrophe; 0: none. With any_case,
 * U+017F is an s too. */
static size_t contraction(const char *p, size_t n, size_t i, bool any_case)
{
	if (i >= n)
		return 0;
	if (any_case && n - i >= 2 && (unsigned char)p[i] == 0xc5 && (unsigned char)p[i + 1] == 0xbf)
		return 2;
	char fold = any_case ? 0x20 : 0;
	char a = p[i] | fold, b = i + 1 < n ? p[i + 1] | fold : 0;
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return 1;
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return 2;
	return 0;
}

/* Match \s+(?!\S)|\s+ on a run of white space [i, end): the whole run at the end of the text or if it is a
 * single character, else all but the last character. */
static size_t spaces_end(const char *p, size_t n, size_t i, size_t end)
{
	int len;
	if (end == n)
		return end;
	utf8_before(p, end, &len);
	return end - (size_t)len > i ? end - (size_t)len : end;
}

static size_t white_run(const char *p, size_t n, size_t i, size_t *last_newline)
{
	int len;
	*last_newline = 0;
	while (i < n) {
		enum charclass c = class_at(p, i, &len);
		if (c != CHAR_SPACE && c != CHAR_NEWLINE)
			break;
		i += (size_t)len;
		if (c == CHAR_NEWLINE)
			*last_newline = i;
	}
	return i;
}

size_t splitter_gpt2(const char *p, size_t n, size_t at)
{
	int len;
	size_t i = at, newline;
	if (p[i] == '\'') {
		size_t k = contraction(p, n, i + 1, false);
		if (k)
			return i + 1 + k;
	}
	enum charclass c = class_at(p, i, &len);
	if (p[i] == ' ' && i + 1 < n) {
		c = class_at(p, i + 1, &len);
		if (c != CHAR_SPACE && c != CHAR_NEWLINE)
			i++;
	}
	if (c == CHAR_SPACE || c == CHAR_NEWLINE)
		return spaces_end(p, n, at, white_run(p, n, at, &newline));
	return run_of(p, n, i + (size_t)len, c);
}

size_t splitter_llama3(const char *p, size_t n, size_t at, int max_digits)
{
	int len, len2 = 0;
	size_t newline;
	if (p[at] == '\'') {
		size_t k = contraction(p, n, at + 1, true);
		if (k)
			return at + 1 + k;
	}
	enum charclass c = class_at(p, at, &len);
	size_t second = at + (size_t)len;
	if (c == CHAR_LETTER)
		return run_of(p, n, second, CHAR_LETTER);
	if (c == CHAR_NUMBER) {
		for (int k = 1; k < max_digits && second < n && class_at(p, second, &len) == CHAR_NUMBER; k++)
			second += (size_t)len;
		return second;
	}
	enum charclass c2 = second < n ? class_at(p, second, &len2) : CHAR_SPACE;
	if (c != CHAR_NEWLINE && c2 == CHAR_LETTER)
		return run_of(p, n, second + (size_t)len2, CHAR_LETTER);
	if (c == CHAR_OTHER || (p[at] == ' ' && c2 == CHAR_OTHER))
		return run_of(p, n, run_of(p, n, second, CHAR_OTHER), CHAR_NEWLINE);
	size_t end = white_run(p, n, at, &newline);
	return newline ? newline : spaces_end(p, n, at, end);
}

/* ---- PCRE2 ---- */

static int compile(struct splitter *s, struct why *why)
{
	struct buf pattern = {0};
	int e, rc = regex_dialect(s->text, &pattern, why);
	PCRE2_SIZE at;
	pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
	if (rc)
		goto out;
	pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
	s->code = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
				&e, &at, ctx);
	if (!s->code) {
		PCRE2_UCHAR text[128];
		pcre2_get_error_message(e, text, sizeof(text));
		rc = err_why(why, -EINVAL, "pattern \"%s\": %s", s->text, (char *)text);
		goto out;
	}
	pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower */
out:
	pcre2_compile_context_free(ctx);
	buf_fini(&pattern);
	return rc;
}

int splitter_init(struct splitter *s, bool regex, const char *pattern, bool by_hand, struct why *why)
{
	*s = (struct splitter){.kind = SPLITTER_LITERAL, .text = xstrdup(pattern), .n = strlen(pattern)};
	if (!regex)
		return 0;
	s->kind = SPLITTER_REGEX;
	if (by_hand && strcmp(pattern, splitter_gpt2_pattern) == 0)
		s->kind = SPLITTER_GPT2;
	for (size_t i = 0; by_hand && i < sizeof(llama3_patterns) / sizeof(llama3_patterns[0]); i++) {
		if (strcmp(pattern, llama3_patterns[i].pattern) == 0) {
			s->kind = SPLITTER_LLAMA3;
			s->max_digits = llama3_patterns[i].max_digits;
		}
	}
	int rc = s->kind == SPLITTER_REGEX ? compile(s, why) : 0;
	if (rc)
		splitter_fini(s);
	return rc;
}

void splitter_fini(struct splitter *s)
{
	free(s->text);
	pcre2_code_free(s->code);
	*s = (struct splitter){0};
}

void splitter_match_fini(struct splitter_match *m)
{
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_jit_stack_free(m->stack);
}

static void match_init(struct splitter_match *m)
{
	m->data = pcre2_match_data_create(1, NULL);
	m->context = pcre2_match_context_create(NULL);
	m->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
	pcre2_set_match_limit(m->context, MATCH_LIMIT);
	pcre2_set_depth_limit(m->context, MATCH_LIMIT);
	pcre2_set_heap_limit(m->context, HEAP_LIMIT_KB);
	pcre2_jit_stack_assign(m->context, NULL, m->stack);
}

static int next_regex(const struct splitter *s, struct splitter_match *m, const char *p, size_t n, size_t at,
		      size_t *from, size_t *to, struct why *why)
{
	if (!m->data)
		match_init(m);
	int rc = pcre2_match(s->code, (PCRE2_SPTR)p, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		PCRE2_UCHAR text[128];
		pcre2_get_error_message(rc, text, sizeof(text));
		return err_why(why, -E2BIG, "the split pattern fails at byte %zu of a piece of text: %s", at,
			       (char *)text);
	}
	const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
	*from = v[0];
	*to = v[1];
	return 1;
}

int splitter_next(const struct splitter *s, struct splitter_match *m, const char *p, size_t n, size_t at,
		  size_t *from, size_t *to, struct why *why)
{
	const char *hit;
	if (s->kind == SPLITTER_REGEX)
		return next_regex(s, m, p, n, at, from, to, why);
	if (at >= n)
		return 0;
	*from = at;
	switch (s->kind) {
	case SPLITTER_GPT2:
		*to = splitter_gpt2(p, n, at);
		return 1;
	case SPLITTER_LLAMA3:
		*to = splitter_llama3(p, n, at, s->max_digits);
		return 1;
	default:
		hit = memmem(p + at, n - at, s->text, s->n);
		if (!hit)
			return 0;
		*from = (size_t)(hit - p);
		*to = *from + s->n;
		return 1;
	}
}
