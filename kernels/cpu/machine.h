/* machine.h - what the system reports about this machine's processors, for `quern inspect cpu`.
 * The tables choose by the instructions themselves (cpuid), not by this report. */
#ifndef QUERN_KERNELS_CPU_MACHINE_H
#define QUERN_KERNELS_CPU_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_NODES_MAX = 64 };

enum machine_feature {
	MACHINE_AVX2,
	MACHINE_AVX512, /* F, BW, DQ and VL */
	MACHINE_VNNI,
	MACHINE_AVXVNNI,
	MACHINE_BF16,
	MACHINE_FP16,
	MACHINE_AMX_INT8,
	MACHINE_AMX_BF16,
	MACHINE_FEATURES,
};

struct cpu_machine {
	char name[64];
	int n_cpus;  /* CPUs that run threads; hyperthreads count */
	int n_cores; /* distinct cores; n_cpus if the system does not report cores */
	bool has[MACHINE_FEATURES];
	int64_t l1d, l2, l3; /* bytes, of the first CPU; 0: unknown */
	char l2_cpus[64];    /* CPUs that share it, as the system lists them: "0-1"; "": unknown */
	char l3_cpus[64];
	int n_nodes; /* 0: the system reports no nodes */
	char node_cpus[MACHINE_NODES_MAX][64];
	char huge_pages[16];     /* setting for transparent huge pages: "always", "madvise", "never"; "":
				    unknown */
	int64_t huge_page_bytes; /* 0: unknown */
};

/* Read the machine.  root: "", or a test's directory that holds proc/ and sys/. */
void cpu_machine_read(const char *root, struct cpu_machine *out);
const char *cpu_machine_feature(enum machine_feature f); /* "AVX-512 VNNI" */
/* Return true if the CPU has AMX and the system lets this process use it. */
bool cpu_machine_amx_granted(void);

#endif
