#include "cli/terminal/wrap.h"

#include "base/utf8.h"

#include <limits.h>
#include <utf8proc.h>

/* On a narrower terminal, lines are not wrapped here. */
enum { WIDTH_MIN = 20, TAB = 8, FENCE = 3 };

static void begin_word(struct wrap *w)
{
	buf_clear(&w->word);
	w->word_column = w->column;
}

static void begin_line(struct wrap *w)
{
	w->column = 0;
	w->n_ticks = 0;
	begin_word(w);
}

/* Detect fences at the beginning of a line. */
static void see(struct wrap *w, char c)
{
	if (w->n_ticks == UINT_MAX)
		return;
	if (c != '`')
		w->n_ticks = UINT_MAX;
	else if (++w->n_ticks == FENCE)
		w->code = !w->code;
}

/* Move the word, which does not begin its line, to the next line. */
static void move_word(struct wrap *w, FILE *f)
{
	/* Move by column number: on a full line, the cursor stays in the last column. */
	if (w->column > w->word_column)
		fprintf(f, "\x1b[%uG\x1b[K", w->word_column + 1);
	putc('\n', f);
	if (w->word.len)
		fwrite(w->word.p, 1, w->word.len, f);
	w->column -= w->word_column;
	w->word_column = 0;
}

static void put_char(struct wrap *w, FILE *f, unsigned width, const char *p, int len)
{
	int unused;
	const int columns = utf8proc_charwidth((utf8proc_int32_t)utf8_at(p, &unused));
	const unsigned wide = columns > 0 ? (unsigned)columns : 0;
	if (width && !w->code && w->column + wide > width && w->word_column > 0)
		move_word(w, f);
	fwrite(p, 1, (size_t)len, f);
	buf_put(&w->word, p, (size_t)len);
	w->column += wide;
	if (width && w->column > width) { /* the terminal has wrapped the line */
		w->column = wide;
		begin_word(w);
	}
}

static void put_blank(struct wrap *w, FILE *f, unsigned width, char c)
{
	const unsigned to = c == '\t' ? (w->column / TAB + 1) * TAB : w->column + 1;
	if (width && !w->code && to > width) {
		putc('\n', f);
		w->column = 0;
	} else {
		putc(c, f);
		w->column = to;
	}
	begin_word(w);
}

void wrap_put(struct wrap *w, FILE *f, unsigned width, const char *p, size_t n)
{
	width = width < WIDTH_MIN ? 0 : width;
	for (size_t i = 0; i < n;) {
		int len = 1;
		if (p[i] == '\n') {
			putc('\n', f);
			begin_line(w);
		} else if (p[i] == ' ' || p[i] == '\t') {
			put_blank(w, f, width, p[i]);
			see(w, p[i]);
		} else {
			utf8_at(p + i, &len);
			put_char(w, f, width, p + i, len);
			see(w, p[i]);
		}
		i += (size_t)len;
	}
}

void wrap_fini(struct wrap *w)
{
	buf_fini(&w->word);
}
