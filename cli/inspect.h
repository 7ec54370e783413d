/* inspect.h - `quern inspect`: what a model holds and needs; what this machine offers and which kernels will
 * be used.  Needs no service. */
#ifndef QUERN_CLI_INSPECT_H
#define QUERN_CLI_INSPECT_H

#include "formats/config.h"

#include <stdint.h>

/* Bytes of K and V per token: FP32, as the CPU keeps them, with V's rows padded to 16. */
int64_t inspect_kv_token_bytes(const struct model_config *c);

int cmd_inspect(int argc, char **argv);

#endif
