/* isa_plain.c - the inner kernels in plain C, for any machine.  See inner.h. */
#include <string.h>

#include "kernels/cpu/vec_plain.h"

#define INNER_NAME  "plain"
#define INNER_ROWS  2
#define INNER_ROWS2 1
#define INNER_ROWS4 0
#define INNER_AWQ2  0
#define INNER_AWQ4  0
#define INNER_AHEAD 0
#define ATTN_HEADS4 0
#define ATTN_HEADS2 1
#define ATTN_TILES2 1
#define ATTN_WIDE8  0
#define ATTN_WIDE4  0
#define ATTN_WIDE2  1
#define ATTN_SPAN   40
#include "kernels/cpu/inner.h"

const struct cpu_isa *cpu_isa_plain(void)
{
	return &inner_table;
}
