#include "kernels/cpu/machine.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

/* ---- small files ---- */

static bool read_text(const char *root, const char *path, char *out, size_t n)
{
	char full[PATH_MAX];
	snprintf(full, sizeof full, "%s/%s", root, path);
	FILE *f = fopen(full, "re");
	if (!f)
		return false;
	size_t got = fread(out, 1, n - 1, f);
	fclose(f);
	out[got] = 0;
	while (got && isspace((unsigned char)out[got - 1]))
		out[--got] = 0;
	return true;
}

/* "2048K" */
static int64_t size_of(const char *text)
{
	char *end;
	int64_t n = strtoll(text, &end, 10);
	if (n < 0 || n > INT64_MAX >> 30)
		return 0;
	return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

/* ---- /proc/cpuinfo ---- */

static bool has_word(const char *text, const char *word)
{
	const size_t n = strlen(word);
	for (const char *p = text; (p = strstr(p, word)); p += n)
		if ((p == text || p[-1] == ' ') && (!p[n] || p[n] == ' '))
			return true;
	return false;
}

static void read_flags(const char *flags, struct cpu_machine *m)
{
	static const char *const words[MACHINE_FEATURES] = {
		[MACHINE_AVX2] = "avx2",        [MACHINE_VNNI] = "avx512_vnni",
		[MACHINE_AVXVNNI] = "avx_vnni", [MACHINE_BF16] = "avx512_bf16",
		[MACHINE_FP16] = "avx512_fp16", [MACHINE_AMX_INT8] = "amx_int8",
		[MACHINE_AMX_BF16] = "amx_bf16"};
	for (int i = 0; i < MACHINE_FEATURES; i++)
		m->has[i] = words[i] && has_word(flags, words[i]);
	m->has[MACHINE_AVX512] = has_word(flags, "avx512f") && has_word(flags, "avx512bw") &&
				 has_word(flags, "avx512dq") && has_word(flags, "avx512vl");
}

/* The cores seen so far, as (package, core). */
struct cores {
	int (*seen)[2];
	size_t n, cap;
};

static void add_core(struct cores *c, int package, int core)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->seen[i][0] == package && c->seen[i][1] == core)
			return;
	array_grow(c->seen, c->cap, c->n + 1);
	c->seen[c->n][0] = package;
	c->seen[c->n++][1] = core;
}

static void read_cpuinfo(const char *root, struct cpu_machine *m)
{
	char path[PATH_MAX], *line = NULL;
	size_t cap = 0;
	int package = 0;
	bool flagged = false;
	struct cores cores = {0};
	snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
	FILE *f = fopen(path, "re");
	while (f && getline(&line, &cap, f) >= 0) {
		char *v = strchr(line, ':');
		if (!v)
			continue;
		v += strspn(v, ": \t");
		v[strcspn(v, "\n")] = 0;
		if (strncmp(line, "processor", 9) == 0)
			m->n_cpus++;
		else if (strncmp(line, "model name", 10) == 0 && !m->name[0])
			snprintf(m->name, sizeof m->name, "%.63s", v);
		else if (strncmp(line, "physical id", 11) == 0)
			package = atoi(v);
		else if (strncmp(line, "core id", 7) == 0)
			add_core(&cores, package, atoi(v));
		else if (strncmp(line, "flags", 5) == 0 && !flagged)
			read_flags(v, m), flagged = true;
	}
	if (f)
		fclose(f);
	m->n_cores = cores.n ? (int)cores.n : m->n_cpus;
	free(cores.seen);
	free(line);
}

/* ---- /sys ---- */

static void read_caches(const char *root, struct cpu_machine *m)
{
	for (int i = 0; i < 8; i++) {
		char path[128], level[16], type[32], size[32], shared[64] = "";
		const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
		char *const into[] = {level, type, size, shared};
		const size_t room[] = {sizeof level, sizeof type, sizeof size, sizeof shared};
		bool ok = true;
		for (int k = 0; k < 4 && ok; k++) {
			snprintf(path, sizeof path, "sys/devices/system/cpu/cpu0/cache/index%d/%s", i,
				 names[k]);
			ok = read_text(root, path, into[k], room[k]) || k == 3;
		}
		if (!ok || strcmp(type, "Instruction") == 0)
			continue;
		switch (atoi(level)) {
		case 1:
			m->l1d = size_of(size);
			break;
		case 2:
			m->l2 = size_of(size);
			memcpy(m->l2_cpus, shared, sizeof shared);
			break;
		case 3:
			m->l3 = size_of(size);
			memcpy(m->l3_cpus, shared, sizeof shared);
			break;
		}
	}
}

static void read_nodes(const char *root, struct cpu_machine *m)
{
	char path[96];
	for (int i = 0; i < MACHINE_NODES_MAX; i++) {
		snprintf(path, sizeof path, "sys/devices/system/node/node%d/cpulist", i);
		if (read_text(root, path, m->node_cpus[i], sizeof m->node_cpus[i]))
			m->n_nodes = i + 1;
	}
}

/* "always [madvise] never" */
static void read_huge_pages(const char *root, struct cpu_machine *m)
{
	char text[64];
	if (read_text(root, "sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
		const char *from = strchr(text, '[');
		if (from)
			snprintf(m->huge_pages, sizeof m->huge_pages, "%.*s",
				 (int)(strcspn(from, "]") - 1) < 15 ? (int)(strcspn(from, "]") - 1) : 15,
				 from + 1);
	}
	if (read_text(root, "sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text))
		m->huge_page_bytes = size_of(text);
}

void cpu_machine_read(const char *root, struct cpu_machine *out)
{
	memset(out, 0, sizeof *out);
	read_cpuinfo(root, out);
	read_caches(root, out);
	read_nodes(root, out);
	read_huge_pages(root, out);
}

const char *cpu_machine_feature(enum machine_feature f)
{
	static const char *const names[MACHINE_FEATURES] = {"AVX2",     "AVX-512",      "AVX-512 VNNI",
							    "AVX-VNNI", "AVX-512 BF16", "AVX-512 FP16",
							    "AMX INT8", "AMX BF16"};
	return names[f];
}

bool cpu_machine_amx_granted(void)
{
	return cpu_dot_amx() != NULL;
}
