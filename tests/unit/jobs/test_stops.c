/* Stop strings in text that arrives in chunks. */
#include "controller/jobs/stops.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(stops, .timeout = 60);

/* Return the end of a text fed in chunks of `piece` bytes, or -1. *start: the start of the stop string. */
static long end_of(const struct stops *s, const char *text, size_t piece, long *start, unsigned *which)
{
	struct stops_at at = {0};
	struct stops_hit hit;
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i += piece) {
		size_t now = n - i < piece ? n - i : piece;
		if (stops_push(s, &at, text + i, now, &hit)) {
			*start = (long)(i + hit.end) - (long)hit.length;
			*which = hit.which;
			return (long)(i + hit.end);
		}
	}
	return -1;
}

Test(stops, finds_a_string_wherever_the_pieces_are_cut)
{
	char *strings[] = {"STOP"};
	struct stops *s = stops_new(strings, 1);
	for (size_t piece = 1; piece < 20; piece++) {
		long start;
		unsigned which;
		cr_expect_eq(end_of(s, "one STO two STOP three", piece, &start, &which), 16);
		cr_expect_eq(start, 12);
	}
	stops_free(s);
}

Test(stops, the_string_that_is_complete_first_counts)
{
	char *strings[] = {"llo world", "wor", "lo w"};
	struct stops *s = stops_new(strings, 3);
	for (size_t piece = 1; piece < 12; piece++) {
		long start;
		unsigned which;
		cr_expect_eq(end_of(s, "hello world", piece, &start, &which), 7);
		cr_expect_eq(which, 2);
	}
	stops_free(s);
}

Test(stops, of_those_complete_at_once_the_one_listed_first_counts)
{
	char *a[] = {"b", "ab"}, *b[] = {"ab", "b"};
	struct stops *s = stops_new(a, 2), *t = stops_new(b, 2);
	long start;
	unsigned which;
	cr_expect_eq(end_of(s, "xab", 1, &start, &which), 3);
	cr_expect_eq(start, 2);
	cr_expect_eq(end_of(t, "xab", 1, &start, &which), 3);
	cr_expect_eq(start, 1);
	stops_free(s);
	stops_free(t);
}

Test(stops, holds_what_may_become_a_string)
{
	char *strings[] = {"\n\nUser:", "###"};
	struct stops *s = stops_new(strings, 2);
	struct stops_at at = {0};
	struct stops_hit hit;
	static const struct {
		const char *piece;
		size_t held;
	} steps[] = {{"Hi", 0}, {"\n", 1}, {"\nUs", 4}, {"e ", 0}, {"##", 2}, {" #\n", 1}, {"\n\nUser", 6}};
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		cr_assert_not(stops_push(s, &at, steps[i].piece, strlen(steps[i].piece), &hit));
		cr_expect_eq(stops_held(s, &at), steps[i].held, "after piece %zu: %zu", i,
			     stops_held(s, &at));
	}
	cr_assert(stops_push(s, &at, ": x", 3, &hit));
	cr_expect_eq(hit.end, 1);
	cr_expect_eq(hit.length, 7);
	stops_free(s);
}

/* The reference: search each prefix of the text for a stop string at its end. */
static long naive(char *const *strings, size_t n, const char *text, unsigned *which)
{
	for (size_t end = 1; end <= strlen(text); end++)
		for (size_t k = 0; k < n; k++) {
			size_t len = strlen(strings[k]);
			if (len <= end && memcmp(text + end - len, strings[k], len) == 0) {
				*which = (unsigned)k;
				return (long)end;
			}
		}
	return -1;
}

static void random_text(char *out, size_t n, int letters)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (char)('a' + rand() % letters);
	out[n] = 0;
}

/* Exactly the needed text is held back: no shown byte is ever part of a stop string found later, and held
 * text can still become a stop string. */
Test(stops, agrees_with_the_plain_search_on_random_texts)
{
	srand(7);
	for (int round = 0; round < 20000; round++) {
		char text[64], words[4][8], *strings[4];
		size_t n = (size_t)(1 + rand() % 4);
		for (size_t i = 0; i < n; i++) {
			random_text(words[i], (size_t)(1 + rand() % 6), 2);
			strings[i] = words[i];
		}
		random_text(text, 60, 2 + rand() % 2);
		struct stops *s = stops_new(strings, n);
		unsigned which = 9, expect_which = 9;
		long start, expect = naive(strings, n, text, &expect_which);
		cr_assert_eq(end_of(s, text, (size_t)(1 + rand() % 7), &start, &which), expect);
		cr_assert_eq(which, expect_which);
		struct stops_at at = {0};
		struct stops_hit hit;
		for (size_t i = 0; text[i] && !stops_push(s, &at, text + i, 1, &hit); i++) {
			size_t held = 0;
			for (size_t k = 0; k < n; k++)
				for (size_t len = 1; len < strlen(strings[k]) && len <= i + 1; len++)
					if (len > held && memcmp(text + i + 1 - len, strings[k], len) == 0)
						held = len;
			cr_assert_eq(stops_held(s, &at), held);
		}
		stops_free(s);
	}
}

Test(stops, a_hostile_text_costs_no_more_than_another)
{
	static char strings[PARAMS_STOP_MAX][PARAMS_STOP_BYTES_MAX + 1], *list[PARAMS_STOP_MAX];
	for (int i = 0; i < PARAMS_STOP_MAX; i++) {
		memset(strings[i], 'a', PARAMS_STOP_BYTES_MAX);
		strings[i][PARAMS_STOP_BYTES_MAX - 1] = (char)('b' + i);
		list[i] = strings[i];
	}
	struct stops *s = stops_new(list, PARAMS_STOP_MAX);
	struct stops_at at = {0};
	struct stops_hit hit;
	char *text = malloc(1 << 20);
	memset(text, 'a', 1 << 20);
	cr_assert_not(stops_push(s, &at, text, 1 << 20, &hit));
	cr_assert_eq(stops_held(s, &at), PARAMS_STOP_BYTES_MAX - 1);
	free(text);
	stops_free(s);
}
