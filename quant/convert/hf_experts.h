/* hf_experts.h - the keys of config.json that describe a mixture of experts. */
#ifndef QUERN_QUANT_CONVERT_HF_EXPERTS_H
#define QUERN_QUANT_CONVERT_HF_EXPERTS_H

#include "formats/config.h"

#include <jansson.h>

/* Adds the keys of c's architecture to config.json. */
void hf_experts_put(json_t *config, const struct model_config *c);

/* Whether a reader of config.json routes rows as c does; the keys that it leaves out have the architecture's
 * defaults.  -ENOTSUP: what of the mixture it has otherwise, named.  0 for a dense model. */
int hf_experts_check(const json_t *config, const struct model_config *c, char *why, size_t why_n);

#endif
