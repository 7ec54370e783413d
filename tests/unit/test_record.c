/* The journal's record of a request, across versions of the wire whose parameters it holds. */
#include "base/alloc.h"
#include "controller/record.h"
#include "proto/bus.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { BUS_BYTE = 4 }; /* behind an array's head of three bytes and the record's own version */

/* A record that says that the bus spoke this version when it was written, read again. */
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

Test(record, jobs_from_before_the_second_version_of_the_bus_go_on)
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

Test(record, another_version_of_the_bus_is_a_plain_error)
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
