/* to_safetensors.h - write a model as a directory of safetensors, from a GGUF file, an ak48 file or another
 * directory. */
#ifndef QUERN_QUANT_CONVERT_TO_SAFETENSORS_H
#define QUERN_QUANT_CONVERT_TO_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Convert.  shard: bytes of a file.  -ENOTSUP names a tensor with a type that safetensors lack. */
int to_safetensors(const char *src, const char *dst, int64_t shard, struct why *why);

#endif
