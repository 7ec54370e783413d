#include "controller/tokenizer/token_ids.h"

#include "base/alloc.h"

#include <stdlib.h>

void token_ids_push(struct token_ids *t, uint32_t id)
{
	array_grow(t->ids, t->cap, t->n + 1);
	t->ids[t->n++] = id;
}

void token_ids_fini(struct token_ids *t)
{
	free(t->ids);
	*t = (struct token_ids){0};
}
