#include "tests/unit/grammar/grammar_help.h"
#include "grammar/regex.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

struct grammar *help_grammar(struct ast *a, const struct lexicon *v)
{
	struct grammar *g = NULL;
	struct why why = {""};
	cr_assert_eq(grammar_new(a, v, NULL, &g, &why), 0, "%s", why.text);
	ast_free(a);
	return g;
}

struct grammar *help_regex(const char *pattern, bool search)
{
	struct ast *a = ast_new(NULL);
	ast_start(a, regex_parse(a, pattern, strlen(pattern), &(struct regex_options){.search = search}));
	return help_grammar(a, NULL);
}

bool help_accepts(struct grammar *g, const char *text, size_t n)
{
	struct matcher *m = matcher_new(g);
	bool end = false;
	int rc = matcher_accept_bytes(m, text, n, NULL);
	cr_assert(rc == 0 || rc == -EINVAL, "%s: %s", text, matcher_error(m));
	if (rc == 0)
		cr_assert_eq(matcher_can_end(m, &end), 0);
	matcher_free(m);
	return end;
}

void help_texts(struct grammar *g, bool want, const char *const *texts)
{
	for (; *texts; texts++)
		cr_expect_eq(help_accepts(g, *texts, strlen(*texts)), want, "%s: not %s", *texts,
			     want ? "accepted" : "refused");
}
