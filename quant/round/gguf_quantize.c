#include "quant/round/gguf_quantize.h"

#include "base/err.h"
#include "cli/terminal/term.h"
#include "quant/convert/to_gguf.h"
#include "quant/round/gguf_encode.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SUPER = 256 }; /* values of a super-block: types of super-blocks take an importance matrix */

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

static const struct block_type *find_type(const char *option)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strcmp(types[i].option, option) == 0)
			return &types[i];
	return NULL;
}

bool gguf_quantize_has(const char *option)
{
	return find_type(option) != NULL;
}

bool gguf_quantize_weighs(const char *option)
{
	const struct block_type *t = find_type(option);
	return t && t->values == SUPER;
}

struct choosing {
	const struct block_type *type, *head, *fallback; /* fallback: for rows that are not whole blocks */
	const struct keep *keep;
	const struct gguf_importance *importance; /* NULL: none */
	int n_q8, n_plain;     /* matrices with rows that are not whole blocks of the type, and of 32 */
	int n_found, n_missed; /* matrices with and without an entry of the importance matrix */
	struct why *why;
};

/* Return whether a pattern or name of the user is of this part, by its name in either layout. */
static bool is_kept(const struct choosing *c, const struct model_config *config, const struct name *n)
{
	char hf[NAME_SIZE], gguf[NAME_SIZE];
	snprintf(hf, sizeof hf, "%.*s", (int)(strrchr(n->hf, '.') - n->hf), n->hf);
	snprintf(gguf, sizeof gguf, "%.*s", (int)(strrchr(n->gguf, '.') - n->gguf), n->gguf);
	return keep_of(c->keep, hf, config->experts.n) || keep_of(c->keep, gguf, 0);
}

/* Give the item the importance of its inputs. */
static int find_importance(struct choosing *c, struct tensor_plan_item *item)
{
	if (!c->importance)
		return 0;
	const int rc = imatrix_find(c->importance->imatrix, item->name, item->place,
				    item->stack ? item->stack : 1, item->shape[1], &item->importance, c->why);
	if (rc >= 0)
		*(rc ? &c->n_found : &c->n_missed) += 1;
	return rc;
}

static int put_keys(void *ctx, struct writer *w)
{
	const struct choosing *c = ctx;
	if (!c->importance)
		return 0;
	if (!c->n_found)
		return err_why(c->why, -EINVAL, "%s has no entry for any matrix of the model",
			       c->importance->path);
	imatrix_keys(c->importance->imatrix, c->importance->path, w);
	return 0;
}

static int choose(void *ctx, const struct model_config *config, const struct name *n,
		  struct tensor_plan_item *item)
{
	struct choosing *c = ctx;
	const int64_t columns = item->shape[1];
	if (is_kept(c, config, n))
		return 0;
	const bool head = n->part == NAME_HEAD || (n->part == NAME_EMBED && config->tied);
	const struct block_type *t = head ? c->head : c->type;
	if (columns % t->values) {
		t = c->fallback;
		c->n_q8++;
	}
	if (columns % t->values) {
		c->n_q8--;
		c->n_plain++;
		return 0;
	}
	item->type = t->name;
	if (strcmp(item->source_type, t->name) == 0) /* a GGUF file that has it already */
		return 1;
	if (!tensor_plan_is_float(item->source_type) && strcmp(item->source_type, "Q8_0") != 0)
		return err_why(c->why, -ENOTSUP,
			       "tensor %s is %s: quantize the model that it was made of, in F32, F16, BF16 "
			       "or Q8_0",
			       item->source, item->source_type);
	item->encode = t->encode;
	if (t->values == SUPER) {
		const int rc = find_importance(c, item);
		if (rc < 0)
			return rc;
	}
	return 1;
}

int gguf_quantize(const char *src, const char *dst, const char *option, const struct keep *keep,
		  const struct gguf_importance *importance, struct why *why)
{
	const struct block_type *type = find_type(option);
	assert(type);
	struct choosing c = {.type = type,
			     .head = find_type(type->head),
			     .fallback = find_type("q8_0"),
			     .keep = keep,
			     .importance = importance,
			     .why = why};
	const struct gguf_choice choice = {
		.type = choose, .keys = put_keys, .ctx = &c, .file_type = type->file_type};
	const int rc = to_gguf(src, dst, &choice, why);
	if (!rc && c.n_missed)
		term_note("without importance, since the matrix has no entry: matrices=%d with_entry=%d",
			  c.n_missed, c.n_found);
	if (!rc && c.n_q8)
		term_note("Q8_0 instead, for rows that are no whole blocks of %d values: matrices=%d",
			  c.head->values, c.n_q8);
	if (!rc && c.n_plain)
		term_note("as they were, for rows that are no whole blocks of %d values: matrices=%d",
			  c.fallback->values, c.n_plain);
	return rc;
}
