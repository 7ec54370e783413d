/* Masks, compared token by token with a matcher that tries each token's bytes; real and random
 * vocabularies. */
#include "tests/unit/grammar/grammar_help.h"
#include "tests/unit/grammar/vocab_help.h"
#include "grammar/char_set.h"
#include "grammar/expr_impl.h"
#include "grammar/regex.h"
#include "grammar/source.h"
#include "base/alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool allowed(const uint32_t *mask, uint32_t token)
{
	return mask[token >> 5] >> (token & 31) & 1;
}

/* Return whether the token's bytes may follow, by a grammar without masks; its matcher m is in the same
 * state. */
static bool may_follow(const struct lexicon *v, struct matcher *m, uint32_t token)
{
	bool end;
	if (v->kinds[token] == LEXICON_END) {
		cr_assert_eq(matcher_can_end(m, &end), 0);
		return end;
	}
	size_t n = v->at[token + 1] - v->at[token];
	if (v->kinds[token] == LEXICON_CONTROL || n == 0)
		return false;
	int rc = matcher_accept_bytes(m, v->bytes + v->at[token], n, NULL);
	cr_assert(rc == 0 || rc == -EINVAL, "%s", matcher_error(m));
	if (rc == 0)
		matcher_rollback(m, 1);
	return rc == 0;
}

/* Compare each token of a mask; return the number of allowed tokens. */
static uint32_t compare(const struct lexicon *v, struct matcher *m, struct matcher *slow, const char *at)
{
	const uint32_t *mask;
	uint32_t n = 0, n_wrong = 0;
	cr_assert_eq(matcher_mask(m, &mask), 0);
	for (uint32_t t = 0; t < v->n_tokens; t++) {
		bool is = allowed(mask, t), want = may_follow(v, slow, t);
		n += is;
		if (is != want && n_wrong++ < 3)
			cr_expect(false, "behind %s: token %" PRIu32 " \"%.*s\" is %s", at, t,
				  (int)(v->at[t + 1] - v->at[t]), v->bytes + v->at[t],
				  is ? "allowed" : "not allowed");
	}
	return n;
}

/* Compare the masks at every byte of each text for a tree, which is freed. NULL ends the texts. */
static void follow_tree(const struct lexicon *v, struct ast *a, int node, const char *name,
			const char *const *texts)
{
	struct grammar *g, *bytes;
	struct why why = {""};
	ast_start(a, node);
	cr_assert_eq(grammar_new(a, v, NULL, &g, &why), 0, "%s", why.text);
	cr_assert_eq(grammar_new(a, NULL, NULL, &bytes, &why), 0, "%s", why.text);
	ast_free(a);
	for (; *texts; texts++) {
		struct matcher *m = matcher_new(g), *slow = matcher_new(bytes);
		for (const char *p = *texts;; p++) {
			char at[300];
			snprintf(at, sizeof at, "%.60s: %.*s", name, (int)(p - *texts), *texts);
			compare(v, m, slow, at);
			if (!*p)
				break;
			cr_assert_eq(matcher_accept_bytes(m, p, 1, NULL), 0, "%s", at);
			cr_assert_eq(matcher_accept_bytes(slow, p, 1, NULL), 0);
		}
		matcher_free(m);
		matcher_free(slow);
	}
	grammar_free(g);
	grammar_free(bytes);
}

static int pattern_node(struct ast *a, const char *pattern)
{
	return regex_parse(a, pattern, strlen(pattern), NULL);
}

static void follow(const struct lexicon *v, const char *pattern, const char *const *texts)
{
	struct ast *a = ast_new(NULL);
	follow_tree(v, a, pattern_node(a, pattern), pattern, texts);
}

static const char string_body[] = "\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4})*\"";

static void follow_all(const struct lexicon *v)
{
	char pattern[1000];
	snprintf(pattern, sizeof pattern, "\\{\"name\": %s, \"n\": -?(0|[1-9][0-9]*)(\\.[0-9]+)?\\}",
		 string_body);
	follow(v, pattern,
	       (const char *const[]){"{\"name\": \"J\xc3\xb6 \\\"\\u00e4\", \"n\": -12.5}", NULL});
	follow(v, "\"[^\"\\\\\\x00-\\x1f]{3,20}\"",
	       (const char *const[]){"\"ab cdefg \xe4\xb8\xad\xf0\x9f\x98\x80 ijklm\"", NULL});
	follow(v, "[a-z]{2,9}(-[A-Z0-9]+){1,100}", (const char *const[]){"abcdef-X1-YY-Z", NULL});
	follow(v, "(.|\\n){5,50}end", (const char *const[]){"a b\tc\n\xf0\x9f\x98\x80 xyz end", NULL});
	follow(v, "(true|false|null| {0,40}\\[( ?\\d{1,3},)*\\])",
	       (const char *const[]){"  [123, 4,]", "true", NULL});
	follow(v, "a{40,50}b", (const char *const[]){"aaaaaaaaaaa", NULL});
	follow(v, "a{0,1000}( {30,}|b)*",
	       (const char *const[]){"aaab", "a                                  ", NULL});
}

Test(mask, tokens_of_a_random_vocabulary_are_as_their_bytes, .timeout = 240)
{
	uint64_t seed = 20261123;
	for (int i = 0; i < 3; i++) {
		struct lexicon *v = help_random_lexicon(&seed);
		follow_all(v);
		lexicon_free(v);
	}
}

static void real(const char *name)
{
	struct lexicon *v = help_real_lexicon(name);
	if (!v)
		cr_skip_test("no data");
	follow_all(v);
	lexicon_free(v);
}

Test(mask, tokens_of_qwen3_are_as_their_bytes, .timeout = 240)
{
	real("qwen3");
}

Test(mask, tokens_of_llama3_are_as_their_bytes, .timeout = 240)
{
	real("llama3");
}

/* Follow an object key that matches `all` but not `few`: members without a schema of their own, next to
 * members with one. */
static void follow_names(const struct lexicon *v, const char *all, const char *few, const char *text)
{
	struct ast *a = ast_new(NULL);
	int other = ast_minus(a, pattern_node(a, all), pattern_node(a, few));
	int names = ast_alt2(a, ast_seq2(a, other, pattern_node(a, "\": [0-9]")),
			     pattern_node(a, "(name|namespace|note)\": true"));
	follow_tree(v, a, ast_seq3(a, ast_text(a, "\""), names, ast_text(a, ", ")), few,
		    (const char *const[]){text, NULL});
}

Test(mask, runs_of_a_part_are_runs_of_the_whole, .timeout = 240)
{
	uint64_t seed = 11;
	struct lexicon *v = help_random_lexicon(&seed);
	follow_names(v, "[ !#-~]*", "name|namespace|note", "\"namesp");
	follow_names(v, "[a-z]{0,9}", "name|namespace|note", "\"namesp");
	follow_names(v, "[a-z0-9]*", "[a-z]*[0-9]*", "\"ab7c");
	follow_names(v, "[a-z0-9]*", "[a-z0-9]*c[a-z0-9]*", "\"ab7");
	follow_names(v, "[ !#-~\xc3\xa0-\xc3\xbf]*", "(name)?[ -~]*", "\"x");
	follow_names(v, "[a-z]{0,2}([a-z]{3})*", "name", "\"abcd");
	lexicon_free(v);
}

/* Return a random expression, nested up to `depth`, with recursive rules among its leaves. */
static int random_node(struct ast *a, uint64_t *seed, int depth, int rule)
{
	static const char *const texts[] = {"a", "b", "ab", "c ", "\"", "{\"", "0", "true"};
	static const struct char_range ranges[][2] = {{{'a', 'c'}, {'0', '9'}},
						      {{' ', '~'}, {0xa0, 0x10ffff}},
						      {{'a', 'z'}, {'x', 'z'}},
						      {{0xe4, 0xe4}, {'"', '"'}}};
	int kids[3];
	uint64_t r = help_random(seed);
	uint8_t any_byte[32];
	memset(any_byte, 0xff, sizeof any_byte);
	unsigned kind = depth ? r % 12 : r % 4;
	for (int i = 0; i < 3 && kind >= 4; i++)
		kids[i] = random_node(a, seed, depth - 1, kind >= 10 ? -1 : rule);
	r >>= 8;
	switch (kind) {
	case 0:
	case 1:
		return ast_text(a, texts[r % 8]);
	case 2:
		return ast_chars(a, ranges[r % 4], 2, r & 64);
	case 3:
		return rule >= 0 && r % 3 == 0 ? ast_ref(a, rule) : ast_empty(a);
	case 4:
	case 5:
		return ast_seq(a, kids, 2 + r % 2);
	case 6:
	case 7:
		return ast_alt(a, kids, 2 + r % 2);
	case 8:
		return ast_repeat(a, kids[0], (int64_t)(r % 3),
				  (int64_t)(r % 3 + r / 8 % 40) - 1 < (int64_t)(r % 3)
					  ? -1
					  : (int64_t)(r % 3 + r / 8 % 40) - 1);
	case 9:
		return ast_repeat(a, kids[0], 0, -1);
	case 11: /* every byte is one unit */
		return ast_counted(a, kids[0], ast_set(a, any_byte), (int64_t)(r % 2),
				   (int64_t)(1 + r / 8 % 90));
	default:
		return r & 1 ? ast_minus(a, kids[0], kids[1]) : ast_and(a, kids[0], kids[1]);
	}
}

/* Follow a random text of allowed tokens and compare the masks on the way. A matcher with empty caches
 * accepts the bytes again. */
static bool random_walk(const struct ast *a, const struct lexicon *v, uint64_t *seed)
{
	struct grammar *g, *bytes;
	struct why why = {""};
	if (grammar_new(a, v, &(struct grammar_limits){.state_bytes = 4 << 20, .mask_bytes = 1}, &g, &why))
		return false;
	cr_assert_eq(grammar_new(a, NULL, NULL, &bytes, &why), 0, "%s", why.text);
	struct matcher *m = matcher_new(g), *slow = matcher_new(bytes);
	for (int step = 0; step < 12; step++) {
		const uint32_t *mask;
		uint32_t n = compare(v, m, slow, "a random text");
		cr_assert(n > 0, "nothing may follow");
		cr_assert_eq(matcher_mask(m, &mask), 0);
		uint32_t pick = (uint32_t)(help_random(seed) % n), t = 0;
		for (;; t++)
			if (allowed(mask, t) && pick-- == 0)
				break;
		cr_assert_eq(matcher_accept(m, t), 0);
		if (matcher_ended(m))
			break;
		cr_assert_eq(matcher_accept_bytes(slow, v->bytes + v->at[t], v->at[t + 1] - v->at[t], NULL),
			     0);
	}
	matcher_free(m);
	matcher_free(slow);
	grammar_free(g);
	grammar_free(bytes);
	return true;
}

Test(mask, random_grammars_have_the_masks_of_their_bytes, .timeout = 240)
{
	uint64_t seed = 7;
	struct lexicon *v = help_random_lexicon(&seed);
	int n = 0;
	for (int i = 0; i < 150; i++) {
		struct ast *a = ast_new(NULL);
		int r = ast_rule(a, "r");
		int node = random_node(a, &seed, 3, r);
		ast_rule_set(a, r, random_node(a, &seed, 3, r));
		ast_start(a, node);
		n += random_walk(a, v, &seed);
		ast_free(a);
	}
	cr_expect(n > 75, "%d of 150 have a text", n);
	lexicon_free(v);
}

/* A mask depends neither on the states made before nor on the caches. */
/* Follow the text byte by byte, with a mask before each; return the number of states. */
static size_t states_along(struct ast *a, int start, const struct lexicon *v, const char *text)
{
	struct grammar *g;
	struct grammar_counts c;
	struct why why = {""};
	ast_start(a, start);
	cr_assert_eq(grammar_new(a, v, NULL, &g, &why), 0, "%s", why.text);
	ast_free(a);
	struct matcher *m = matcher_new(g);
	for (const char *p = text; *p; p++) {
		const uint32_t *mask;
		cr_assert_eq(matcher_mask(m, &mask), 0);
		cr_assert_eq(matcher_accept_bytes(m, p, 1, NULL), 0, "%s", p);
	}
	grammar_counts(g, &c);
	matcher_free(m);
	grammar_free(g);
	return c.n_states;
}

/* Words with a length limit: far from the limit, masks equal those of unlimited words. */
Test(mask, a_far_bound_of_a_length_makes_no_states)
{
	uint64_t seed = 5;
	struct lexicon *v = help_random_lexicon(&seed);
	char text[600];
	size_t states[2];
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = i % 3 == 2 ? ' ' : 'a';
	text[sizeof text - 1] = '\0';
	for (int bounded = 0; bounded < 2; bounded++) {
		struct ast *a = ast_new(NULL);
		const struct char_range any = {' ', '~'};
		const int words = regex_parse(a, "([a-z]+ +)*[a-z ]+", 18, NULL),
			  unit = ast_chars(a, &any, 1, false);
		states[bounded] =
			states_along(a, bounded ? ast_counted(a, words, unit, 0, 5000) : words, v, text);
	}
	cr_expect_leq(states[1], states[0] + 2 * sizeof text, "%zu, %zu states", states[0], states[1]);
	lexicon_free(v);
}

/* The shortest alternative of a repeat may be an intersection, which has no known length. */
Test(mask, what_is_repeated_may_be_short_without_showing_it)
{
	static const char as[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", bs[] = "bcbcbcbcbcbcbcbcbcbcbcbcbcbc";
	struct lexicon_token tokens[] = {{.bytes = as, .n = 20, .kind = LEXICON_TEXT},
					 {.bytes = as, .n = 21, .kind = LEXICON_TEXT},
					 {.bytes = as, .n = 28, .kind = LEXICON_TEXT},
					 {.bytes = bs, .n = 20, .kind = LEXICON_TEXT},
					 {.bytes = bs, .n = 22, .kind = LEXICON_TEXT}};
	static const struct {
		bool hidden;
		const char *other;
		int max;
		uint32_t allowed; /* bit mask */
	} cases[] = {{true, "bcdefghijk", 20, 1}, {false, "bc", 10, 8}, {false, "bc", 11, 24}};
	struct lexicon *v;
	cr_assert_eq(lexicon_new(tokens, 5, &v, NULL), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ast *a = ast_new(NULL);
		struct grammar *g;
		const uint32_t *mask;
		int body = ast_text(a, cases[i].other);
		if (cases[i].hidden)
			body = ast_alt2(
				a, body,
				ast_and(a, regex_parse(a, "a|xx", 4, NULL), regex_parse(a, "a|yy", 4, NULL)));
		ast_start(a, ast_repeat(a, body, 0, cases[i].max));
		cr_assert_eq(grammar_new(a, v, NULL, &g, NULL), 0);
		ast_free(a);
		struct matcher *m = matcher_new(g);
		cr_assert_eq(matcher_mask(m, &mask), 0);
		cr_expect_eq(mask[0], cases[i].allowed, "case %zu: %x", i, mask[0]);
		matcher_free(m);
		grammar_free(g);
	}
	lexicon_free(v);
}

/* A minimum longer than all tokens is cut for the search, but must not let an output end early. */
Test(mask, a_minimum_beyond_long_tokens_is_not_met_by_one)
{
	static const char bytes[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
	struct lexicon_token tokens[] = {{.bytes = bytes, .n = 41, .kind = LEXICON_TEXT},
					 {.bytes = bytes, .n = 40, .kind = LEXICON_TEXT},
					 {.bytes = bytes, .n = 1, .kind = LEXICON_TEXT},
					 {.bytes = bytes + 40, .n = 1, .kind = LEXICON_TEXT}};
	struct lexicon *v;
	cr_assert_eq(lexicon_new(tokens, 4, &v, NULL), 0);
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	const uint32_t *mask;
	ast_start(a, regex_parse(a, "a{500,}b", 8, NULL));
	cr_assert_eq(grammar_new(a, v, NULL, &g, NULL), 0);
	ast_free(a);
	struct matcher *m = matcher_new(g);
	for (int i = 0; i < 12; i++) {
		cr_assert_eq(matcher_mask(m, &mask), 0);
		cr_expect_eq(mask[0], 6, "after %d tokens: %x", i, mask[0]);
		cr_assert_eq(matcher_accept(m, 1), 0);
	}
	cr_assert_eq(matcher_mask(m, &mask), 0);
	cr_expect_eq(mask[0], 7, "480 are there: %x", mask[0]);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

/* The common start of alternatives is followed only once. */
Test(mask, what_alternatives_share_is_followed_once)
{
	uint64_t seed = 6;
	struct lexicon *v = help_random_lexicon(&seed);
	size_t exprs[2];
	for (int many = 0; many < 2; many++) {
		struct ast *a = ast_new(NULL);
		struct grammar *g;
		struct grammar_counts before, after;
		int kids[200];
		const int n_kids = many ? 200 : 20;
		for (int i = 0; i < n_kids; i++) {
			char end[16];
			const int n = snprintf(end, sizeof end, "-%d;", i);
			/* {"a number of names":xxx-7;} */
			const int inner = ast_seq3(a, ast_text(a, "\"a number of names\":"),
						   ast_repeat(a, ast_text(a, "x"), 0, -1),
						   ast_literal(a, end, (size_t)n));
			kids[i] = ast_seq3(a, ast_text(a, "{"), inner, ast_text(a, "}"));
		}
		ast_start(a, ast_alt(a, kids, (size_t)n_kids));
		cr_assert_eq(grammar_new(a, v, NULL, &g, NULL), 0);
		ast_free(a);
		struct matcher *m = matcher_new(g);
		grammar_counts(g, &before);
		cr_assert_eq(matcher_accept_bytes(m, "{\"a number of names\":xxx",
						  strlen("{\"a number of names\":xxx"), NULL),
			     0);
		grammar_counts(g, &after);
		exprs[many] = after.n_exprs - before.n_exprs;
		cr_assert_eq(matcher_accept_bytes(m, "-7;}", 4, NULL), 0);
		matcher_free(m);
		grammar_free(g);
	}
	cr_expect_leq(exprs[1], exprs[0] + 50, "%zu, %zu expressions", exprs[0], exprs[1]);
	lexicon_free(v);
}

Test(mask, a_rebuilt_matcher_has_the_same_masks)
{
	uint64_t seed = 99;
	struct lexicon *v = help_random_lexicon(&seed);
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	ast_start(a, ast_repeat(a, regex_parse(a, string_body, strlen(string_body), NULL), 0, -1));
	cr_assert_eq(grammar_new(a, v, &(struct grammar_limits){.mask_bytes = 1}, &g, NULL), 0);
	ast_free(a);
	struct matcher *m = matcher_new(g), *again = matcher_new(g);
	uint32_t tokens[100], n = 0;
	const uint32_t *mask;
	uint32_t *kept = xcalloc(v->n_words, sizeof *kept);
	while (n < 100) {
		cr_assert_eq(matcher_mask(m, &mask), 0);
		memcpy(kept, mask, v->n_words * sizeof *kept);
		matcher_rollback(again, matcher_length(again));
		for (uint32_t i = 0; i < n; i++)
			cr_assert_eq(matcher_accept(again, tokens[i]), 0);
		cr_assert_eq(matcher_mask(again, &mask), 0);
		cr_assert_eq(memcmp(kept, mask, v->n_words * sizeof *kept), 0);
		uint32_t t = (uint32_t)(help_random(&seed) % v->n_tokens);
		while (!allowed(kept, t) || v->kinds[t] == LEXICON_END)
			t = (t + 1) % v->n_tokens;
		cr_assert_eq(matcher_accept(m, t), 0);
		tokens[n++] = t;
	}
	free(kept);
	matcher_free(m);
	matcher_free(again);
	grammar_free(g);
	lexicon_free(v);
}

Test(mask, the_end_token_is_allowed_where_the_text_may_end)
{
	uint64_t seed = 5;
	struct lexicon *v = help_random_lexicon(&seed);
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	const uint32_t *mask;
	uint32_t end = v->ends[0];
	ast_start(a, regex_parse(a, "ab?", 3, NULL));
	cr_assert_eq(grammar_new(a, v, NULL, &g, NULL), 0);
	ast_free(a);
	struct matcher *m = matcher_new(g);
	cr_expect_eq(matcher_accept(m, end), -EINVAL);
	cr_expect_eq(matcher_accept(m, 'a'), 0);
	cr_expect_eq(matcher_mask(m, &mask), 0);
	cr_expect(allowed(mask, end) && allowed(mask, 'b') && !allowed(mask, 'a'));
	cr_expect_eq(matcher_accept(m, end), 0);
	cr_expect(matcher_ended(m));
	cr_expect_eq(matcher_accept(m, 'b'), -EINVAL);
	cr_expect_eq(matcher_mask(m, &mask), 0);
	for (uint32_t w = 0; w < v->n_words; w++)
		cr_expect_eq(mask[w], 0);
	matcher_rollback(m, 1);
	cr_expect_eq(matcher_accept(m, 'b'), 0);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

Test(mask, control_and_empty_tokens_are_never_taken)
{
	uint64_t seed = 5;
	struct lexicon *v = help_random_lexicon(&seed);
	struct ast *a = ast_new(NULL);
	struct grammar *g;
	uint32_t n_control = 0, n_empty = 0;
	ast_start(a, regex_parse(a, "[^]*", 4, NULL));
	cr_assert_eq(grammar_new(a, v, NULL, &g, NULL), 0);
	ast_free(a);
	struct matcher *m = matcher_new(g);
	for (uint32_t t = 0; t < v->n_tokens; t++) {
		const bool control = v->kinds[t] == LEXICON_CONTROL,
			   empty = v->kinds[t] == LEXICON_TEXT && v->at[t + 1] == v->at[t];
		n_control += control;
		n_empty += empty;
		if (control || empty)
			cr_expect_eq(matcher_accept(m, t), -EINVAL, "%u", t);
	}
	cr_expect(n_control && n_empty);
	cr_expect_eq(matcher_accept(m, v->n_tokens), -EINVAL);
	cr_expect_eq(matcher_accept(m, UINT32_MAX), -EINVAL);
	cr_expect_eq(matcher_length(m), 0);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

/* Rules that each end in the next rule form one sequence: neither its clamp nor its liveness is computed by
 * recursion. */
Test(mask, a_sequence_through_many_rules_is_not_walked_on_the_stack)
{
	enum { N = 150000 };
	struct buf text = {0};
	uint64_t seed = 5;
	const uint32_t *mask;
	struct why why = {""};
	struct ast *a;
	buf_puts(&text, "root ::= r0\n");
	for (int i = 0; i < N; i++)
		buf_printf(&text, "r%d ::= \"a\" r%d\n", i, i + 1);
	buf_printf(&text, "r%d ::= \"x\"{0,1000}\n", N);
	cr_assert_eq(grammar_parse(GRAMMAR_GBNF, text.p, text.len, NULL, &a, &why), 0, "%s", why.text);
	struct lexicon *v = help_random_lexicon(&seed);
	struct grammar *g = help_grammar(a, v);
	struct matcher *m = matcher_new(g);
	cr_expect_eq(matcher_mask(m, &mask), 0);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
	buf_fini(&text);
}

/* In r | r | ... one r is kept, and in [\W\W...] one \W. */
Test(mask, what_stands_beside_itself_takes_no_room)
{
	enum { N = 5000 };
	struct exprs *x = exprs_new(64 << 20);
	struct char_set s = {0};
	uint32_t kids[N];
	for (int i = 0; i < N; i++) {
		char digits[8];
		kids[i] = expr_literal(x, digits, (size_t)snprintf(digits, sizeof digits, "%d", i));
	}
	uint32_t r = expr_alt(x, kids, N);
	for (int i = 0; i < N; i++)
		kids[i] = r;
	cr_expect_eq(expr_alt(x, kids, N), r);
	cr_expect_lt(x->cap_stack, 8 * N);
	exprs_free(x);
	for (int i = 0; i < 100000; i++)
		char_set_add_class(&s, 'W');
	cr_expect_lt(s.cap, 20000);
	char_set_sort(&s);
	cr_expect_eq(s.n, 5);
	char_set_fini(&s);
}

/* ---- bounded work ---- */

static struct ast *parse(enum grammar_language language, const char *text)
{
	struct ast *a;
	struct why why = {""};
	cr_assert_eq(grammar_parse(language, text, strlen(text), NULL, &a, &why), 0, "%s", why.text);
	return a;
}

/* A string of at least eight characters that matches none of the end patterns: continuations are searched for
 * in the product of the patterns. */
static struct ast *product(void)
{
	static const char schema[] =
		"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":8,\"allOf\":["
		"{\"not\":{\"pattern\":\"a.{3}$\"}},{\"not\":{\"pattern\":\"b.{4}$\"}},"
		"{\"not\":{\"pattern\":\"c.{5}$\"}},{\"not\":{\"pattern\":\"d.{6}$\"}}]}},\"required\":["
		"\"a\"]}";
	return parse(GRAMMAR_SCHEMA, schema);
}

static bool count_and_stop(void *n)
{
	++*(int *)n;
	return false;
}

static bool count_and_go_on(void *n)
{
	++*(int *)n;
	return true;
}

/* Make the mask in as many attempts of `units` of work as needed; return their number. */
static int mask_in_parts(struct grammar *g, struct matcher *m, uint64_t units, const uint32_t **mask)
{
	int n = 0, asked = 0, rc;
	do {
		grammar_allow(g, (struct grammar_work){units << n / 4, count_and_stop, &asked, NULL});
		rc = matcher_mask(m, mask);
		cr_assert(rc == 0 || rc == -EAGAIN, "%d", rc);
		cr_assert_eq(asked, n + (rc == -EAGAIN), "asked once for each attempt that ends early");
		n += rc == -EAGAIN;
		cr_assert_lt(n, 200);
	} while (rc);
	return n;
}

Test(mask, work_that_ends_early_changes_no_mask, .timeout = 240)
{
	static const char text[] = "{\"a\":\"abxcdbbx xxyz\"}";
	static const uint64_t units[] = {1, 50, 700, 20000};
	uint64_t seed = 20261129;
	struct lexicon *v = help_random_lexicon(&seed);
	const size_t bytes = v->n_words * sizeof(uint32_t);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		struct grammar *g = help_grammar(product(), v), *undisturbed = help_grammar(product(), v);
		struct matcher *m = matcher_new(g), *want = matcher_new(undisturbed);
		int ended = 0;
		for (const char *p = text;; p++) {
			const uint32_t *a, *b;
			ended += mask_in_parts(g, m, units[i], &a);
			cr_assert_eq(matcher_mask(want, &b), 0);
			cr_assert_eq(memcmp(a, b, bytes), 0, "%" PRIu64 " units, behind %.*s", units[i],
				     (int)(p - text), text);
			if (!*p)
				break;
			grammar_allow(g, (struct grammar_work){0});
			cr_assert_eq(matcher_accept_bytes(m, p, 1, NULL), 0);
			cr_assert_eq(matcher_accept_bytes(want, p, 1, NULL), 0);
		}
		cr_assert_gt(ended, 0, "%" PRIu64 " units end nothing: this tests nothing", units[i]);
		matcher_free(m);
		matcher_free(want);
		grammar_free(g);
		grammar_free(undisturbed);
	}
	lexicon_free(v);
}

/* Interrupted work leaves nothing behind that spoils a later mask. The work is stopped after each unit once,
 * also while a rule's callers are reduced to those that the longest token can reach. */
Test(mask, work_that_ends_anywhere_leaves_nothing_wrong)
{
	static const char gbnf[] = "root ::= \"[\" (root | \"a\"{1,80}) \"]\" (\"a\" | \"7\"){0,90}";
	static const char text[] = "[[[aa";
	enum { END = 2000 };
	uint64_t seed = 20261129, units = 1;
	struct lexicon *v = help_random_lexicon(&seed);
	struct grammar *undisturbed = help_grammar(parse(GRAMMAR_GBNF, gbnf), v);
	struct matcher *want = matcher_new(undisturbed);
	const uint32_t *a, *b;
	cr_assert_eq(matcher_accept_bytes(want, text, sizeof text - 1, NULL), 0);
	cr_assert_eq(matcher_mask(want, &b), 0);
	for (int rc = -EAGAIN; rc && units < END; units++) {
		struct grammar *g = help_grammar(parse(GRAMMAR_GBNF, gbnf), v);
		struct matcher *m = matcher_new(g);
		cr_assert_eq(matcher_accept_bytes(m, text, sizeof text - 1, NULL), 0);
		grammar_allow(g, (struct grammar_work){.units = units});
		rc = matcher_mask(m, &a);
		grammar_allow(g, (struct grammar_work){0});
		cr_assert_eq(matcher_mask(m, &a), 0);
		cr_expect_eq(memcmp(a, b, v->n_words * sizeof *a), 0, "after %" PRIu64 " units", units);
		matcher_free(m);
		grammar_free(g);
	}
	cr_assert_lt(units, END);
	cr_assert_gt(units, 10);
	matcher_free(want);
	grammar_free(undisturbed);
	lexicon_free(v);
}

Test(mask, a_token_is_not_taken_where_its_work_ends)
{
	uint64_t seed = 1;
	struct lexicon *v = help_random_lexicon(&seed);
	struct grammar *g = help_grammar(product(), v);
	struct matcher *m = matcher_new(g);
	cr_assert_eq(matcher_accept_bytes(m, "{\"a\":\"", 6, NULL), 0);
	grammar_allow(g, (struct grammar_work){.units = 1});
	cr_assert_eq(matcher_accept_bytes(m, "xxxxxx", 6, NULL), -EAGAIN);
	cr_assert_eq(matcher_length(m), 1);
	grammar_allow(g, (struct grammar_work){0});
	cr_assert_eq(matcher_accept_bytes(m, "xxxxxx", 6, NULL), 0);
	cr_assert_eq(matcher_length(m), 2);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

Test(mask, work_goes_on_while_it_may)
{
	uint64_t seed = 1;
	int asked = 0;
	struct lexicon *v = help_random_lexicon(&seed);
	struct grammar *g = help_grammar(product(), v);
	struct matcher *m = matcher_new(g);
	const uint32_t *mask;
	grammar_allow(g, (struct grammar_work){100, count_and_go_on, &asked, NULL});
	cr_assert_eq(matcher_accept_bytes(m, "{\"a\":\"a", 7, NULL), 0);
	cr_assert_eq(matcher_mask(m, &mask), 0);
	cr_assert_gt(asked, 1);
	matcher_free(m);
	grammar_free(g);
	lexicon_free(v);
}

Test(mask, a_compilation_is_no_grammar_where_its_work_ends)
{
	uint64_t seed = 1;
	struct lexicon *v = help_random_lexicon(&seed);
	const struct grammar_limits limits = {.work = {.units = 1}};
	struct ast *a = product();
	struct grammar *g;
	struct why why = {""};
	cr_assert_eq(grammar_new(a, v, &limits, &g, &why), -EAGAIN);
	ast_free(a);
	lexicon_free(v);
}
