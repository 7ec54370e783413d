/* hf_experts.h - the keys of config.json that describe a mixture of experts. */
#ifndef QUERN_QUANT_CONVERT_HF_EXPERTS_H
#define QUERN_QUANT_CONVERT_HF_EXPERTS_H

#include "formats/config.h"

#include <jansson.h>

/* Add the keys for c's mixture to config.json. */
void hf_experts_put(json_t *config, const struct model_config *c);

/* Check that a reader of config.json routes rows as c does; omitted keys have the architecture's defaults.
 * -ENOTSUP names what differs.  0 for a dense model. */
int hf_experts_check(const json_t *config, const struct model_config *c, char *why, size_t why_n);

#endif
