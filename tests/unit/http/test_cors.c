/* The origins that CORS allows. */
#include "controller/http/cors.h"

#include <criterion/criterion.h>
#include <string.h>

static struct cors *c;

static void drop(void)
{
	cors_free(c);
}

TestSuite(cors, .fini = drop);

static void allow(const char *list)
{
	struct why why;
	cr_assert(cors_parse(list, &c, &why) == 0, "%s", why.text);
}

Test(cors, named_origins_are_allowed)
{
	allow("https://chat.example.org, http://localhost:3000,http://[::1]:8");
	cr_expect(cors_allows(c, "https://chat.example.org"));
	cr_expect(cors_allows(c, "http://localhost:3000"));
	cr_expect(cors_allows(c, "http://[::1]:8"));
	cr_expect_not(cors_allows(c, "http://chat.example.org"));
	cr_expect_not(cors_allows(c, "https://chat.example.org:444"));
	cr_expect_not(cors_allows(c, "https://chat.example.org.evil.example"));
	cr_expect_not(cors_allows(c, "null"));
	cr_expect_not(cors_allows(c, NULL));
}

Test(cors, a_star_allows_every_origin)
{
	allow("*");
	cr_expect(cors_allows(c, "https://a.example"));
	cr_expect(cors_allows(c, "null"), "a page from a file");
	cr_expect_not(cors_allows(c, "https://a.example\r\nX: 1"));
	cr_expect_not(cors_allows(c, ""));
}

Test(cors, without_a_list_no_origin_is_allowed)
{
	cr_expect_not(cors_allows(NULL, "https://a.example"));
}

Test(cors, an_entry_that_is_not_an_origin_is_named)
{
	static const char *const wrong[] = {
		"chat.example.org",   "https://", "https://a.example/path", "", "https://a b",
		"https://a.example,", "://x"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct why why = {""};
		cr_expect(cors_parse(wrong[i], &c, &why) < 0, "taken: %s", wrong[i]);
		cr_expect_not_null(strstr(why.text, "--cors-origin"));
	}
}

Test(cors, the_services_own_page_has_the_requests_host_as_origin)
{
	cr_expect(cors_is_own("http://127.0.0.1:8080", "127.0.0.1:8080"));
	cr_expect(cors_is_own("https://Quern.example.org", "quern.example.org"));
	cr_expect(cors_is_own("https://quern.example.org", "quern.example.org:443"));
	cr_expect(cors_is_own("http://quern.example.org", "quern.example.org:80"));
	cr_expect(cors_is_own("http://[::1]:8080", "[::1]:8080"));
	static const char *const others[][2] = {
		{"https://evil.example", "127.0.0.1:8080"},
		{"http://127.0.0.1:3000", "127.0.0.1:8080"},
		{"http://127.0.0.1", "127.0.0.1:8080"},
		{"http://127.0.0.1:8080.evil.example", "127.0.0.1:8080"},
		{"http://quern.example.org", "quern.example.org:443"},
		{"https://quern.example.org", "quern.example.org:80"},
		{"ftp://127.0.0.1:8080", "127.0.0.1:8080"},
		{"null", "null"},
		{"http://", ""},
		{"", ""},
	};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		cr_expect_not(cors_is_own(others[i][0], others[i][1]), "%s %s", others[i][0], others[i][1]);
	cr_expect_not(cors_is_own("http://a", NULL));
}
