/* bf16.c - chooses the attention kernels of mode bf16. */
#include "kernels/cpu/attention/bf16.h"

#include <string.h>

const struct cpu_kv_type *cpu_kv_bf16(const struct cpu_isa *isa)
{
	const struct cpu_kv_type *amx = strcmp(isa->name, "avx512") == 0 ? cpu_kv_bf16_amx() : NULL;
	return amx ? amx : isa->kv_dots;
}
