/* int.c - chooses the attention kernels for INT8 and INT16 keys and values. */
#include "kernels/cpu/attention/int.h"

#include <string.h>

const struct cpu_kv_ints *cpu_kv_ints(const struct cpu_isa *isa)
{
	typedef const struct cpu_kv_ints *fn(void);
	static fn *const fns[] = {cpu_kv_ints_amx, cpu_kv_ints_avx512vnni, cpu_kv_ints_avxvnni,
				  cpu_kv_ints_avx2, cpu_kv_ints_plain};
	int i = strcmp(isa->name, "avx512") == 0 ? 0 : strcmp(isa->name, "avx2") == 0 ? 2 : 4;
	while (!fns[i]())
		i++;
	return fns[i]();
}
