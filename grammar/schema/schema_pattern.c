/* schema_pattern.c - pattern and format: regular expressions and their matches. */
#include "grammar/regex.h"
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <string.h>
#include <xxhash.h>

struct pattern {
	struct pattern *next;
	const char *text;
	int node;
};

int pattern_node(struct schema *s, const json_t *owner, const char *text)
{
	const uint64_t h = XXH3_64bits(text, strlen(text));
	struct pattern *first = map_get(&s->patterns, h);
	for (struct pattern *p = first; p; p = p->next)
		if (!strcmp(p->text, text))
			return p->node;
	const struct regex_options search = {.search = true};
	int node = regex_parse(s->ast, text, strlen(text), &search);
	if (node == AST_FAILED) {
		struct why why;
		const int rc = ast_check(s->ast, &why);
		schema_error(s, rc == -EAGAIN ? rc : -ENOTSUP, owner, "the pattern \"%.100s\": %s", text,
			     why.text);
		return AST_FAILED;
	}
	struct pattern *p = schema_alloc(s, sizeof *p);
	*p = (struct pattern){.next = first, .text = text, .node = node};
	map_put(&s->patterns, h, p);
	return node;
}

int pattern_matches(struct schema *s, const json_t *owner, const char *pattern, const char *p, size_t n)
{
	int node = pattern_node(s, owner, pattern);
	return node == AST_FAILED ? s->err : regular_accepts(s, node, p, n);
}
