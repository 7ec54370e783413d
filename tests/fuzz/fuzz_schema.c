/* fuzz_schema.c - arbitrary JSON as a schema: refused with a reason that begins with the path, or a grammar
 * that accepts only JSON.  A text is made from allowed bytes, which the input chooses, and ends within a
 * limit.
 * clang -fsanitize=fuzzer,address,undefined */
#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/schema/schema.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { TEXT_MAX = 300, SCHEMA_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Build a text from bytes that the grammar allows; the input chooses which byte is tried first. */
static void follow(struct grammar *g, const uint8_t *data, size_t n)
{
	struct matcher *m = matcher_new(g);
	struct why why;
	char text[TEXT_MAX + 1];
	size_t len = 0;
	bool end = false;
	for (; len < TEXT_MAX && !end; len++) {
		unsigned b = data[len % n];
		int i = 0;
		if (matcher_can_end(m, &end) || end)
			break;
		for (; i < 256; i++, b++) {
			text[len] = (char)b;
			if (matcher_accept_bytes(m, &text[len], 1, NULL) == 0)
				break;
		}
		if (i == 256)
			break;
	}
	if (end) {
		json_t *value;
		assert(json_parse(text, len, &value, &why) == 0 || strstr(why.text, "too big") ||
		       strstr(why.text, "NUL") || strstr(why.text, "real number"));
		json_decref(value);
	}
	matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct schema_options options = {.space = SCHEMA_SPACE_FLEXIBLE,
					       .max_space = 2,
					       .any_order = n % 2 ? 10 : 0,
					       .max_steps = 20000};
	const struct ast_limits tree = {.nodes = 50000, .rules = 5000};
	const struct grammar_limits limits = {.state_bytes = 8 << 20, .depth = 50};
	struct why why = {""};
	json_t *schema;
	int node;
	if (n < 1 || n > SCHEMA_MAX || json_parse((const char *)data, n, &schema, &why))
		return 0;
	struct ast *a = ast_new(&tree);
	struct grammar *g = NULL;
	why.text[0] = 0;
	int rc = schema_node(a, schema, &options, &node, &why);
	assert(rc == 0 || why.text[0]);
	if (rc == 0) {
		ast_start(a, node);
		rc = grammar_new(a, NULL, &limits, &g, &why);
		assert(rc == 0 || why.text[0]);
	}
	ast_free(a);
	json_decref(schema);
	if (g)
		follow(g, data, n);
	grammar_free(g);
	return 0;
}
