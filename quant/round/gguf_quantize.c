#include "quant/round/gguf_quantize.h"

#include "base/err.h"
#include "cli/terminal/term.h"
#include "quant/convert/to_gguf.h"
#include "quant/round/gguf_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct block_type {
	const char *option, *name;
	int values;
	tensor_plan_encode encode;
	const char *head; /* option of the head's type */
	int file_type;    /* llama.cpp's number for such files */
};

static const struct block_type types[] = {
#define ROW(number, NAME, name, values, bytes, bits, group, zero, d, table, at_d, at_dmin, head, file)       \
	{#name, #NAME, values, gguf_encode_##name, #head, file},
	BLOCK_TYPES(BLOCK_NONE, ROW)};

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
	const struct block_type *type, *head, *fallback; /* fallback: for rows that are not whole blocks */
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
	const struct block_type *t = head ? c->head : c->type;
	if (columns % t->values) {
		t = c->fallback;
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

int gguf_quantize(const char *src, const char *dst, const char *option, const struct keep *keep,
		  struct why *why)
{
	const struct block_type *type = type_of(option);
	struct choosing c = {
		.type = type, .head = type_of(type->head), .fallback = type_of("q8_0"), .keep = keep};
	const struct gguf_choice choice = {.type = choose, .ctx = &c, .file_type = type->file_type};
	const int rc = to_gguf(src, dst, &choice, why);
	if (!rc && c.n_q8)
		term_note("Q8_0 instead, for rows that are no whole blocks of %d values: matrices=%d",
			  c.head->values, c.n_q8);
	if (!rc && c.n_plain)
		term_note("as they were, for rows that are no whole blocks of %d values: matrices=%d",
			  c.fallback->values, c.n_plain);
	return rc;
}
