/* Text is wrapped between words, checked on a small terminal emulator. */
#include "cli/terminal/wrap.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, WIDTH = 24 };

struct screen {
	char rows[ROWS][WIDTH + 1];
	unsigned row, column; /* WIDTH: the line is full, and the next character starts a new line */
};

static void line_feed(struct screen *s)
{
	s->row++;
	s->column = 0;
	cr_assert_lt(s->row, ROWS);
}

/* Draw the text; every character takes one column. */
static void show(struct screen *s, const char *p)
{
	for (; *p; p++) {
		if (*p == '\n') {
			line_feed(s);
		} else if (*p == '\x1b') {
			char *end;
			const unsigned n = (unsigned)strtoul(p + 2, &end, 10);
			cr_assert_eq(p[1], '[');
			if (*end == 'G')
				s->column = n - 1;
			else
				cr_assert_eq(*end, 'K');
			if (*end == 'K')
				memset(s->rows[s->row] + s->column, 0, WIDTH - s->column);
			p = end;
		} else {
			if (s->column == WIDTH)
				line_feed(s);
			s->rows[s->row][s->column++] = *p;
		}
	}
}

/* Return the lines on the terminal after a text that arrives in chunks of n bytes, without trailing
 * blanks. */
static void wrap_lines(const char *text, size_t piece, char *out)
{
	struct screen s = {0};
	struct wrap w = {0};
	char *bytes;
	size_t n;
	FILE *f = open_memstream(&bytes, &n);
	for (size_t at = 0; at < strlen(text); at += piece) {
		const size_t left = strlen(text + at);
		wrap_put(&w, f, WIDTH, text + at, left < piece ? left : piece);
	}
	fclose(f);
	show(&s, bytes);
	out[0] = '\0';
	for (unsigned r = 0; r <= s.row; r++) {
		size_t len = strlen(s.rows[r]);
		while (len && s.rows[r][len - 1] == ' ')
			len--;
		sprintf(out + strlen(out), "%s%.*s", r ? "|" : "", (int)len, s.rows[r]);
	}
	free(bytes);
	wrap_fini(&w);
}

static void check(const char *text, const char *lines)
{
	char out[ROWS * (WIDTH + 2)];
	for (size_t piece = 1; piece <= strlen(text); piece++) {
		wrap_lines(text, piece, out);
		cr_expect_str_eq(out, lines, "in pieces of %zu: %s", piece, out);
	}
}

Test(wrap, breaks_between_words)
{
	check("Once upon a time there was a small dog that ran.",
	      "Once upon a time there|was a small dog that|ran.");
	check("one two\nthree four five six seven", "one two|three four five six|seven");
}

Test(wrap, a_full_line_is_not_broken_too_early)
{
	check("123456789 123456789 1234", "123456789 123456789 1234");
	check("123456789 123456789 1234 5", "123456789 123456789 1234|5");
	check("123456789 123456789 12345", "123456789 123456789|12345");
	check("123456789 123456789 1234\n5", "123456789 123456789 1234|5");
}

Test(wrap, a_word_longer_than_a_line_is_broken_by_the_terminal)
{
	check("a https://example.org/a/very/long/path and more",
	      "a|https://example.org/a/ve|ry/long/path and more");
}

Test(wrap, code_is_left_to_the_terminal)
{
	check("See:\n```c\nint a_long_line = of_code(1, 2);\n```\nthat was the code of it, all.",
	      "See:|```c|int a_long_line = of_cod|e(1, 2);|```|that was the code of it,|all.");
	check("not `````` a fence here, so words", "not `````` a fence here,|so words");
}

Test(wrap, wide_and_combining_characters_take_their_columns)
{
	struct wrap w = {0};
	char *bytes;
	size_t n;
	FILE *f = open_memstream(&bytes, &n);
	/* Eleven ideographs of two columns and a word of three: 22 + 1 + 3 columns. */
	for (int i = 0; i < 11; i++)
		wrap_put(&w, f, WIDTH, "\xe5\xad\x97", 3);
	wrap_put(&w, f, WIDTH, " abc", 4);
	wrap_put(&w, f, WIDTH, " e\xcc\x81", 4);
	cr_expect_eq(w.column, 5, "the accent takes no column: %u", w.column);
	fclose(f);
	cr_expect(strstr(bytes, "\n"), "the word was moved");
	free(bytes);
	wrap_fini(&w);
}

Test(wrap, nothing_is_changed_without_a_width)
{
	struct wrap w = {0};
	char *bytes;
	size_t n;
	const char *text = "a text without any width that is longer than most lines of a terminal ever are";
	FILE *f = open_memstream(&bytes, &n);
	wrap_put(&w, f, 0, text, strlen(text));
	fclose(f);
	cr_expect_str_eq(bytes, text);
	free(bytes);
	wrap_fini(&w);
}
