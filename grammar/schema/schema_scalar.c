/* schema_scalar.c - numbers: exact ranges of decimals, multiples, values of enum.
 * A number without assertions may have an exponent; a number with bounds is written without one. */
#include "grammar/schema/decimal.h"
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For multiples of m not decided by their last digits: a state per digit and remainder. */
enum { MULTIPLE_STATES_MAX = 1500, MULTIPLE_DIGITS_MAX = 15, LAST_DIGITS_MAX = 4, REMAINDERS_MAX = 20000 };

struct bound {
	bool set, strict;
	struct decimal at;
};

struct bounds {
	struct bound low, high;
};

/* ---- digits ---- */

static int digit_set(struct schema *s, char first, char last)
{
	uint8_t set[32] = {0};
	if (first > last)
		return ast_never(s->ast);
	for (char c = first; c <= last; c++)
		set[c / 8] |= (uint8_t)(1 << c % 8);
	return ast_set(s->ast, set);
}

static int any_digits(struct schema *s, size_t min, int64_t max)
{
	return ast_repeat(s->ast, s->digit, (int64_t)min, max);
}

/* Make digits; the schema does not bound their number. */
static int free_digits(struct schema *s, size_t min)
{
	return any_digits(s, min, s->max_digits);
}

static int free_zeros(struct schema *s, size_t min)
{
	return ast_repeat(s->ast, ast_text(s->ast, "0"), (int64_t)min, s->max_digits);
}

static bool all_are(const char *p, size_t n, char c)
{
	while (n && *p == c)
		p++, n--;
	return !n;
}

/* Make strings of n digits from a to b; a or b NULL: unbounded. */
static int digits_between(struct schema *s, const char *a, const char *b, size_t n)
{
	struct ast *t = s->ast;
	if (a && all_are(a, n, '0'))
		a = NULL;
	if (b && all_are(b, n, '9'))
		b = NULL;
	if (!a && !b)
		return any_digits(s, n, (int64_t)n);
	const char x = a ? *a : '0', y = b ? *b : '9';
	const char *a2 = a ? a + 1 : NULL, *b2 = b ? b + 1 : NULL;
	if (x == y)
		return ast_seq2(t, digit_set(s, x, x), digits_between(s, a2, b2, n - 1));
	int kids[3], k = 0;
	const bool low = a && !all_are(a2, n - 1, '0'), high = b && !all_are(b2, n - 1, '9');
	if (low)
		kids[k++] = ast_seq2(t, digit_set(s, x, x), digits_between(s, a2, NULL, n - 1));
	if (x + low <= y - high)
		kids[k++] = ast_seq2(t, digit_set(s, (char)(x + low), (char)(y - high)),
				     any_digits(s, n - 1, (int64_t)n - 1));
	if (high)
		kids[k++] = ast_seq2(t, digit_set(s, y, y), digits_between(s, NULL, b2, n - 1));
	return ast_alt(t, kids, (size_t)k);
}

/* ---- unsigned whole numbers from a to b ("" is 0, b NULL: unbounded) ---- */

static int whole_between(struct schema *s, const char *a, const char *b)
{
	struct ast *t = s->ast;
	const size_t n = strlen(a), m = b ? strlen(b) : 0;
	int kids[5], k = 0;
	if (b && (m < n || (m == n && strcmp(a, b) > 0)))
		return ast_never(t);
	if (!n)
		kids[k++] = ast_text(t, "0");
	const int first = digit_set(s, '1', '9');
	if (n && b && m == n)
		return digits_between(s, a, b, n);
	if (n)
		kids[k++] = digits_between(s, a, NULL, n);
	const size_t from = n + 1;
	if (!b && s->max_digits < 0)
		kids[k++] = ast_seq2(t, first, any_digits(s, from - 1, -1));
	else if (!b && (int64_t)from <= s->max_digits)
		kids[k++] = ast_seq2(t, first, any_digits(s, from - 1, s->max_digits - 1));
	else if (m > from)
		kids[k++] = ast_seq2(t, first, any_digits(s, from - 1, (int64_t)m - 2));
	if (m) {
		char low[DECIMAL_WHOLE_MAX + 2];
		memset(low, '0', m);
		low[0] = '1';
		low[m] = 0;
		kids[k++] = digits_between(s, low, b, m);
	}
	return ast_alt(t, kids, (size_t)k);
}

/* ---- fractions: nothing, or a point and digits ---- */

static int any_fraction(struct schema *s)
{
	return ast_option(s->ast, ast_seq2(s->ast, ast_text(s->ast, "."), free_digits(s, 1)));
}

static int some_nonzero(struct schema *s)
{
	return ast_seq3(s->ast, free_digits(s, 0), digit_set(s, '1', '9'), free_digits(s, 0));
}

/* Make fractions >= f, or > f if strict. */
static int fraction_from(struct schema *s, const char *f, bool strict)
{
	struct ast *t = s->ast;
	const size_t n = strlen(f);
	if (!n && !strict)
		return any_fraction(s);
	int *kids = xcalloc(n + 1, sizeof *kids), k = 0;
	for (size_t i = 0; i < n; i++)
		if (f[i] < '9')
			kids[k++] = ast_seq3(t, ast_literal(t, f, i), digit_set(s, (char)(f[i] + 1), '9'),
					     free_digits(s, 0));
	kids[k++] = ast_seq2(t, ast_literal(t, f, n), strict ? some_nonzero(s) : free_digits(s, 0));
	int node = ast_seq2(t, ast_text(t, "."), ast_alt(t, kids, (size_t)k));
	free(kids);
	return node;
}

/* Make fractions <= f, or < f if strict. */
static int fraction_to(struct schema *s, const char *f, bool strict)
{
	struct ast *t = s->ast;
	const size_t n = strlen(f);
	if (!n && strict)
		return ast_never(t);
	const int zeros = free_zeros(s, n ? 0 : 1);
	int *kids = xcalloc(2 * n + 1, sizeof *kids), k = 0;
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			kids[k++] = ast_literal(t, f, i);
		if (f[i] > '0')
			kids[k++] = ast_seq3(t, ast_literal(t, f, i), digit_set(s, '0', (char)(f[i] - 1)),
					     free_digits(s, 0));
	}
	if (!strict)
		kids[k++] = ast_seq2(t, ast_literal(t, f, n), zeros);
	int node = ast_option(t, ast_seq2(t, ast_text(t, "."), ast_alt(t, kids, (size_t)k)));
	free(kids);
	return node;
}

/* ---- unsigned numbers ---- */

/* Make whole numbers, or with fractions all numbers, from low to high; high NULL: unbounded. */
static int size_between(struct schema *s, const struct bound *low, const struct bound *high, bool fractions)
{
	struct ast *t = s->ast;
	const struct decimal *a = &low->at, *b = high ? &high->at : NULL;
	if (!fractions)
		return whole_between(s, a->whole, b ? b->whole : NULL);
	if (b && !strcmp(a->whole, b->whole))
		return ast_seq2(t, whole_between(s, a->whole, a->whole),
				ast_and(t, fraction_from(s, a->fraction, low->strict),
					fraction_to(s, b->fraction, high->strict)));
	struct decimal next = *a, last = {0};
	int kids[3], k = 0;
	kids[k++] =
		ast_seq2(t, whole_between(s, a->whole, a->whole), fraction_from(s, a->fraction, low->strict));
	next.fraction[0] = 0;
	decimal_step(&next, 1);
	if (b) {
		last = *b;
		last.fraction[0] = 0;
		decimal_step(&last, -1);
		kids[k++] = ast_seq2(t, whole_between(s, b->whole, b->whole),
				     fraction_to(s, b->fraction, high->strict));
	}
	if (!b || decimal_cmp(&next, &last) <= 0)
		kids[k++] = ast_seq2(t, whole_between(s, next.whole, b ? last.whole : NULL), any_fraction(s));
	return ast_alt(t, kids, (size_t)k);
}

static int signed_between(struct schema *s, const struct bounds *in, bool fractions)
{
	struct ast *t = s->ast;
	const struct bound zero = {.set = true};
	struct bounds b = *in;
	int kids[2], k = 0;
	if (!fractions) { /* round to whole, inclusive bounds */
		struct bound *each[] = {&b.low, &b.high};
		for (int i = 0; i < 2; i++) {
			const bool whole = decimal_is_whole(&each[i]->at);
			decimal_round(&each[i]->at, i ? -1 : 1);
			if (each[i]->strict && whole)
				decimal_step(&each[i]->at, i ? -1 : 1);
			each[i]->strict = false;
		}
	}
	if (b.low.set && b.high.set) {
		int c = decimal_cmp(&b.low.at, &b.high.at);
		if (c > 0 || (c == 0 && (b.low.strict || b.high.strict)))
			return ast_never(t);
	}
	const bool above = b.low.set && !b.low.at.neg, below = b.high.set && b.high.at.neg;
	if (!below) /* from max(low, 0) to high */
		kids[k++] = size_between(s, above ? &b.low : &zero, b.high.set ? &b.high : NULL, fractions);
	if (!above) { /* from -min(high, 0) to -low */
		struct bound from = below ? b.high : zero;
		if (b.high.set && !below && decimal_is_zero(&b.high.at))
			from.strict = b.high.strict;
		from.at.neg = false;
		struct bound to = b.low;
		to.at.neg = false;
		kids[k++] = ast_seq2(t, ast_text(t, "-"),
				     size_between(s, &from, b.low.set ? &to : NULL, fractions));
	}
	return ast_alt(t, kids, (size_t)k);
}

/* ---- multiples ---- */

static unsigned long long gcd(unsigned long long a, unsigned long long b)
{
	while (b) {
		unsigned long long r = a % b;
		a = b, b = r;
	}
	return a;
}

/* Write m as whole / 10^places.  Return false if it is too long. */
static bool as_ratio(const struct decimal *m, unsigned long long *whole, int *places)
{
	char text[64];
	if (strlen(m->whole) + strlen(m->fraction) > 17)
		return false;
	snprintf(text, sizeof text, "%s%s", m->whole, m->fraction);
	*whole = strtoull(text, NULL, 10);
	*places = (int)strlen(m->fraction);
	return true;
}

static unsigned long long power_of_ten(int n)
{
	unsigned long long p = 1;
	while (n-- > 0)
		p *= 10;
	return p;
}

/* Make whole numbers with the last n digits a multiple of m; 10^n is a multiple of m. */
static int by_last_digits(struct schema *s, unsigned m, int n)
{
	struct ast *t = s->ast;
	const unsigned all = (unsigned)power_of_ten(n);
	int *kids = xcalloc(2 * (all / m + 1), sizeof *kids), k = 0, last = 0;
	char text[16];
	for (unsigned v = 0; v < all; v += m) {
		snprintf(text, sizeof text, "%u", v);
		kids[k++] = ast_text(t, text); /* fewer than n digits */
	}
	last = k;
	for (unsigned v = 0; v < all; v += m) {
		snprintf(text, sizeof text, "%0*u", n, v);
		kids[k++] = ast_text(t, text);
	}
	int longer = ast_seq3(t, digit_set(s, '1', '9'), free_digits(s, 0),
			      ast_alt(t, kids + last, (size_t)(k - last)));
	kids[last] = longer;
	int node = ast_alt(t, kids, (size_t)last + 1);
	free(kids);
	return node;
}

/* Make at most n_left more digits, from remainder r. */
static int by_remainder(struct schema *s, int *memo, const bool *fits, unsigned m, int n_left, unsigned r)
{
	struct ast *t = s->ast;
	int *at = &memo[(size_t)n_left * m + r];
	int kids[12], k = 0;
	if (*at != AST_FAILED)
		return *at;
	if (fits[r])
		kids[k++] = ast_empty(t);
	for (unsigned d = 0; n_left > 0 && d < 10; d++) {
		int rest = by_remainder(s, memo, fits, m, n_left - 1, (r * 10 + d) % m);
		if (rest == AST_FAILED) /* an error is not cached: it stops everything */
			return AST_FAILED;
		kids[k++] = ast_seq2(t, digit_set(s, (char)('0' + d), (char)('0' + d)), rest);
	}
	return *at = ast_alt(t, kids, (size_t)k);
}

static int by_division(struct schema *s, const bool *fits, unsigned m)
{
	struct ast *t = s->ast;
	int digits = (int)(MULTIPLE_STATES_MAX / m);
	if (digits > MULTIPLE_DIGITS_MAX)
		digits = MULTIPLE_DIGITS_MAX;
	const size_t n = (size_t)(digits + 1) * m;
	int *memo = xcalloc(n, sizeof *memo), kids[10], k = 0;
	for (size_t i = 0; i < n; i++)
		memo[i] = AST_FAILED;
	if (fits[0])
		kids[k++] = ast_text(t, "0");
	for (unsigned d = 1; d < 10; d++)
		kids[k++] = ast_seq2(t, digit_set(s, (char)('0' + d), (char)('0' + d)),
				     by_remainder(s, memo, fits, m, digits - 1, d % m));
	free(memo);
	return ast_alt(t, kids, (size_t)k);
}

/* Make the unsigned whole multiples of m; AST_FAILED: m is not of a supported kind. */
static int by_zeros_or_last(struct schema *s, unsigned long long m)
{
	unsigned long long zeros = m;
	size_t n = 0;
	if (m == 1)
		return whole_between(s, "", NULL);
	for (int d = 1; d <= LAST_DIGITS_MAX; d++)
		if (power_of_ten(d) % m == 0)
			return by_last_digits(s, (unsigned)m, d);
	for (; zeros % 10 == 0; n++)
		zeros /= 10;
	if (zeros != 1)
		return AST_FAILED;
	return ast_alt2(s->ast, ast_text(s->ast, "0"),
			ast_seq2(s->ast, whole_between(s, "1", NULL),
				 ast_repeat(s->ast, ast_text(s->ast, "0"), (int64_t)n, (int64_t)n)));
}

/* Return the least whole number that is a multiple of a's value, or 0 if it is too long. */
static unsigned long long whole_step(const struct atom *a)
{
	struct decimal m;
	unsigned long long whole;
	int places;
	decimal_from(a->value, &m);
	return as_ratio(&m, &whole, &places) ? whole / gcd(whole, power_of_ten(places)) : 0;
}

/* Return which remainders modulo *m, the least common multiple of all, satisfy every multipleOf for whole
 * numbers; owned. NULL: *m is too large. */
static bool *remainders(const struct alt *alt, unsigned *m)
{
	unsigned long long all = 1;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind != A_MULTIPLE)
			continue;
		unsigned long long step = whole_step(a);
		if (!step || step > REMAINDERS_MAX)
			return NULL;
		all = all / gcd(all, step) * step;
		if (all > REMAINDERS_MAX)
			return NULL;
	}
	bool *fits = xcalloc(all, sizeof *fits);
	memset(fits, true, all * sizeof *fits);
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		const unsigned long long step = a->kind == A_MULTIPLE ? whole_step(a) : 1;
		for (unsigned long long r = 0; r < all && a->kind == A_MULTIPLE; r++)
			if ((r % step == 0) == a->neg)
				fits[r] = false;
	}
	*m = (unsigned)all;
	return fits;
}

/* Make the unsigned whole numbers that satisfy every multipleOf. */
static int whole_multiples(struct schema *s, const struct alt *alt)
{
	const struct atom *last = NULL;
	unsigned n = 0, m = 0;
	int node = AST_FAILED;
	for (const struct atom *a = alt->atoms; a; a = a->next)
		if (a->kind == A_MULTIPLE)
			last = a, n++;
	if (n == 1 && !last->neg && whole_step(last))
		node = by_zeros_or_last(s, whole_step(last));
	if (node != AST_FAILED)
		return node;
	bool *fits = remainders(alt, &m);
	if (!fits || m > MULTIPLE_STATES_MAX / 5)
		schema_error(s, -ENOTSUP, last->owner, "multipleOf %.17g is not supported",
			     json_number_value(last->value));
	else
		node = by_division(s, fits, m);
	free(fits);
	return node;
}

/* Make texts without exponent that are multiples of a's value. */
static int multiples(struct schema *s, const struct atom *a)
{
	const struct alt only = {T_NUMBER,
				 &(struct atom){.kind = A_MULTIPLE, .owner = a->owner, .value = a->value}};
	struct ast *t = s->ast;
	struct decimal m;
	unsigned long long whole;
	int places;
	decimal_from(a->value, &m);
	if (!as_ratio(&m, &whole, &places)) {
		schema_error(s, -ENOTSUP, a->owner, "multipleOf %.17g is not supported",
			     json_number_value(a->value));
		return AST_FAILED;
	}
	const unsigned long long ten = power_of_ten(places), of_whole = whole / gcd(whole, ten);
	const int zeros = free_zeros(s, 1);
	int node = whole_multiples(s, &only);
	if (s->err)
		return AST_FAILED;
	if (whole == 1) { /* a fixed number of places */
		int digits = any_digits(s, 1, places > 0 ? places : 1);
		if (places)
			node = ast_seq2(
				t, node,
				ast_option(t, ast_seq3(t, ast_text(t, "."), digits, free_zeros(s, 0))));
		else
			node = ast_seq2(t, node, ast_option(t, ast_seq2(t, ast_text(t, "."), zeros)));
	} else if (!places) {
		node = ast_seq2(t, node, ast_option(t, ast_seq2(t, ast_text(t, "."), zeros)));
	} else {
		/* of_whole is m * k. The multiples of m are those of of_whole plus 0, m, ... (k - 1) m; if m
		 * divides 1, only the fractions of these summands matter. */
		if (of_whole != 1 || ten / whole > REMAINDERS_MAX) {
			schema_error(s, -ENOTSUP, a->owner, "multipleOf %.17g for numbers is not supported",
				     json_number_value(a->value));
			return AST_FAILED;
		}
		int *kids = xcalloc(ten / whole + 1, sizeof *kids);
		size_t k = 0;
		for (unsigned long long v = 0; v < ten; v += whole) {
			char text[32];
			int n = snprintf(text, sizeof text, "%0*llu", places, v);
			while (n > 1 && text[n - 1] == '0')
				n--;
			kids[k++] = ast_literal(t, text, (size_t)n);
		}
		node = ast_seq2(
			t, node,
			ast_option(t, ast_seq3(t, ast_text(t, "."), ast_alt(t, kids, k), free_zeros(s, 0))));
		free(kids);
	}
	return ast_seq2(t, ast_option(t, ast_text(t, "-")), node);
}

/* Return 1 if x is a multiple of m, 0 if not, -1 if undecided. */
static int is_multiple(const struct decimal *x, const struct decimal *m)
{
	unsigned long long a, b;
	int p, q;
	if (decimal_is_zero(x))
		return 1;
	if (!as_ratio(x, &a, &p) || !as_ratio(m, &b, &q) || p > 17 || q > 17)
		return -1;
	while (p < q && a < 1000000000000000000ull / 10)
		a *= 10, p++;
	while (q < p && b < 1000000000000000000ull / 10)
		b *= 10, q++;
	return p == q ? a % b == 0 : -1;
}

/* ---- values of enum ---- */

static bool in_values(const json_t *values, const struct decimal *x)
{
	const size_t n = json_is_array(values) ? json_array_size(values) : 1;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_is_array(values) ? json_array_get(values, i) : values;
		struct decimal d;
		if (!json_is_number(v))
			continue;
		decimal_from(v, &d);
		if (!decimal_cmp(&d, x))
			return true;
	}
	return false;
}

/* Return 1 if x satisfies alt, 0 if not, or an error. x comes from the list `from`, which is
 * not searched again. */
static int value_fits(struct schema *s, const struct alt *alt, const struct decimal *x, const json_t *from)
{
	if (!(alt->types & (decimal_is_whole(x) ? T_INT : T_FRAC)))
		return 0;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		struct decimal d;
		int c;
		if (a->kind > A_MULTIPLE)
			continue;
		if (a->kind == A_ENUM) {
			if (a->value == from && !a->neg)
				continue;
			c = values_step(s, a);
			if (c)
				return c;
			if (in_values(a->value, x) == a->neg)
				return 0;
			continue;
		}
		decimal_from(a->value, &d);
		if (a->kind == A_MULTIPLE) {
			c = is_multiple(x, &d);
			if (c < 0)
				return schema_error(s, -ENOTSUP, a->owner,
						    "multipleOf of a number this long");
			if (c == a->neg)
				return 0;
			continue;
		}
		c = a->kind == A_LOW ? decimal_cmp(x, &d) : decimal_cmp(&d, x);
		if (c < 0 || (c == 0 && a->strict))
			return 0;
	}
	return 1;
}

const struct atom *alt_values(const struct alt *alt)
{
	for (const struct atom *a = alt->atoms; a; a = a->next)
		if (a->kind == A_ENUM && !a->neg)
			return a;
	return NULL;
}

static int listed_numbers(struct schema *s, const struct alt *alt, const json_t *values, bool *any)
{
	struct ast *t = s->ast;
	const size_t n = json_is_array(values) ? json_array_size(values) : 1;
	int *kids = any ? NULL : xcalloc(2 * n + 1, sizeof *kids), rc = 0;
	size_t k = 0;
	for (size_t i = 0; i < n && rc >= 0; i++) {
		const json_t *v = json_is_array(values) ? json_array_get(values, i) : values;
		struct decimal d;
		char text[720];
		if (!json_is_number(v))
			continue;
		decimal_from(v, &d);
		rc = value_fits(s, alt, &d, values);
		if (rc <= 0)
			continue;
		if (any) {
			*any = true;
			break;
		}
		decimal_print(&d, text);
		kids[k++] = ast_text(t, text);
		if (json_is_real(v) && decimal_is_whole(&d)) {
			/* also as it was written */
			kids[k] = ast_seq2(t, kids[k - 1], ast_text(t, ".0"));
			k++;
		}
	}
	int node = rc < 0 || any ? AST_FAILED : ast_alt(t, kids, k);
	free(kids);
	return node;
}

/* Make all spellings without exponent of a denied enum's values. */
static int spellings(struct schema *s, const json_t *values)
{
	struct ast *t = s->ast;
	const size_t n = json_is_array(values) ? json_array_size(values) : 1;
	int *kids = xcalloc(n + 1, sizeof *kids);
	size_t k = 0;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_is_array(values) ? json_array_get(values, i) : values;
		struct decimal d;
		if (!json_is_number(v))
			continue;
		decimal_from(v, &d);
		int zeros = ast_repeat(t, ast_text(t, "0"), d.fraction[0] ? 0 : 1, -1);
		int behind = ast_seq3(t, ast_text(t, "."), ast_text(t, d.fraction), zeros);
		int node = ast_seq2(t, ast_text(t, d.whole[0] ? d.whole : "0"),
				    d.fraction[0] ? behind : ast_option(t, behind));
		int sign = ast_text(t, "-");
		kids[k++] = d.neg                         ? ast_seq2(t, sign, node)
			    : d.whole[0] || d.fraction[0] ? node
							  : ast_seq2(t, ast_option(t, sign), node);
	}
	int node = ast_alt(t, kids, k);
	free(kids);
	return node;
}

/* ---- numbers ---- */

static void tighten(struct bound *b, const struct atom *a, int sign)
{
	struct decimal d;
	decimal_from(a->value, &d);
	int c = b->set ? sign * decimal_cmp(&d, &b->at) : 1;
	if (c > 0 || (c == 0 && a->strict)) {
		b->strict = a->strict;
		b->at = d;
	}
	b->set = true;
}

static int plain_number(struct schema *s, unsigned types, bool positive)
{
	struct ast *t = s->ast;
	int sign = positive ? ast_empty(t) : ast_option(t, ast_text(t, "-"));
	int whole = ast_seq2(t, sign, whole_between(s, "", NULL));
	if (types == T_INT)
		return whole;
	if (types == T_FRAC) /* no integer value, so no exponent either */
		return ast_seq3(t, whole, ast_text(t, "."), some_nonzero(s));
	uint8_t e[32] = {0}, plus[32] = {0};
	e['e' / 8] |= 1 << 'e' % 8;
	e['E' / 8] |= 1 << 'E' % 8;
	plus['+' / 8] |= 1 << '+' % 8;
	plus['-' / 8] |= 1 << '-' % 8;
	int exponent = ast_seq3(t, ast_set(t, e), ast_option(t, ast_set(t, plus)),
				any_digits(s, 1, s->o.bounded ? SCHEMA_EXPONENT_MAX : -1));
	return ast_seq3(t, whole, any_fraction(s), ast_option(t, exponent));
}

/* Return the limit of digit runs that alt does not bound: raised to the length of alt's own numbers, so that
 * ranges and multiples beyond the limit stay reachable. */
static int64_t most_digits(const struct schema *s, const struct alt *alt)
{
	size_t longest = 0;
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		struct decimal d;
		if (a->kind != A_LOW && a->kind != A_HIGH && a->kind != A_MULTIPLE)
			continue;
		decimal_from(a->value, &d);
		const size_t whole = strlen(d.whole), fraction = strlen(d.fraction);
		longest = whole > longest ? whole : longest;
		longest = fraction > longest ? fraction : longest;
	}
	if (!s->o.bounded)
		return -1;
	return SCHEMA_DIGITS_MAX + (longest < SCHEMA_DIGITS_MAX ? 0 : (int64_t)longest);
}

int number_node(struct schema *s, const struct alt *alt)
{
	struct ast *t = s->ast;
	const struct atom *values = alt_values(alt);
	const bool fractions = alt->types & T_FRAC;
	struct bounds b = {0};
	bool more = false, multiple = false, positive;
	s->max_digits = most_digits(s, alt);
	if (values)
		return listed_numbers(s, alt, values->value, NULL);
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_LOW)
			tighten(&b.low, a, 1);
		else if (a->kind == A_HIGH)
			tighten(&b.high, a, -1);
		multiple = multiple || a->kind == A_MULTIPLE;
		more = more || a->kind == A_MULTIPLE || a->kind == A_ENUM;
	}
	positive = b.low.set && !b.low.strict && decimal_is_zero(&b.low.at) && !b.high.set;
	if (!more && (positive || (!b.low.set && !b.high.set)))
		return plain_number(s, alt->types & T_NUMBER, positive);
	int node = signed_between(s, &b, fractions);
	if (!(alt->types & T_INT))
		node = ast_and(t, node, plain_number(s, T_FRAC, false));
	if (multiple && !fractions) {
		int m = whole_multiples(s, alt);
		if (m == AST_FAILED)
			return AST_FAILED;
		node = ast_and(t, node, ast_seq2(t, ast_option(t, ast_text(t, "-")), m));
	}
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		if (a->kind == A_ENUM)
			node = ast_minus(t, node, spellings(s, a->value));
		if (a->kind != A_MULTIPLE || !fractions)
			continue;
		int m = multiples(s, a);
		if (s->err)
			return AST_FAILED;
		node = a->neg ? ast_minus(t, node, m) : ast_and(t, node, m);
	}
	return node;
}

/* Return 1 if no remainder fits a whole number. With bounds, other cases may be empty too; the automaton
 * finds them. */
static int no_remainder(const struct alt *alt)
{
	unsigned m;
	bool any = false, *fits = alt->types & T_FRAC ? NULL : remainders(alt, &m);
	for (unsigned r = 0; fits && r < m; r++)
		any = any || fits[r];
	const bool none = fits && !any;
	free(fits);
	return none;
}

int number_is_empty(struct schema *s, const struct alt *alt)
{
	const struct atom *values = alt_values(alt);
	bool any = false, multiple = false;
	int n = 0;
	if (values) {
		listed_numbers(s, alt, values->value, &any);
		return s->err ? s->err : !any;
	}
	for (const struct atom *a = alt->atoms; a; a = a->next) {
		n += a->kind <= A_MULTIPLE;
		multiple = multiple || a->kind == A_MULTIPLE;
	}
	if (multiple)
		return no_remainder(alt);
	if (n < 2 && (alt->types & T_NUMBER) != T_FRAC)
		return 0;
	int node = number_node(s, alt);
	return node == AST_FAILED ? s->err : regular_is_empty(s, node);
}
