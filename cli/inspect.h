/* inspect.h - `quern inspect`: a model's contents and needs, or this machine's devices and the kernels that
 * will be used.
 * Needs no service. */
#ifndef QUERN_CLI_INSPECT_H
#define QUERN_CLI_INSPECT_H

#include "formats/config.h"

#include <stdint.h>

/* Return the bytes of K and V per token in the CPU's layout: 1/16 of a tile of 16 tokens.  type: f32, bf16,
 * int16 or int8, as for --kv-cache-dtype; any other word counts as f32. */
int64_t inspect_kv_token_bytes(const struct model_config *c, const char *type);

int cmd_inspect(int argc, char **argv);

#endif
