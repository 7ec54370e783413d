/* vocabulary.h - what a model's tokens are in a text: their bytes and kinds, which workers need for forms.
 * The controller sends it once per load (proto/bus.h), since only it reads tokenizers.
 *
 *     token     0        1      2                  3           4
 *     bytes     "a"      "ab"   FF "<call>" FE     ""          "<eos>"
 *     kind      TEXT     TEXT   TEXT               CONTROL     END
 *     at        0        1      3                  11          11          16
 *
 * A special token that may stand within an output, such as the one that begins a tool call, is text between
 * the bytes 0xFF and 0xFE, which occur in no UTF-8: only a grammar that names the token allows it. */
#ifndef QUERN_PROTO_VOCABULARY_H
#define QUERN_PROTO_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

/* The values are grammar/lexicon.h's. */
enum vocabulary_kind {
	VOCABULARY_TEXT,    /* its bytes are text */
	VOCABULARY_CONTROL, /* in no output of a form; also ids of the model that no token has */
	VOCABULARY_END,     /* ends an output, where the form may end */
	N_VOCABULARY_KINDS
};

enum {
	VOCABULARY_TOKENS_MAX = 1 << 24,
	VOCABULARY_TOKEN_BYTES_MAX = 4096, /* grammar/lexicon.h's; a longer one is sent as CONTROL */
	VOCABULARY_SPECIAL = 0xFF,         /* before and ... */
	VOCABULARY_SPECIAL_END = 0xFE,     /* ... behind the text of a special token */
};

/* Empty when zeroed.  All arrays are owned. */
struct vocabulary {
	uint32_t n;
	uint32_t cap;
	uint32_t *at;   /* [n + 1] where a token's bytes begin; NULL where n is 0 */
	uint8_t *kinds; /* [n] */
	char *bytes;    /* [at[n]] */
	size_t cap_bytes;
};

/* The next token: its bytes are copied.  n is at most VOCABULARY_TOKEN_BYTES_MAX. */
void vocabulary_add(struct vocabulary *v, const void *bytes, size_t n, enum vocabulary_kind kind);
void vocabulary_clear(struct vocabulary *v); /* keeps the memory */
void vocabulary_fini(struct vocabulary *v);
/* Of all that it says; the same on every machine. */
uint64_t vocabulary_checksum(const struct vocabulary *v);

#endif
