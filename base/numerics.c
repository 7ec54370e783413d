#include "base/numerics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	DRAW = 2,       /* rule of sampling (kernels/cpu/sample.c) */
	ORDER = 1,      /* order of the CPU's sums, except mode bf16 */
	BF16_ORDER = 2, /* since 2, rows of a quantized embedding are not rounded in mode bf16 */
	CUDA_CODES = 3, /* how CUDA kernels compute codes */
};

static const char grammar_word[] = " grammar=";

__attribute__((format(printf, 3, 4))) static void add(char *out, size_t n, const char *format, ...)
{
	const size_t len = strlen(out);
	va_list args;
	va_start(args, format);
	vsnprintf(out + len, n - len, format, args);
	va_end(args);
}

void numerics_of_cpu(const struct numerics_cpu *c, char *out, size_t n)
{
	snprintf(out, n, "cpu %s order%d draw%d", c->mode, c->bf16 ? BF16_ORDER : ORDER, DRAW);
	if (c->head)
		add(out, n, " head-%s", c->head);
	if (c->kv)
		add(out, n, " kv-%s%s", c->kv, c->bf16_dots ? "-dots" : "");
}

void numerics_of_cuda(int sm, bool bf16, bool fast, char *out, size_t n)
{
	snprintf(out, n, "cuda sm_%d %s codes%d draw%d%s", sm, bf16 ? "bf16" : "f16", CUDA_CODES, DRAW,
		 fast ? " fast" : "");
}

void numerics_of_worker(const struct numerics *c, char *out, size_t n)
{
	snprintf(out, n, "%s", c->device);
	if (c->by_context)
		add(out, n, " ctx=%u", c->context);
	add(out, n, "%s%d", grammar_word, c->grammar);
	if (c->n_ranks > 1)
		add(out, n, " tp=%d%s", c->n_ranks, c->ep ? " ep" : "");
	if (c->layers)
		add(out, n, " experts=%s%s%s on %s", c->layers, c->hot[0] ? " " : "", c->hot, c->host);
}

void numerics_of_output(bool constrained, const char *worker, char *out, size_t n)
{
	const char *word = constrained ? NULL : strstr(worker, grammar_word);
	const int before = (int)(word ? (size_t)(word - worker) : strlen(worker));
	const char *rest = word ? word + 1 + strcspn(word + 1, " ") : "";
	snprintf(out, n, "%.*s%s", before, worker, rest);
}

bool numerics_same(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}
