/* plain.c - the kernels of mode bf16 in plain C.  See fma.h. */
#include "kernels/cpu/vec_plain.h"

#define FMA_NAME  "plain"
#define FMA_TILES 1
#define FMA_ROWS  1
#include "kernels/cpu/bf16/fma.h"

const struct cpu_bf16 *cpu_bf16_plain(void)
{
	return &fma_table;
}
