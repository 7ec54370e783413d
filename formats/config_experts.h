/* config_experts.h - what config.json says of a mixture of experts. */
#ifndef QUERN_FORMATS_CONFIG_EXPERTS_H
#define QUERN_FORMATS_CONFIG_EXPERTS_H

#include "formats/config.h"

#include <jansson.h>

struct family;

/* The experts of a model of this family; c has its number of layers and its intermediate size.  Nothing for a
 * dense one.  -EINVAL, -ENOTSUP with the reason. */
int config_experts_read(const json_t *root, const struct family *f, struct model_config *c, char *why,
			size_t why_n);

#endif
