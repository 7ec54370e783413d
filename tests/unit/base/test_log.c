/* test_log.c - each call logs one line, for people or for programs. */
#include "base/json.h"
#include "base/log.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char path[] = "/tmp/test_log_XXXXXX", text[16384];

static void to_file(void)
{
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
	setenv("TZ", "Asia/Kolkata", 1); /* +05:30 in every season */
	tzset();
}

static void remove_file(void)
{
	unlink(path);
}

/* Return the whole log. */
static const char *logged(void)
{
	FILE *f = fopen(path, "r");
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = '\0';
	return text;
}

TestSuite(log, .init = to_file, .fini = remove_file);

static void expect_match(const char *pattern, const char *s)
{
	regex_t re;
	cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED), 0);
	cr_expect_eq(regexec(&re, s, 0, NULL, 0), 0, "%s does not match %s", s, pattern);
	regfree(&re);
}

#define TIME "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3}\\+05:30"

Test(log, a_line_has_its_date_and_zone)
{
	log_init("controller", LOG_INFO, LOG_TEXT);
	log_debug("main", "too fine");
	log_warn("main", "ready model=%s", "de\nmo");
	expect_match("^" TIME " warn controller/main: ready model=de\\?mo\n$", logged());
}

Test(log, a_quoted_value_cannot_end_itself)
{
	log_init("worker", LOG_INFO, LOG_TEXT);
	log_warn("main", "refused name=%s reason=\"%s\" file=\"%.40s\" bytes=%d", "a\"b",
		 "no \"x\" in c:\\d\x01", "e", 7);
	expect_match(
		"main: refused name=a\"b reason=\"no [\\]\"x[\\]\" in c:[\\][\\]d\\?\" file=\"e\" bytes=7\n$",
		logged());
}

Test(log, json_is_one_object_a_line_whatever_the_text)
{
	struct why why;
	json_t *o;
	log_init("worker", LOG_DEBUG, LOG_JSON);
	log_error("link", "a \"path\\\" of\tcaf\xc3\xa9 and \xff\xc3 \x1f bytes\n{}");
	const char *line = logged();
	cr_assert_eq(strchr(line, '\n'), line + strlen(line) - 1, "%s", line);
	cr_assert_eq(json_parse(line, strlen(line) - 1, &o, &why), 0, "%s: %s", why.text, line);
	expect_match("^" TIME "$", json_string_value(json_object_get(o, "time")));
	cr_expect_str_eq(json_string_value(json_object_get(o, "level")), "error");
	cr_expect_str_eq(json_string_value(json_object_get(o, "program")), "worker");
	cr_expect_str_eq(json_string_value(json_object_get(o, "part")), "link");
	cr_expect_str_eq(json_string_value(json_object_get(o, "message")),
			 "a \"path\\\" of\tcaf\xc3\xa9 and \xef\xbf\xbd\xef\xbf\xbd \x1f bytes\n{}");
	json_decref(o);
}

/* Logs the longest text, cut within a character, and a text that needs escapes throughout. */
Test(log, json_stays_json_where_a_text_is_cut)
{
	struct why why;
	char long_text[4000];
	json_t *o;
	log_init("worker", LOG_DEBUG, LOG_JSON);
	memset(long_text, 'x', sizeof long_text);
	for (size_t i = 1; i + 2 < sizeof long_text; i += 3)
		memcpy(long_text + i, "\xe6\x9d\xb1", 3);
	long_text[sizeof long_text - 1] = '\0';
	log_info("link", "%s", long_text);
	memset(long_text, 0x01, sizeof long_text - 1);
	log_info("link", "%s", long_text);
	const char *line = logged();
	for (int i = 0; i < 2; i++) {
		const size_t n = strcspn(line, "\n");
		cr_assert_eq(json_parse(line, n, &o, &why), 0, "%s: %.*s", why.text, (int)n, line);
		cr_expect_geq(json_string_length(json_object_get(o, "message")), 1000);
		json_decref(o);
		line += n + 1;
	}
	cr_expect_eq(*line, '\0');
}
