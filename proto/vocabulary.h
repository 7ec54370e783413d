/* vocabulary.h - the bytes and kinds of a model's tokens, which workers need for structured outputs.
 * The controller sends it once per load (proto/bus.h), since only the controller reads tokenizers.
 *
 *     token     0        1      2                  3           4
 *     bytes     "a"      "ab"   FF "<call>" FE     ""          "<eos>"
 *     kind      TEXT     TEXT   TEXT               CONTROL     END
 *     at        0        1      3                  11          11          16
 *
 * A special token that may occur within an output, such as the start of a tool call, is text between the
 * bytes 0xFF and 0xFE, which occur in no UTF-8.  Only a grammar that names the token allows it. */
#ifndef QUERN_PROTO_VOCABULARY_H
#define QUERN_PROTO_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

/* Equal to the values in grammar/lexicon.h. */
enum vocabulary_kind {
	VOCABULARY_TEXT,    /* its bytes are text */
	VOCABULARY_CONTROL, /* never in a structured output; also ids of the model without a token */
	VOCABULARY_END,     /* ends an output, if the constraint allows an end there */
	N_VOCABULARY_KINDS
};

enum {
	VOCABULARY_TOKENS_MAX = 1 << 24,
	/* grammar/lexicon.h's limit; a longer token is sent as CONTROL */
	VOCABULARY_TOKEN_BYTES_MAX = 4096,
	VOCABULARY_SPECIAL = 0xFF,     /* before the text of a special token */
	VOCABULARY_SPECIAL_END = 0xFE, /* after the text of a special token */
};

/* Empty when zeroed.  All arrays are owned. */
struct vocabulary {
	uint32_t n;
	uint32_t cap;
	uint32_t *at;   /* [n + 1] start of each token's bytes; NULL if n is 0 */
	uint8_t *kinds; /* [n] */
	char *bytes;    /* [at[n]] */
	size_t cap_bytes;
};

/* Append a token; its bytes are copied.  n is at most VOCABULARY_TOKEN_BYTES_MAX. */
void vocabulary_add(struct vocabulary *v, const void *bytes, size_t n, enum vocabulary_kind kind);
void vocabulary_clear(struct vocabulary *v); /* keeps the memory */
void vocabulary_fini(struct vocabulary *v);
/* Return a checksum of all contents, equal on every machine. */
uint64_t vocabulary_checksum(const struct vocabulary *v);

#endif
