/* config_experts.h - read a mixture of experts from config.json. */
#ifndef QUERN_FORMATS_CONFIG_EXPERTS_H
#define QUERN_FORMATS_CONFIG_EXPERTS_H

#include "base/err.h"
#include "formats/config.h"

#include <jansson.h>

struct family;

/* Fill in c->experts and the fields that follow from it, for a model of this family.  c has the number of
 * layers and the intermediate size.  A dense model is left alone.  -EINVAL, -ENOTSUP with the reason. */
int config_experts_read(const json_t *root, const struct family *f, struct model_config *c, struct why *why);

#endif
