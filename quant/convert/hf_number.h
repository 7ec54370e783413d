/* hf_number.h - numbers of config.json. */
#ifndef QUERN_QUANT_CONVERT_HF_NUMBER_H
#define QUERN_QUANT_CONVERT_HF_NUMBER_H

#include <jansson.h>

/* A float by the shortest decimal that stands for it. */
json_t *hf_number(double v);

#endif
