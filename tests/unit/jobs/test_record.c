/* The record of a request, across versions of the bus, which has the format of its parameters. */
#include "base/alloc.h"
#include "controller/jobs/record.h"
#include "proto/bus.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { BUS_BYTE = 4 }; /* after the array's head (3 bytes) and the record's version */

/* Writes a record, sets its bus version and reads it again. */
static int read_as(int bus, struct submit **got, char *why, size_t why_n)
{
	struct submit s = {0};
	struct buf b = {0};
	struct cursor c;
	params_init(&s.params);
	s.tokens = (uint32_t[]){1, 2, 3};
	s.n_tokens = 3;
	s.params.max_tokens = 7;
	s.params.temperature = 0.5f;
	record_put_request(&b, &s, 1, 1);
	cr_assert_eq((unsigned char)b.p[0], 0xdc);
	cr_assert_eq(b.p[BUS_BYTE], BUS_VERSION);
	b.p[BUS_BYTE] = (char)bus;
	cursor_init(&c, b.p, b.len);
	int rc = record_get_request(&c, 100, 1, 1, got, why, why_n);
	buf_fini(&b);
	return rc;
}

Test(record, requests_of_older_bus_versions_are_read)
{
	for (int bus = 1; bus <= BUS_VERSION; bus++) {
		char why[256] = "";
		struct submit *s = NULL;
		cr_assert_eq(read_as(bus, &s, why, sizeof why), 0, "%s", why);
		cr_expect_eq(s->n_tokens, 3);
		cr_expect_eq(s->tokens[2], 3);
		cr_expect_eq(s->params.max_tokens, 7);
		cr_expect_eq(s->params.temperature, 0.5f);
		submit_free(s);
	}
}

Test(record, unknown_bus_version_is_an_error)
{
	static const int others[] = {0, BUS_VERSION + 1};
	for (int i = 0; i < 2; i++) {
		char why[256] = "";
		struct submit *s = NULL;
		cr_expect_eq(read_as(others[i], &s, why, sizeof why), -EBADMSG);
		cr_expect_not_null(strstr(why, "another version"), "%s", why);
		cr_expect_null(s);
	}
}

Test(record, a_trace_comes_back_and_what_is_none_is_refused)
{
	static const char *const states[] = {NULL, "vendor=1,other=2"};
	for (int i = 0; i < 2; i++) {
		struct trace_context t, got;
		struct buf b = {0};
		struct cursor c;
		char why[128] = "";
		cr_assert(trace_context_read(&t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
					     states[i]));
		record_put_trace(&b, &t);
		cursor_init(&c, b.p, b.len);
		record_get_trace(&c, &got);
		cr_assert_eq(record_close(&c, why, sizeof why), 0, "%s", why);
		cr_expect(memcmp(got.trace, t.trace, 16) == 0 && memcmp(got.span, t.span, 8) == 0);
		cr_expect(got.set && got.remote && got.sampled);
		cr_expect((!got.state && !t.state) || strcmp(got.state, t.state) == 0);
		trace_context_fini(&got);
		for (size_t n = 0; n < b.len; n++) {
			cursor_init(&c, b.p, n);
			record_get_trace(&c, &got);
			cr_expect(record_close(&c, why, sizeof why) == -EBADMSG && !got.set);
			trace_context_fini(&got);
		}
		trace_context_fini(&t);
		buf_fini(&b);
	}
}
