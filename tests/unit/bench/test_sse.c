/* Server-sent events, parsed from bytes that arrive in chunks. */
#include "bench/sse.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(sse, .timeout = 60);

static int collect(void *ctx, const char *data, size_t n)
{
	struct buf *out = ctx;
	cr_assert_eq(data[n], 0);
	buf_putc(out, '[');
	buf_put(out, data, n);
	buf_putc(out, ']');
	return 0;
}

/* Expects the same events for every chunk size. */
static void expect_events(const char *text, const char *events)
{
	size_t n = strlen(text);
	for (size_t piece = 1; piece <= n; piece++) {
		struct sse s = {0};
		struct buf out = {0};
		for (size_t i = 0; i < n; i += piece)
			cr_assert_eq(sse_feed(&s, text + i, n - i < piece ? n - i : piece, collect, &out), 0);
		buf_puts(&out, "");
		cr_expect_str_eq(out.p, events, "in pieces of %zu: %s", piece, out.p);
		buf_fini(&out);
		sse_fini(&s);
	}
}

Test(sse, an_event_ends_at_an_empty_line)
{
	expect_events("data: one\n\ndata: two\n\n", "[one][two]");
}

Test(sse, lines_end_with_lf_crlf_or_cr)
{
	expect_events("data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\r\n", "[a][b][c][d]");
}

Test(sse, data_lines_of_one_event_are_joined)
{
	expect_events("data: a\ndata: b\ndata\ndata:\n\n", "[a\nb\n\n]");
}

Test(sse, one_space_behind_the_colon_is_dropped)
{
	expect_events("data:  a\n\ndata:b \n\n", "[ a][b ]");
}

Test(sse, comments_other_fields_and_empty_events_are_ignored)
{
	expect_events(": keep-alive\n\nevent: x\nid: 7\nretry: 3\n\ndatax: no\ndata: yes\n\n", "[yes]");
}

Test(sse, an_event_without_its_end_is_not_delivered)
{
	expect_events("data: whole\n\ndata: half\n", "[whole]");
}

Test(sse, a_byte_order_mark_at_the_beginning_is_ignored)
{
	expect_events("\xef\xbb\xbf"
		      "data: a\n\n\xef\xbb\xbf"
		      "data: b\n\n",
		      "[a]");
}

static int refuse(void *ctx, const char *data, size_t n)
{
	(void)data, (void)n;
	++*(int *)ctx;
	return -EPROTO;
}

Test(sse, an_error_of_the_reader_ends_it)
{
	struct sse s = {0};
	int calls = 0;
	cr_expect_eq(sse_feed(&s, "data: a\n\ndata: b\n\n", 18, refuse, &calls), -EPROTO);
	cr_expect_eq(calls, 1);
	sse_fini(&s);
}

Test(sse, a_line_and_an_event_have_bounds)
{
	size_t n = 1 << 20;
	char *a = malloc(n);
	memset(a, 'a', n);
	for (int lines = 0; lines < 2; lines++) {
		struct sse s = {0};
		struct buf out = {0};
		int rc = 0, fed = 0;
		for (; !rc && fed < 20; fed++) {
			if (lines || !fed)
				rc = sse_feed(&s, "data:", 5, collect, &out);
			if (!rc)
				rc = sse_feed(&s, a, n, collect, &out);
			if (!rc && lines)
				rc = sse_feed(&s, "\n", 1, collect, &out);
		}
		cr_expect_eq(rc, -EMSGSIZE);
		cr_expect(fed <= 9, "after %d MiB", fed);
		cr_expect_eq(out.len, 0);
		sse_fini(&s);
		buf_fini(&out);
	}
	free(a);
}
