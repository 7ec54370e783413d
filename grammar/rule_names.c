/* rule_names.c - a hash table; its keys are the names in the tree. */
#include "grammar/rule_names.h"
#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 200 };

void rule_names_fini(struct rule_names *r)
{
	free(r->table);
	*r = (struct rule_names){0};
}

static size_t hash(const char *p, size_t n)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 16777619u;
	return h ^ h >> 16;
}

/* Return the slot of the name, or the free slot for it. */
static size_t slot(const struct rule_names *r, const struct ast *a, const char *p, size_t n)
{
	size_t i = hash(p, n) & (r->cap - 1);
	for (; r->table[i]; i = (i + 1) & (r->cap - 1)) {
		const char *name = ast_rule_name(a, r->table[i] - 1);
		if (strncmp(name, p, n) == 0 && name[n] == 0)
			break;
	}
	return i;
}

int rule_names_find(const struct rule_names *r, const struct ast *a, const char *p, size_t n)
{
	return r->cap ? r->table[slot(r, a, p, n)] - 1 : -1;
}

static void grow(struct rule_names *r, const struct ast *a)
{
	struct rule_names old = *r;
	r->cap = old.cap ? 2 * old.cap : 64;
	r->table = xcalloc(r->cap, sizeof *r->table);
	for (size_t i = 0; i < old.cap; i++)
		if (old.table[i]) {
			const char *name = ast_rule_name(a, old.table[i] - 1);
			r->table[slot(r, a, name, strlen(name))] = old.table[i];
		}
	free(old.table);
}

int rule_names_get(struct rule_names *r, struct ast *a, const char *p, size_t n)
{
	char name[NAME_MAX_BYTES + 1];
	if (n > NAME_MAX_BYTES)
		return ast_fail(a, -E2BIG, "a rule's name has more than %d bytes", NAME_MAX_BYTES);
	if (2 * (r->n + 1) > r->cap)
		grow(r, a);
	size_t i = slot(r, a, p, n);
	if (r->table[i])
		return r->table[i] - 1;
	memcpy(name, p, n);
	name[n] = 0;
	int rule = ast_rule(a, name);
	if (rule == AST_FAILED)
		return AST_FAILED;
	r->table[i] = rule + 1;
	r->n++;
	return rule;
}
