/* decimal.h - JSON numbers, compared exactly: as digits, never as doubles. */
#ifndef QUERN_GRAMMAR_SCHEMA_DECIMAL_H
#define QUERN_GRAMMAR_SCHEMA_DECIMAL_H

#include <jansson.h>
#include <stdbool.h>

/* A double has at most 309 digits before the decimal point and 324 + 17 after it. */
enum { DECIMAL_WHOLE_MAX = 320, DECIMAL_FRACTION_MAX = 360 };

struct decimal {
	bool neg;                                /* false for zero */
	char whole[DECIMAL_WHOLE_MAX + 2];       /* digits before the point, without leading zeros; "": 0 */
	char fraction[DECIMAL_FRACTION_MAX + 2]; /* digits after the point, without trailing zeros */
};

/* Convert a JSON number.  A real is read as the shortest text of the same double: 0.1 is a tenth. */
void decimal_from(const json_t *number, struct decimal *out);
int decimal_cmp(const struct decimal *a, const struct decimal *b); /* <0, 0, >0 */
bool decimal_is_zero(const struct decimal *d);
bool decimal_is_whole(const struct decimal *d);
/* Round to the nearest whole number below (up < 0) or above (up > 0); whole numbers stay. */
void decimal_round(struct decimal *d, int up);
/* Add by (1 or -1) to a whole number. */
void decimal_step(struct decimal *d, int by);
/* Write d, for example "-12.5"; out holds at least 700 bytes. */
void decimal_print(const struct decimal *d, char *out);

#endif
