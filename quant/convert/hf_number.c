#include "quant/convert/hf_number.h"

#include <stdio.h>
#include <stdlib.h>

json_t *hf_number(double v)
{
	char text[40];
	for (int digits = 1; digits <= 9; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtof(text, NULL) == (float)v)
			break;
	}
	return json_real((double)(float)v == v || strtof(text, NULL) == (float)v ? strtod(text, NULL) : v);
}
