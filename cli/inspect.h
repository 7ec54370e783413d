/* inspect.h - `quern inspect`: what a model holds and needs; what this machine offers and which kernels will
 * be used.  Needs no service. */
#ifndef QUERN_CLI_INSPECT_H
#define QUERN_CLI_INSPECT_H

#include "formats/config.h"

#include <stdint.h>

/* Bytes of K and V per token as the CPU keeps them: a sixteenth of a tile of 16 tokens.  type: f32, bf16,
 * int16 or int8, as --kv-cache-dtype has them; another word is f32. */
int64_t inspect_kv_token_bytes(const struct model_config *c, const char *type);

int cmd_inspect(int argc, char **argv);

#endif
