#include "controller/chat/composite_parts.h"

#include <string.h>

bool composite_is_special(const struct composite_specials *s, const char *text)
{
	return s->is && s->is(s->user, text, strlen(text));
}

json_t *composite_literal(const char *text, size_t n)
{
	return json_pack("{s:s, s:o}", "type", "literal", "text", json_stringn_nocheck(text, n));
}

json_t *composite_regex(const char *pattern)
{
	return json_pack("{s:s, s:s}", "type", "regex", "pattern", pattern);
}

json_t *composite_text(json_t *until)
{
	json_t *part = json_pack("{s:s}", "type", "text");
	if (until)
		json_object_set_new(part, "until", until);
	return part;
}

json_t *composite_sequence(json_t *parts)
{
	return json_pack("{s:s, s:o}", "type", "sequence", "parts", parts);
}

json_t *composite_either(json_t *parts)
{
	return json_pack("{s:s, s:o}", "type", "either", "parts", parts);
}

json_t *composite_option(json_t *part)
{
	return json_pack("{s:s, s:o}", "type", "option", "part", part);
}

json_t *composite_repeat(json_t *part, int min, int max)
{
	return json_pack("{s:s, s:o, s:i, s:i}", "type", "repeat", "part", part, "min", min, "max", max);
}

/* Special tokens begin and end with a bracket, or with a non-ASCII character (DeepSeek's bars). */
static bool begins_special(char c)
{
	return c == '<' || c == '[' || (unsigned char)c >= 0xc0;
}

static bool ends_special(char c)
{
	return c == '>' || c == ']' || (unsigned char)c >= 0x80;
}

/* Return the bytes of the longest special token that is a prefix of text; 0: none. */
static size_t special_at(const char *text, const struct composite_specials *s)
{
	if (!s->is || !begins_special(*text))
		return 0;
	for (size_t n = strlen(text); n > 1; n--)
		if (ends_special(text[n - 1]) && s->is(s->user, text, n))
			return n;
	return 0;
}

void composite_put_spelled(json_t *parts, const char *text, const struct composite_specials *s)
{
	const char *from = text;
	while (text && *text) {
		const size_t n = special_at(text, s);
		if (!n && *text != '\1') {
			text++;
			continue;
		}
		if (text > from)
			json_array_append_new(parts, composite_literal(from, (size_t)(text - from)));
		json_array_append_new(parts, n ? json_pack("{s:s, s:o}", "type", "token", "text",
							   json_stringn_nocheck(text, n))
					       : composite_regex("[0-9]{1,3}"));
		text += n ? n : 1;
		from = text;
	}
	if (text > from)
		json_array_append_new(parts, composite_literal(from, (size_t)(text - from)));
}

json_t *composite_spelled(const char *text, const struct composite_specials *s)
{
	json_t *parts = json_array();
	composite_put_spelled(parts, text, s);
	return composite_sequence(parts);
}
