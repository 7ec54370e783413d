/* fuzz_jinja.c - arbitrary bytes as a chat template and its variables (JSON after the first NUL; without a
 * NUL, a chat): refused with a reason, or rendered within the limits as UTF-8, with spans of input in order
 * and within the text.  Marking input changes no byte.
 *
 *   make fuzz, or:
 *   build/asan-fuzz/fuzz/fuzz_jinja CORPUS tests/fuzz/seeds/fuzz_jinja -dict=tests/fuzz/fuzz_jinja.dict */
#include "base/json.h"
#include "controller/jinja/jinja.h"
#include "base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

enum { VARS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" Gr\xc3\xbc\xc3\x9f' "
			   "\\\"x\\\" \\n\"}, {\"role\": \"assistant\", "
			   "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", "
			   "\"arguments\": {\"a\": [1, 2.5, true]}}}]}], "
			   "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"tools\": null, \"d\": "
			   "{\"b\": 1, \"a\": [3, 1, 2]}, "
			   "\"s\": \"Hello\", \"n\": -7}";

static int render(const struct jinja *t, const json_t *context, bool input, struct jinja_result *out)
{
	static const char *const words[] = {"user", "assistant", NULL};
	static const struct jinja_limits small = {
		.steps = 100000, .memory = 8 << 20, .output = 1 << 20, .depth = 300};
	struct jinja_var vars[VARS_MAX];
	size_t n = 0;
	struct why why = {""};
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)context, name, value) if (n < VARS_MAX) vars[n++] =
		(struct jinja_var){name, value, input, "role", words};
	int rc = jinja_render(t, vars, n, &small, 1752148800000000, out, &why);
	assert(rc == 0 || why.text[0]);
	assert(rc == 0 || rc == -EINVAL || rc == -E2BIG);
	return rc;
}

static void check(const struct jinja_result *marked, const struct jinja_result *plain)
{
	size_t at = 0;
	const struct buf *text = &marked->text;
	assert(text->len <= 1 << 20);
	assert(text->len == plain->text.len &&
	       (!text->len || memcmp(text->p, plain->text.p, text->len) == 0));
	assert(plain->n_input == 0);
	assert(!text->len || utf8_valid(text->p, text->len) == text->len);
	for (size_t i = 0; i < marked->n_input; i++) {
		assert(marked->input[i].start >= at && marked->input[i].end > marked->input[i].start);
		at = marked->input[i].end;
	}
	assert(at <= text->len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint8_t *nul = memchr(data, 0, n);
	size_t n_template = nul ? (size_t)(nul - data) : n;
	const char *variables = nul ? (const char *)nul + 1 : chat;
	size_t n_variables = nul ? n - n_template - 1 : sizeof chat - 1;
	struct jinja_result marked = {0}, plain = {0};
	struct jinja *t = NULL;
	json_t *context = NULL;
	struct why why = {""};
	if (jinja_parse((const char *)data, n_template, n & 3, &t, &why)) {
		assert(why.text[0]);
		return 0;
	}
	if (json_parse(variables, n_variables, &context, NULL))
		context = NULL;
	int rc = render(t, context, true, &marked), other = render(t, context, false, &plain);
	/* Marks take memory too: the rendering with marks alone may exceed the limit. */
	assert(rc == other || rc == -E2BIG);
	if (rc == 0)
		check(&marked, &plain);
	jinja_result_fini(&marked);
	jinja_result_fini(&plain);
	json_decref(context);
	jinja_free(t);
	return 0;
}
