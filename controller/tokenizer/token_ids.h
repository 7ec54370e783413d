/* token_ids.h - a growable array of token ids.  A zeroed struct is empty. */
#ifndef QUERN_CONTROLLER_TOKENIZER_TOKEN_IDS_H
#define QUERN_CONTROLLER_TOKENIZER_TOKEN_IDS_H

#include <stddef.h>
#include <stdint.h>

struct token_ids {
	uint32_t *ids; /* owned */
	size_t n;
	size_t cap;
};

void token_ids_push(struct token_ids *t, uint32_t id);
void token_ids_fini(struct token_ids *t);

#endif
