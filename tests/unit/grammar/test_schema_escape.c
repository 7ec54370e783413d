/* test_schema_escape.c - spellings of characters in strings: each JSON spelling of each character that a
 * pattern allows, and of no other. */
#include "tests/unit/grammar/schema_help.h"

#include "base/utf8.h"

static bool is_surrogate(uint32_t c)
{
	return c >= 0xd800 && c <= 0xdfff;
}

static void check(struct grammar *g, bool want, const char *text)
{
	cr_expect_eq(help_accepts(g, text, strlen(text)), want, "%s: not %s", text,
		     want ? "accepted" : "refused");
}

/* Check c, as a string, in each of its spellings. */
static void check_spellings(struct grammar *g, bool want, uint32_t c)
{
	static const char shorts[] = "\"\\/\b\f\n\r\t", names[] = "\"\\/bfnrt";
	char text[32];
	const char *brief = c && c < 128 ? strchr(shorts, (int)c) : NULL;
	const uint32_t high = 0xd800 + ((c - 0x10000) >> 10), low = 0xdc00 + ((c - 0x10000) & 0x3ff);
	if (brief) {
		snprintf(text, sizeof text, "\"\\%c\"", names[brief - shorts]);
		check(g, want, text);
	}
	if (c > 0xffff)
		snprintf(text, sizeof text, "\"\\u%04x\\u%04X\"", high, low);
	else
		snprintf(text, sizeof text, "\"\\u%04x\"", c);
	check(g, want, text);
	if (c > 0xffff)
		snprintf(text, sizeof text, "\"\\u%04X\\u%04x\"", high, low);
	else
		snprintf(text, sizeof text, "\"\\u%04X\"", c);
	check(g, want, text);
	text[0] = '"';
	const int n = utf8_encode(c, text + 1);
	snprintf(text + 1 + n, sizeof text - 1 - (size_t)n, "\"");
	if (c)
		check(g, want && c >= 0x20 && c != '"' && c != '\\', text);
}

/* Check [a-b] at both ends, and next to and far from them in each digit. */
static void check_range(uint32_t a, uint32_t b)
{
	char schema[96];
	struct grammar *g;
	struct why why = {""};
	snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"^[\\\\u{%x}-\\\\u{%x}]$\"}", a,
		 b);
	cr_assert_eq(compile(schema, NULL, &g, &why), 0, "%s: %s", schema, why.text);
	for (int end = 0; end < 2; end++) {
		for (int shift = 0; shift < 24; shift++) {
			for (int d = -1; d <= 1; d++) {
				const int64_t c = (int64_t)(end ? b : a) + d * ((int64_t)1 << shift);
				if (c >= 0 && c <= 0x10ffff && !is_surrogate((uint32_t)c))
					check_spellings(g, c >= a && c <= b, (uint32_t)c);
			}
		}
	}
	for (uint32_t c = 0x3f; c <= 0x10ffff; c += c / 16)
		if (!is_surrogate(c))
			check_spellings(g, c >= a && c <= b, c);
	grammar_free(g);
}

Test(escape, a_range_of_characters_is_a_range_of_each_spelling)
{
	static const uint32_t ranges[][2] = {
		{0x00, 0x1f},       {0x07, 0x0d},       {0x20, 0x7e},       {0x22, 0x22},
		{0x21, 0x23},       {0x5b, 0x5d},       {0x2e, 0x30},       {0x61, 0x7a},
		{0x7f, 0xff},       {0x123, 0x4567},    {0x1000, 0x1fff},   {0x100, 0x10f},
		{0x1ab, 0x1cd},     {0x4e00, 0x9fff},   {0xd7fe, 0xe001},   {0xd7ff, 0xd7ff},
		{0xe000, 0xffff},   {0xff00, 0x10001},  {0x10000, 0x10000}, {0x1f600, 0x1f64f},
		{0x1f3ff, 0x1f401}, {0x10123, 0x10fed}, {0x10123, 0x107ff}, {0x10123, 0x10923},
		{0x10400, 0x107ff}, {0x10400, 0x10bff}, {0xfffff, 0x10ffff}};
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		check_range(ranges[i][0], ranges[i][1]);
}

Test(escape, what_a_pattern_spells_has_all_spellings)
{
	expect("{\"type\":\"string\",\"pattern\":\"^a\\u00e9\\ud83d\\ude00$\"}", NULL,
	       YES("\"a\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\u0061\\u00E9\\ud83d\\ude00\"",
		   "\"a\\u00e9\\uD83D\\uDE00\""),
	       NO("\"\\a\"", "\"a\xc3\xa9\\ud83d\"", "\"a\xc3\xa9\\ude00\\ud83d\"", "\"\\u061\\u00e9\"",
		  "\"\\U0061\xc3\xa9\xf0\x9f\x98\x80\""));
	expect("{\"type\":\"string\",\"pattern\":\"^[^a/]{2}$\"}", NULL,
	       YES("\"bc\"", "\"\\n\\u0000\"", "\"\\ud83d\\ude00\xf0\x9f\x98\x80\"", "\"\\\"\\\\\""),
	       NO("\"b\"", "\"ba\"", "\"b\\u0061\"", "\"b\\/\"", "\"b\\u002f\"", "\"b\\u002F\"", "\"b/\""));
	expect("{\"type\":\"string\",\"not\":{\"pattern\":\"^(a|\\n)$\"}}", NULL,
	       YES("\"\"", "\"b\"", "\"aa\"", "\"\\u0062\"", "\"\\u000b\""),
	       NO("\"a\"", "\"\\u0061\"", "\"\\n\"", "\"\\u000a\"", "\"\\u000A\""));
	expect("{\"type\":\"string\"}", NULL, YES("\"\\ud7ff\\ue000\"", "\"\\ud800\\udc00\\udbff\\udfff\""),
	       NO("\"\\ud800\"", "\"\\udbff\"", "\"\\udc00\"", "\"\\udfff\"", "\"\\udc00\\ud800\""));
	refuse("{\"type\":\"string\",\"pattern\":\"^[^\\\\u0000-\\\\u{10ffff}]$\"}", -EINVAL, "no text");
}

Test(escape, a_name_has_one_spelling)
{
	expect("{\"type\":\"object\",\"properties\":{\"a\\\"\\n\\u0001/"
	       "\\u00e9\":{}},\"additionalProperties\":"
	       "false}",
	       NULL, YES("{\"a\\\"\\n\\u0001/\xc3\xa9\": 1}"),
	       NO("{\"a\\u0022\\n\\u0001/\xc3\xa9\": 1}", "{\"a\\\"\\u000a\\u0001/\xc3\xa9\": 1}",
		  "{\"a\\\"\\n\\u0001\\/\xc3\xa9\": 1}", "{\"a\\\"\\n\\u0001/\\u00e9\": 1}"));
	/* a name given by a pattern, too */
	expect("{\"type\":\"object\",\"patternProperties\":{\"^[\\\\u0000-/]$\":{}},\"additionalProperties\":"
	       "false}",
	       NULL,
	       YES("{\"/\": 1}", "{\"\\n\": 1}", "{\"\\u0000\": 1}", "{\"\\u001f\": 1}", "{\"\\\"\": 1}"),
	       NO("{\"\\/\": 1}", "{\"\\u000a\": 1}", "{\"\\u001F\": 1}", "{\"\\u0022\": 1}", "{\"0\": 1}"));
	expect("{\"type\":\"object\",\"patternProperties\":{\"^[\\\\u0001-\\\\u0003]$\":{}},"
	       "\"additionalProperties\":false}",
	       NULL, YES("{\"\\u0001\": 1}", "{\"\\u0003\": 1}"),
	       NO("{\"\\u0000\": 1}", "{\"\\u0004\": 1}", "{\"\\u001f\": 1}"));
}
