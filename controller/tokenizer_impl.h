/* tokenizer_impl.h - what a tokenizer is made of: for tokenizer*.c and detok.c alone. */
#ifndef QUERN_CONTROLLER_TOKENIZER_IMPL_H
#define QUERN_CONTROLLER_TOKENIZER_IMPL_H

#include "base/json.h"
#include "controller/added.h"
#include "controller/bpe.h"
#include "controller/normalize.h"
#include "controller/pretok.h"
#include "controller/tokenizer.h"
#include "controller/vocab.h"

enum decoder_kind {
	DECODER_JOIN,       /* none in the file: pieces with a space between */
	DECODER_BYTE_LEVEL, /* bytes, invalid ones replaced at the end */
	DECODER_PIECES,     /* pieces with replacements; the fields below */
};

struct decoder {
	enum decoder_kind kind;
	int step;             /* how far the list of steps has been read */
	bool byte_fallback;   /* runs of <0xXX> are bytes of UTF-8 */
	char strip;           /* this ASCII character is taken off the beginning ... */
	unsigned n_strip;     /* ... so many times */
	bool metaspace_first; /* the first piece loses each `meta`, the others have a space for it */
	char *meta;           /* owned; NULL */
	struct norm replace;  /* applied to each piece */
};

/* What an id decodes to, ready made. */
struct decoded {
	uint32_t at; /* in tokenizer.decoded_text */
	uint32_t len;
	int16_t byte; /* of a <0xXX> where the decoder has byte fallback; else -1 */
};

struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct added added;
	struct norm norm;
	struct pretok pretok;
	struct decoder decoder;
	struct decoded *decoded; /* [vocab.n]; NULL when the vocabulary's own text serves */
	struct buf decoded_text;
	struct token_ids before; /* what the template puts before a text */
	struct token_ids behind;
	int64_t bos, eos;
	size_t max_piece;
};

/* The bytes of an id's text. */
struct piece_text {
	const char *p;
	size_t n;
	int byte; /* >= 0: a byte of byte fallback */
};
struct piece_text tokenizer_decoded(const struct tokenizer *t, uint32_t id);

/* Decoding, one id at a time. */
struct decode_state {
	const struct tokenizer *t;
	struct buf held;     /* an unfinished character, or a run of byte-fallback bytes */
	unsigned strip_left; /* characters that may still be stripped */
	bool begun;          /* a piece has been seen */
};
void decode_begin(struct decode_state *s, const struct tokenizer *t, bool continues);
void decode_push(struct decode_state *s, uint32_t id, bool skip_special, struct buf *out);
void decode_end(struct decode_state *s, struct buf *out);
void decode_fini(struct decode_state *s);

/* From the text of a tokenizer.json, without a config. */
int tokenizer_from_text(const char *json, size_t n, struct tokenizer **out, char *why, size_t why_n);

/* Parts of the load: each reads its member of tokenizer.json (NULL: absent). */
int tokenizer_load_pipeline(struct tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer,
			    const json_t *post_processor, const json_t *decoder, char *why, size_t why_n);
int tokenizer_decode_prepare(struct tokenizer *t, char *why, size_t why_n);

#endif
