#include "controller/request/request_cost.h"

#include <string.h>

/* Parts of the names of all fields, in every API, that lead to a grammar or to stored data. */
static const char *const words[] = {
	"format", /* response_format; `format` of Responses and Ollama */
	"guided_",
	"structured", /* vLLM's */
	"schema",
	"grammar", /* llama.cpp's, and in other APIs' fields */
	"regex",
	"ebnf", /* SGLang's */
	"tool",
	"function", /* parameters of functions are schemas */
	"budget",   /* limit of reasoning, enforced by a grammar */
	"previous_response",
	"conversation", /* earlier turns */
};

/* Return true if a letter is written by its code (\u0041 to \u007a), as a field's name may be. */
static bool has_escaped_letter(const char *p, size_t n)
{
	const char *end = p + n;
	while ((p = memmem(p, (size_t)(end - p), "\\u00", 4))) {
		p += 4;
		if (p < end && *p >= '4' && *p <= '7')
			return true;
	}
	return false;
}

bool request_is_costly(const char *body, size_t n)
{
	for (size_t i = 0; n && i < sizeof words / sizeof *words; i++)
		if (memmem(body, n, words[i], strlen(words[i])))
			return true;
	return n && has_escaped_letter(body, n);
}
