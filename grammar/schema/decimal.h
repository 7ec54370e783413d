/* decimal.h - numbers as JSON writes them, compared exactly: digits, never a double. */
#ifndef QUERN_GRAMMAR_SCHEMA_DECIMAL_H
#define QUERN_GRAMMAR_SCHEMA_DECIMAL_H

#include <jansson.h>
#include <stdbool.h>

/* A double has at most 309 digits before the point and 324 + 17 behind it. */
enum { DECIMAL_WHOLE_MAX = 320, DECIMAL_FRACTION_MAX = 360 };

struct decimal {
	bool neg;                                /* of zero: false */
	char whole[DECIMAL_WHOLE_MAX + 2];       /* without leading zeros; "": 0 */
	char fraction[DECIMAL_FRACTION_MAX + 2]; /* without trailing zeros */
};

/* Of a real, the shortest text that reads as the same double: 0.1 is a tenth. */
void decimal_from(const json_t *number, struct decimal *out);
int decimal_cmp(const struct decimal *a, const struct decimal *b);      /* < 0, 0, > 0 */
int decimal_cmp_size(const struct decimal *a, const struct decimal *b); /* without signs */
bool decimal_is_zero(const struct decimal *d);
bool decimal_is_whole(const struct decimal *d);
/* The nearest whole number below (up < 0) or above (up > 0); a whole number is itself. */
void decimal_round(struct decimal *d, int up);
/* Add 1 or take 1 of a whole number. */
void decimal_step(struct decimal *d, int by);
/* "-12.5"; at least 700 bytes. */
void decimal_print(const struct decimal *d, char *out);

#endif
