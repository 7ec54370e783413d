/* The file of API keys, and a key's limits. Time is an argument. */
#include "controller/http/api_keys.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALICE  "sk-alice-0123456789"
#define BOB    "sk-bob-0123456789ab"
#define SECOND 1000000LL

static char path[] = "/tmp/quern-keys-XXXXXX";
static struct api_keys *keys;
static int64_t t0;

static void put(const char *text)
{
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

static void make(void)
{
	close(mkstemp(path));
	t0 = clock_us();
}

static void drop(void)
{
	api_keys_close(keys);
	unlink(path);
}

TestSuite(api_keys, .init = make, .fini = drop);

static void load(const char *text)
{
	struct why why = {""};
	put(text);
	cr_assert(api_keys_open(path, &keys, &why) == 0, "%s", why.text);
}

/* Return the reason why this file is refused. */
static const char *wrong(const char *text)
{
	static struct why why;
	put(text);
	why.text[0] = 0;
	cr_expect(api_keys_open(path, &keys, &why) < 0, "taken: %s", text);
	cr_expect_not_null(strstr(why.text, path));
	return why.text;
}

static struct api_key *find(const char *key)
{
	char header[512];
	snprintf(header, sizeof header, "Bearer %s", key);
	return api_keys_find(keys, header, t0);
}

Test(api_keys, a_key_is_found_by_its_text_and_by_its_hash)
{
	load("# people\n\n" ALICE " name=alice share=3\n"
	     "sha256:f2f96a0e1a0ef6a68be34cc41ff5ba6b4b1b0c6a1e5f0c1ed6a2e6d1f8b34d4c name=other\n");
	char name[APIKEY_NAME_MAX];
	uint32_t share;
	struct api_key *a = find(ALICE);
	cr_assert_not_null(a);
	api_key_name(a, name, &share);
	cr_expect_str_eq(name, "alice");
	cr_expect(share == 3);
	cr_expect_null(find(BOB));
	cr_expect_null(find(ALICE "x"));
	cr_expect_null(find(""));
	cr_expect_null(api_keys_find(keys, NULL, t0));
	cr_expect_null(api_keys_find(keys, ALICE, t0), "without its scheme");
	cr_expect_null(api_keys_find(keys, "Basic " ALICE, t0));
	cr_expect(api_keys_find(keys, "bearer   " ALICE, t0) == a, "schemes have no case");
}

Test(api_keys, a_hash_in_the_file_matches_its_key)
{
	FILE *p = popen("printf %s " BOB " | sha256sum", "r");
	char hex[65] = "", line[128];
	cr_assert(p && fscanf(p, "%64s", hex) == 1);
	pclose(p);
	snprintf(line, sizeof line, "sha256:%s name=bob\n", hex);
	load(line);
	cr_expect_not_null(find(BOB));
	cr_expect_null(find(ALICE));
}

Test(api_keys, a_key_without_a_name_gets_one)
{
	load(ALICE "\n" BOB "\n");
	char a[APIKEY_NAME_MAX], b[APIKEY_NAME_MAX];
	uint32_t share;
	api_key_name(find(ALICE), a, &share);
	api_key_name(find(BOB), b, &share);
	cr_expect(!strncmp(a, "key-", 4) && strlen(a) == 12 && strcmp(a, b) != 0);
	cr_expect(share == 1);
}

Test(api_keys, a_key_has_a_quota_of_files_or_none_of_its_own)
{
	struct api_key_quota q;
	load(ALICE " max-files=12 max-stored-bytes=1.5G\n" BOB "\n");
	api_key_quota(find(ALICE), &q);
	cr_expect(q.max_files == 12 && q.max_bytes == 3LL << 29);
	api_key_quota(find(BOB), &q);
	cr_expect(q.max_files == -1 && q.max_bytes == -1);
}

Test(api_keys, a_priority_is_clamped_to_the_range_of_its_key)
{
	static const struct {
		const char *fields;
		int32_t wanted[3], priority[3];
	} rows[] = {
		{"", {-1, 0, INT32_MAX}, {0, 0, INT32_MAX}},
		{"priority=-10..5", {INT32_MIN, 3, 6}, {-10, 3, 5}},
		{"priority=4", {-1, 4, 9}, {4, 4, 4}},
		{"priority=-2147483648..2147483647", {INT32_MIN, 0, INT32_MAX}, {INT32_MIN, 0, INT32_MAX}},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char line[128];
		struct api_key_terms t;
		snprintf(line, sizeof line, ALICE " %s\n", rows[i].fields);
		load(line);
		api_key_terms(find(ALICE), &t);
		for (int k = 0; k < 3; k++)
			cr_expect_eq(api_key_priority(&t, rows[i].wanted[k]), rows[i].priority[k], "%s",
				     rows[i].fields);
		api_keys_close(keys);
		keys = NULL;
	}
}

Test(api_keys, errors_name_the_line_and_never_show_the_key)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"", "no key"},
		{"# only words\n", "no key"},
		{"short name=x\n", "line 1: the key has 5 bytes"},
		{"\n" ALICE " name=\n", "line 2: name"},
		{ALICE " name=a/b\n", "name"},
		{ALICE " name=a b\n", "name=value"},
		{ALICE " share=0\n", "share: must be an integer from 1 to 1000"},
		{ALICE " max-jobs=-1\n", "max-jobs"},
		{ALICE " priority=\n", "priority: must be an integer"},
		{ALICE " priority=1..\n", "priority: must be an integer"},
		{ALICE " priority=3000000000\n", "priority: must be an integer"},
		{ALICE " priority=5..4\n", "priority: 5..4: the first number must be the lower one"},
		{ALICE " max-jobs=1x\n", "max-jobs"},
		{ALICE " tokens-per-minute=99999999999999999999\n", "tokens-per-minute"},
		{ALICE " max-files=-1\n", "max-files: must be an integer from 0"},
		{ALICE " max-stored-bytes=much\n", "max-stored-bytes"},
		{ALICE " colour=red\n", "unknown field"},
		{ALICE " name=a\n" BOB " name=a\n", "line 2: duplicate name a"},
		{ALICE " name=a\n" ALICE " name=b\n", "line 2: duplicate key"},
		{"sha256:12 name=a\n", "64 hexadecimal"},
		{ALICE " " BOB "\n", "name=value"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *why = wrong(cases[i].text);
		cr_expect_not_null(strstr(why, cases[i].why), "\"%s\": %s", cases[i].text, why);
		cr_expect_null(strstr(why, "0123456789"), "a key is shown: %s", why);
	}
}

Test(api_keys, a_changed_file_is_read_again_and_an_invalid_one_ignored)
{
	load(ALICE " name=alice max-jobs=1\n");
	struct api_key *a = find(ALICE);
	unsigned retry;
	struct why why;
	cr_expect(api_key_begin(a, 1, false, t0, &retry, &why) == 0);
	put(ALICE " name=al max-jobs=2\n" BOB " name=bob\n");
	t0 += 2 * SECOND;
	cr_expect_not_null(find(BOB));
	cr_expect(find(ALICE) == a, "a key that stays is the same");
	cr_expect(api_key_begin(a, 1, false, t0, &retry, &why) == 0, "%s", why.text);
	put("nonsense\n");
	t0 += 2 * SECOND;
	cr_expect_not_null(find(BOB));
	put(BOB " name=bob share=2\n");
	t0 += 2 * SECOND;
	cr_expect_null(find(ALICE), "a key that was dropped");
	api_key_end(a); /* requests in flight continue */
	api_key_end(a);
}

/* Return a key's name and all its limits as text. */
static const char *limits_of(struct api_key *a)
{
	static char text[256];
	struct api_key_terms t;
	struct api_key_quota q;
	struct api_key_left left;
	api_key_terms(a, &t);
	api_key_quota(a, &q);
	api_key_left(a, t0, &left);
	snprintf(text, sizeof text, "%s %u %d..%d %lld %lld %lld %lld", t.name, t.share, t.best, t.worst,
		 (long long)q.max_files, (long long)q.max_bytes, (long long)left.max_requests,
		 (long long)left.max_tokens);
	return text;
}

Test(api_keys, each_limit_of_a_changed_file_applies)
{
	load(ALICE " name=alice\n");
	struct api_key *a = find(ALICE);
	cr_expect_str_eq(limits_of(a), "alice 1 0..2147483647 -1 -1 0 0");
	put(ALICE " name=al share=3 priority=-4..9 max-files=5 max-stored-bytes=4096 requests-per-minute=6 "
		  "tokens-per-minute=700\n");
	t0 += 2 * SECOND;
	cr_assert_eq(find(ALICE), a);
	cr_expect_str_eq(limits_of(a), "al 3 -4..9 5 4096 6 700");
	put(ALICE "\n" BOB "\n");
	t0 += 2 * SECOND;
	cr_assert_eq(find(ALICE), a);
	cr_expect_str_eq(strchr(limits_of(a), ' '), " 1 0..2147483647 -1 -1 0 0");
}

Test(api_keys, jobs_at_once_are_bounded)
{
	load(ALICE " max-jobs=3\n");
	struct api_key *a = find(ALICE);
	unsigned retry = 0;
	struct why why = {""};
	cr_expect(api_key_begin(a, 2, false, t0, &retry, &why) == 0);
	cr_expect(api_key_begin(a, 2, false, t0, &retry, &why) == -EAGAIN);
	cr_expect(strstr(why.text, "limit of 3 jobs") && retry == 1, "%s", why.text);
	cr_expect(api_key_begin(a, 1, false, t0, &retry, &why) == 0);
	cr_expect(api_key_begin(a, 1, false, t0, &retry, &why) == -EAGAIN);
	cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == 0, "no job");
	api_key_end(a);
	cr_expect(api_key_begin(a, 1, false, t0, &retry, &why) == 0);
}

Test(api_keys, requests_per_minute_refill_evenly)
{
	load(ALICE " requests-per-minute=6\n");
	struct api_key *a = find(ALICE);
	unsigned retry = 0;
	struct why why = {""};
	for (int i = 0; i < 6; i++)
		cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == 0);
	cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == -EAGAIN);
	cr_expect(retry >= 10 && retry <= 11, "%u", retry);
	cr_expect(api_key_begin(a, 0, true, t0 + 9 * SECOND, &retry, &why) == -EAGAIN);
	cr_expect(api_key_begin(a, 0, true, t0 + 11 * SECOND, &retry, &why) == 0);
	struct api_key_left left;
	api_key_left(a, t0 + 1000 * SECOND, &left);
	cr_expect(left.requests == 6 && left.max_requests == 6 && left.tokens == -1);
}

Test(api_keys, tokens_are_charged_when_known_and_refill)
{
	load(ALICE " tokens-per-minute=600\n");
	struct api_key *a = find(ALICE);
	unsigned retry = 0;
	struct why why = {""};
	cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == 0);
	api_key_charge(a, 1000, t0);
	cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == -EAGAIN);
	cr_expect(retry >= 40 && retry <= 42, "%u", retry);
	cr_expect(api_key_begin(a, 0, true, t0 + 39 * SECOND, &retry, &why) == -EAGAIN);
	cr_expect(api_key_begin(a, 0, true, t0 + 41 * SECOND, &retry, &why) == 0);
}

Test(api_keys, use_without_a_limit_is_not_owed_later)
{
	load(ALICE "\n");
	struct api_key *a = find(ALICE);
	unsigned retry = 0;
	struct why why = {""};
	api_key_charge(a, 1000000000, t0);
	for (int i = 0; i < 1000; i++)
		cr_expect(api_key_begin(a, 0, true, t0, &retry, &why) == 0);
	put(ALICE " requests-per-minute=6 tokens-per-minute=100\n");
	cr_assert_eq(api_keys_find(keys, "Bearer " ALICE, t0 + 100 * SECOND), a);
	cr_expect(api_key_begin(a, 0, true, t0 + 100 * SECOND, &retry, &why) == 0, "%s", why.text);
}
