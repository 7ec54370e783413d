/* kern_auto.c - the names of the compute modes, and the default mode of a device. */
#include "kernels/cpu/cpu.h"

#include <string.h>

enum kern_compute kern_auto_compute(const char *device, const char *isa)
{
	const bool cpu = strcmp(device, "cpu") == 0 || strncmp(device, "cpu:", 4) == 0;
	return cpu && cpu_has_vnni(isa) ? KERN_COMPUTE_INT16 : KERN_COMPUTE_F32;
}

const char *kern_compute_name(enum kern_compute c)
{
	static const char *const names[] = {"f32", "bf16", "int16", "int8"};
	return names[c];
}
