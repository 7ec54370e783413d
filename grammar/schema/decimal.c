#include "grammar/schema/decimal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool decimal_is_zero(const struct decimal *d)
{
	return !d->whole[0] && !d->fraction[0];
}

bool decimal_is_whole(const struct decimal *d)
{
	return !d->fraction[0];
}

/* Convert digits with the decimal point after the first `point` digits, which may be out of range. */
static void from_digits(const char *digits, int n_digits, int point, struct decimal *out)
{
	size_t whole = 0, fraction = 0;
	for (int i = 0; i < point; i++) {
		char c = i < n_digits ? digits[i] : '0';
		if ((whole || c != '0') && whole < DECIMAL_WHOLE_MAX)
			out->whole[whole++] = c;
	}
	for (int i = point; i < n_digits; i++)
		if (fraction < DECIMAL_FRACTION_MAX)
			out->fraction[fraction++] = i < 0 ? '0' : digits[i];
	while (fraction && out->fraction[fraction - 1] == '0')
		fraction--;
	out->whole[whole] = out->fraction[fraction] = 0;
}

void decimal_from(const json_t *number, struct decimal *out)
{
	char text[64], digits[64];
	int n = 0, point = 0, exponent = 0;
	bool behind = false;
	if (json_is_integer(number)) {
		snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
	} else {
		const double x = json_real_value(number);
		for (int p = 15; p <= 17; p++) {
			snprintf(text, sizeof text, "%.*g", p, x);
			if (strtod(text, NULL) == x)
				break;
		}
	}
	for (const char *c = text; *c; c++) {
		if (*c == 'e') {
			exponent = atoi(c + 1);
			break;
		}
		behind = behind || *c == '.';
		if (*c >= '0' && *c <= '9') {
			digits[n++] = *c;
			point += !behind;
		}
	}
	from_digits(digits, n, point + exponent, out);
	out->neg = text[0] == '-' && !decimal_is_zero(out);
}

/* Compare absolute values. */
static int cmp_size(const struct decimal *a, const struct decimal *b)
{
	const size_t n = strlen(a->whole), m = strlen(b->whole);
	if (n != m)
		return n < m ? -1 : 1;
	int c = strcmp(a->whole, b->whole);
	return c ? c : strcmp(a->fraction, b->fraction);
}

int decimal_cmp(const struct decimal *a, const struct decimal *b)
{
	if (a->neg != b->neg)
		return a->neg ? -1 : 1;
	return a->neg ? cmp_size(b, a) : cmp_size(a, b);
}

static void size_up(struct decimal *d)
{
	size_t n = strlen(d->whole), i = n;
	while (i > 0 && d->whole[i - 1] == '9')
		d->whole[--i] = '0';
	if (i > 0) {
		d->whole[i - 1]++;
	} else if (n < DECIMAL_WHOLE_MAX) {
		memmove(d->whole + 1, d->whole, n + 1);
		d->whole[0] = '1';
	}
}

static void size_down(struct decimal *d)
{
	size_t i = strlen(d->whole);
	while (i > 0 && d->whole[i - 1] == '0')
		d->whole[--i] = '9';
	if (i > 0)
		d->whole[i - 1]--;
	if (d->whole[0] == '0')
		memmove(d->whole, d->whole + 1, strlen(d->whole));
}

void decimal_step(struct decimal *d, int by)
{
	if (!d->whole[0])
		d->neg = by < 0;
	if (d->neg == (by < 0))
		size_up(d);
	else
		size_down(d);
	d->neg = d->neg && d->whole[0];
}

void decimal_round(struct decimal *d, int up)
{
	if (!d->fraction[0])
		return;
	d->fraction[0] = 0;
	if (d->neg == (up < 0))
		size_up(d);
	d->neg = d->neg && d->whole[0];
}

void decimal_print(const struct decimal *d, char *out)
{
	snprintf(out, 700, "%s%s%s%s", d->neg ? "-" : "", d->whole[0] ? d->whole : "0",
		 d->fraction[0] ? "." : "", d->fraction);
}
