#include "quant/round/gguf_quantize.h"

#include "base/err.h"
#include "cli/terminal/term.h"
#include "quant/convert/to_gguf.h"
#include "quant/round/gguf_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 32, SUPER = 256 };

struct block_type {
	const char *option, *name;
	int values;
	tensor_plan_encode encode;
	bool fine_head;
	int file_type; /* llama.cpp's number for such files */
};

static const struct block_type types[] = {
	{"q8_0", "Q8_0", BLOCK, gguf_encode_q8_0, false, 7},
	{"q4_0", "Q4_0", BLOCK, gguf_encode_q4_0, true, 2},
	{"q4_k", "Q4_K", SUPER, gguf_encode_q4_k, true, 14},
	{"q6_k", "Q6_K", SUPER, gguf_encode_q6_k, false, 18},
};

static const struct block_type *type_of(const char *option)
{
	size_t i = 0;
	while (strcmp(types[i].option, option) != 0) {
		i++;
		assert(i < sizeof types / sizeof *types);
	}
	return &types[i];
}

struct choosing {
	const struct block_type *type;
	const struct keep *keep;
	int n_q8, n_plain; /* matrices with rows that are not whole blocks of the type, and of 32 */
};

static void choose(void *ctx, const struct model_config *config, const struct name *n, int64_t columns,
		   const char **type, tensor_plan_encode *encode)
{
	struct choosing *c = ctx;
	char module[NAME_SIZE];
	snprintf(module, sizeof module, "%.*s", (int)(strrchr(n->hf, '.') - n->hf), n->hf);
	if (keep_of(c->keep, module, config->experts.n))
		return;
	const bool head = n->part == NAME_HEAD || (n->part == NAME_EMBED && config->tied);
	const struct block_type *t = head && c->type->fine_head ? type_of("q6_k") : c->type;
	if (columns % t->values) {
		t = type_of("q8_0");
		c->n_q8++;
	}
	if (columns % t->values) {
		c->n_q8--;
		c->n_plain++;
		return;
	}
	*type = t->name;
	*encode = t->encode;
}

int gguf_quantize(const char *src, const char *dst, const char *option, const struct keep *keep, char *why,
		  size_t why_n)
{
	struct choosing c = {.type = type_of(option), .keep = keep};
	const struct gguf_choice choice = {.type = choose, .ctx = &c, .file_type = c.type->file_type};
	const int rc = to_gguf(src, dst, &choice, why, why_n);
	if (!rc && c.n_q8)
		term_note("Q8_0 instead, for rows that are no whole blocks of %d values: matrices=%d",
			  c.type->fine_head ? SUPER : c.type->values, c.n_q8);
	if (!rc && c.n_plain)
		term_note("as they were, for rows that are no whole blocks of %d values: matrices=%d", BLOCK,
			  c.n_plain);
	return rc;
}
