/* config_match.h - check that a converted file has the configuration of its source. */
#ifndef QUERN_QUANT_CONVERT_CONFIG_MATCH_H
#define QUERN_QUANT_CONVERT_CONFIG_MATCH_H

#include "base/err.h"
#include "formats/config.h"

/* Compare all fields that affect the outputs.  back: the configuration read from the converted file; format:
 * "a GGUF file", for the message.  -ENOTSUP names the field that differs. */
int config_match(const struct model_config *source, const struct model_config *back, const char *format,
		 struct why *why);

#endif
