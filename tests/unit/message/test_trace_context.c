/* W3C Trace Context: the values accepted from a client, and the values ignored. */
#include "controller/message/trace_context.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static bool reads(const char *parent)
{
	struct trace_context t;
	const bool is = trace_context_read(&t, parent, NULL);
	cr_assert_eq(t.set, is);
	trace_context_fini(&t);
	return is;
}

Test(trace_context, a_traceparent_is_read)
{
	struct trace_context t;
	char hex[TRACE_ID_HEX];
	static const uint8_t span[] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
	cr_assert(trace_context_read(&t, "00-" TRACE "-" SPAN "-01",
				     "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"));
	trace_context_hex(&t, hex);
	cr_expect_str_eq(hex, TRACE);
	cr_expect_arr_eq(t.span, span, 8);
	cr_expect(t.sampled && t.remote);
	cr_expect_str_eq(t.state, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
	trace_context_fini(&t);
	cr_assert(trace_context_read(&t, "00-" TRACE "-" SPAN "-00", NULL));
	cr_expect_not(t.sampled);
	trace_context_fini(&t);
	cr_assert(trace_context_read(&t, "00-" TRACE "-" SPAN "-03", NULL));
	cr_expect(t.sampled);
	trace_context_fini(&t);
}

Test(trace_context, malformed_ones_are_ignored)
{
	static const char *const bad[] = {"",
					  "00",
					  "00-" TRACE "-" SPAN,
					  "00-" TRACE "-" SPAN "-0",
					  "00-" TRACE "-" SPAN "-01-more",
					  "00-" TRACE "-" SPAN "-01 ",
					  "ff-" TRACE "-" SPAN "-01",
					  "0-" TRACE "-" SPAN "-011",
					  "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
					  "00-00000000000000000000000000000000-" SPAN "-01",
					  "00-" TRACE "-0000000000000000-01",
					  "00_" TRACE "-" SPAN "-01",
					  "00-" TRACE "_" SPAN "-01",
					  "00-" TRACE "-" SPAN "_01",
					  "0g-" TRACE "-" SPAN "-01",
					  "00-" TRACE "-" SPAN "-0x",
					  "cc-" TRACE "-" SPAN "-01x",
					  "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01-"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_not(reads(bad[i]), "%s", bad[i]);
	cr_expect_not(reads(NULL));
}

Test(trace_context, later_versions_may_have_more)
{
	cr_expect(reads("01-" TRACE "-" SPAN "-01"));
	cr_expect(reads("cc-" TRACE "-" SPAN "-01-what-the-future-holds"));
}

Test(trace_context, an_unusable_tracestate_is_dropped_alone)
{
	struct trace_context t;
	char lots[TRACE_STATE_MAX + 2];
	memset(lots, 'a', sizeof lots - 1);
	lots[sizeof lots - 1] = '\0';
	const char *const bad[] = {lots, "a=\n", "a=\x80", ""};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_assert(trace_context_read(&t, "00-" TRACE "-" SPAN "-01", bad[i]));
		cr_expect_null(t.state);
		trace_context_fini(&t);
	}
	lots[TRACE_STATE_MAX] = '\0';
	cr_assert(trace_context_read(&t, "00-" TRACE "-" SPAN "-01", lots));
	cr_expect_not_null(t.state);
	trace_context_fini(&t);
}

Test(trace_context, drawn_ones_differ_and_have_no_parent)
{
	struct trace_context a, b;
	static const uint8_t none[8];
	trace_context_draw(&a, true);
	trace_context_draw(&b, false);
	cr_expect(a.set && a.sampled && !a.remote && b.set && !b.sampled);
	cr_expect(memcmp(a.trace, b.trace, sizeof a.trace) != 0);
	cr_expect_arr_eq(a.span, none, 8);
}
