#include "quant/round/keep.h"

#include "base/alloc.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256 };

bool keep_matches(char *const *patterns, size_t n, const char *name)
{
	char pattern[NAME];
	for (size_t i = 0; i < n; i++) {
		snprintf(pattern, sizeof pattern, "*%s*", patterns[i]);
		if (fnmatch(pattern, name, 0) == 0)
			return true;
	}
	return false;
}

static enum keep_by keep_one(const struct keep *k, const char *name)
{
	if (keep_matches(k->patterns, k->n_patterns, name))
		return KEEP_PATTERN;
	for (size_t i = 0; i < k->n_names; i++)
		if (strcmp(k->names[i], name) == 0)
			return KEEP_NAME;
	return KEEP_NOT;
}

enum keep_by keep_of(const struct keep *k, const char *name, int stacked)
{
	static const char mark[] = ".experts.";
	const char *at = stacked ? strstr(name, mark) : NULL;
	enum keep_by by = at ? KEEP_NOT : keep_one(k, name);
	for (int e = 0; at && by == KEEP_NOT && e < stacked; e++) {
		const char *number = at + strlen(mark);
		char other[NAME];
		snprintf(other, sizeof other, "%.*s%d%s", (int)(number - name), name, e,
			 number + strspn(number, "0123456789"));
		by = keep_one(k, other);
	}
	return by;
}

void keep_add(struct keep *k, const char *name)
{
	k->names = xrealloc(k->names, k->n_names + 1, sizeof *k->names);
	k->names[k->n_names++] = xstrdup(name);
}

void keep_fini(struct keep *k)
{
	for (size_t i = 0; i < k->n_names; i++)
		free(k->names[i]);
	free(k->names);
	k->names = NULL;
	k->n_names = 0;
}
