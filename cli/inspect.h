/* inspect.h - `quern inspect`: what a model holds and needs; what this machine offers and which kernels will
 * be used.  Needs no service. */
#ifndef QUERN_CLI_INSPECT_H
#define QUERN_CLI_INSPECT_H

#include "formats/config.h"

#include <stdint.h>

/* Bytes of K and V per token in mode f32, as the CPU keeps them: FP32, K's rows padded to 2, V's to 16. */
int64_t inspect_kv_token_bytes(const struct model_config *c);

int cmd_inspect(int argc, char **argv);

#endif
