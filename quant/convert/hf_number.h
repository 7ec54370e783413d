/* hf_number.h - numbers of config.json. */
#ifndef QUERN_QUANT_CONVERT_HF_NUMBER_H
#define QUERN_QUANT_CONVERT_HF_NUMBER_H

#include <jansson.h>

/* Return a float as the shortest decimal that reads back as the same float. */
json_t *hf_number(double v);

#endif
