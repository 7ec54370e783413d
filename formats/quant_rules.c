#include "formats/quant_rules.h"

#include "base/alloc.h"
#include "base/map.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { PATTERNS_MAX = 1 << 18, NAME_MAX_BYTES = 4096, MATCH_LIMIT = 100000, HEAP_LIMIT_KB = 1024 };

enum kind { KIND_NAME, KIND_REGEX, KIND_WILDCARD, KIND_CLASS };

struct pattern {
	enum kind kind;
	int rule;
	pcre2_code *code; /* KIND_REGEX */
	char text[];
};

struct quant_rules {
	struct pattern **all; /* owned, [n] */
	int n;
	struct map names; /* of XXH3 of its text: a pattern of KIND_NAME; the first of equal names */
	pcre2_match_context *context;
	pcre2_match_data *data;
};

static struct quant_rules *rules_new(void)
{
	struct quant_rules *r = xcalloc(1, sizeof *r);
	r->context = pcre2_match_context_create(NULL);
	r->data = pcre2_match_data_create(1, NULL);
	if (!r->context || !r->data) {
		quant_rules_free(r);
		return NULL;
	}
	pcre2_set_match_limit(r->context, MATCH_LIMIT);
	pcre2_set_heap_limit(r->context, HEAP_LIMIT_KB);
	return r;
}

void quant_rules_free(struct quant_rules *r)
{
	if (!r)
		return;
	for (int i = 0; i < r->n; i++) {
		pcre2_code_free(r->all[i]->code);
		free(r->all[i]);
	}
	free(r->all);
	map_fini(&r->names);
	pcre2_match_context_free(r->context);
	pcre2_match_data_free(r->data);
	free(r);
}

static enum kind kind_of(enum quant_style style, const char *text)
{
	if (style == QUANT_STYLE_WILDCARDS)
		return strpbrk(text, "*?") ? KIND_WILDCARD : KIND_NAME;
	if (strncmp(text, "re:", 3) == 0)
		return KIND_REGEX;
	return strcmp(text, "Linear") == 0 ? KIND_CLASS : KIND_NAME;
}

static int compile(struct pattern *p, struct why *why)
{
	PCRE2_UCHAR text[128];
	PCRE2_SIZE at;
	int code;
	p->code = pcre2_compile((PCRE2_SPTR)p->text + 3, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED, &code, &at,
				NULL);
	if (p->code)
		return 0;
	pcre2_get_error_message(code, text, sizeof text);
	return err_why(why, -EINVAL, "the pattern %.80s is no regular expression: %s", p->text,
		       (const char *)text);
}

int quant_rules_add_name(struct quant_rules **r, enum quant_style style, const char *name, int rule,
			 struct why *why)
{
	const size_t n = strlen(name);
	if (!*r && !(*r = rules_new()))
		return err_why(why, -ENOMEM, "no memory for patterns");
	if (n > NAME_MAX_BYTES || (*r)->n == PATTERNS_MAX)
		return err_why(why, -EINVAL, "a pattern of %zu bytes, or more than %d patterns", n,
			       PATTERNS_MAX);
	struct pattern *p = xcalloc(1, sizeof *p + n + 1);
	p->kind = kind_of(style, name);
	p->rule = rule;
	memcpy(p->text, name, n);
	const int rc = p->kind == KIND_REGEX ? compile(p, why) : 0;
	if (rc) {
		free(p);
		return rc;
	}
	(*r)->all = xrealloc((*r)->all, (size_t)(*r)->n + 1, sizeof *(*r)->all);
	(*r)->all[(*r)->n++] = p;
	if (p->kind == KIND_NAME) {
		const uint64_t key = XXH3_64bits(name, n);
		if (rule == QUANT_RULE_IGNORED || !map_get(&(*r)->names, key))
			map_put(&(*r)->names, key, p);
	}
	return 0;
}

int quant_rules_add(struct quant_rules **r, enum quant_style style, const json_t *names, int rule,
		    struct why *why)
{
	const size_t n = json_is_array(names) ? json_array_size(names) : names != NULL;
	int rc = 0;
	for (size_t i = 0; !rc && i < n; i++) {
		const char *name = json_string_value(json_is_array(names) ? json_array_get(names, i) : names);
		rc = name ? quant_rules_add_name(r, style, name, rule, why)
			  : err_why(why, -EINVAL, "a pattern of module names is no string");
	}
	return rc;
}

/* ---- matching ---- */

/* Match * and ?, going back to the last * only: time is the product of both lengths at most. */
static bool wildcard(const char *p, const char *text)
{
	const char *star = NULL, *from = NULL;
	while (*text) {
		if (*p == '*') {
			star = p++;
			from = text;
		} else if (*p && (*p == '?' || *p == *text)) {
			p++;
			text++;
		} else if (star) {
			p = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return !*p;
}

/* Return 1: it matches; 0: it does not; -E2BIG. */
static int matches(const struct quant_rules *r, const struct pattern *p, const char *module, struct why *why)
{
	if (p->kind == KIND_WILDCARD)
		return wildcard(p->text, module);
	if (p->kind != KIND_REGEX)
		return 0;
	const int rc = pcre2_match(p->code, (PCRE2_SPTR)module, strlen(module), 0, 0, r->data, r->context);
	if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
		return rc >= 0;
	return err_why(why, -E2BIG, "the pattern %.80s takes too long on the name %.80s", p->text, module);
}

/* Find the rule of a name, without classes. */
static int find_name(const struct quant_rules *r, const char *module, struct quant_match *out,
		     struct why *why)
{
	const struct pattern *name = map_get(&r->names, XXH3_64bits(module, strlen(module)));
	*out = (struct quant_match){0};
	if (name && strcmp(name->text, module) == 0)
		*out = (struct quant_match){name->rule, name->text};
	for (int i = 0; i < r->n && out->rule != QUANT_RULE_IGNORED; i++) {
		const struct pattern *p = r->all[i];
		if (out->pattern && p->rule != QUANT_RULE_IGNORED)
			continue;
		const int rc = matches(r, p, module, why);
		if (rc < 0)
			return rc;
		if (rc)
			*out = (struct quant_match){p->rule, p->text};
	}
	return 0;
}

/* Find the rule of a module by those of its parts. */
static int find_parts(const struct quant_rules *r, const char *module, struct quant_match *out,
		      struct why *why)
{
	static const char *const fused[][4] = {{"qkv_proj", "q_proj", "k_proj", "v_proj"},
					       {"gate_up_proj", "gate_proj", "up_proj", NULL}};
	const size_t n = strlen(module);
	for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
		const size_t end = strlen(fused[i][0]);
		if (n < end || n > NAME_MAX_BYTES || strcmp(module + n - end, fused[i][0]) != 0)
			continue;
		for (int j = 1; j < 4 && fused[i][j]; j++) {
			char name[NAME_MAX_BYTES + 16];
			struct quant_match part;
			snprintf(name, sizeof name, "%.*s%s", (int)(n - end), module, fused[i][j]);
			const int rc = find_name(r, name, &part, why);
			if (rc)
				return rc;
			if (j > 1 && part.rule != out->rule)
				return err_why(
					why, -ENOTSUP,
					"%s holds the rows of several layers, and quantization_config "
					"gives them different types: %s has that of \"%s\", %s that of "
					"\"%s\"",
					module, fused[i][j - 1], out->pattern ? out->pattern : "none",
					fused[i][j], part.pattern ? part.pattern : "none");
			*out = part;
		}
	}
	return 0;
}

int quant_rules_find(const struct quant_rules *r, const char *module, struct quant_match *out,
		     struct why *why)
{
	*out = (struct quant_match){0};
	if (!r)
		return 0;
	int rc = find_name(r, module, out, why);
	if (!rc && !out->pattern)
		rc = find_parts(r, module, out, why);
	for (int i = 0; !rc && !out->pattern && i < r->n; i++)
		if (r->all[i]->kind == KIND_CLASS && r->all[i]->rule != QUANT_RULE_IGNORED)
			*out = (struct quant_match){r->all[i]->rule, r->all[i]->text};
	return rc;
}
