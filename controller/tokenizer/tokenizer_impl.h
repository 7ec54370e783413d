/* tokenizer_impl.h - the parts of a tokenizer, for tokenizer*.c and detok.c. */
#ifndef QUERN_CONTROLLER_TOKENIZER_TOKENIZER_IMPL_H
#define QUERN_CONTROLLER_TOKENIZER_TOKENIZER_IMPL_H

#include "base/json.h"
#include "controller/tokenizer/added.h"
#include "controller/tokenizer/bpe.h"
#include "controller/tokenizer/normalize.h"
#include "controller/tokenizer/pretok.h"
#include "controller/tokenizer/spm.h"
#include "controller/tokenizer/tokenizer.h"
#include "controller/tokenizer/vocab.h"

enum decoder_kind {
	DECODER_JOIN,       /* none in the file: pieces joined by spaces */
	DECODER_BYTE_LEVEL, /* pieces are bytes; invalid UTF-8 is replaced */
	DECODER_PIECES,     /* pieces with replacements; the fields below */
};

struct decoder {
	enum decoder_kind kind;
	int step;             /* the last step that was read from the file */
	bool byte_fallback;   /* runs of <0xXX> are bytes of UTF-8 */
	char strip;           /* this ASCII character is stripped from the beginning ... */
	unsigned n_strip;     /* ... at most this many times */
	bool metaspace_first; /* `meta` is dropped from the first piece, and becomes a space in the others */
	char *meta;           /* owned; NULL */
	struct norm replace;  /* applied to each piece */
};

/* The decoded text of an id. */
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
	struct spm *spm; /* instead of norm and pretok; NULL */
	struct decoder decoder;
	struct decoded *decoded; /* [vocab.n]; NULL: the vocabulary's own text */
	struct buf decoded_text;
	struct token_ids before; /* ids that the template puts before a text */
	struct token_ids behind;
	int64_t bos, eos;
	size_t max_piece;
};

/* The decoded bytes of an id. */
struct piece_text {
	const char *p;
	size_t n;
	int byte; /* of a byte-fallback token, else -1 */
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

/* From the text of a tokenizer.json, without tokenizer_config.json. */
int tokenizer_from_text(const char *json, size_t n, struct tokenizer **out, char *why, size_t why_n);

enum { TOKENIZER_DATA_MAX = 32 << 20 }; /* of such a file: several times the largest known */

/* From the bytes of a file that is not tokenizer.json (piece_table.h), without tokenizer_config.json. */
typedef int (*piece_table_reader)(const void *data, size_t n, struct piece_table *pt, char *why,
				  size_t why_n);
int tokenizer_from_data(piece_table_reader read, const void *data, size_t n, struct tokenizer **out,
			char *why, size_t why_n);

/* Parts of the load.  t: zeroed but for added_init(). */
int tokenizer_load_json(struct tokenizer *t, const char *path, char *why, size_t why_n);
/* dir's tokenizer_config.json, where there is one: tokens that only it has, BOS, EOS. */
int tokenizer_load_config(struct tokenizer *t, const char *dir, char *why, size_t why_n);
/* The steps that need all tokens. */
int tokenizer_finish(struct tokenizer *t, char *why, size_t why_n);
/* Parts of tokenizer_load_json(): each reads its member of tokenizer.json (NULL: absent). */
int tokenizer_load_pipeline(struct tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer,
			    const json_t *post_processor, const json_t *decoder, char *why, size_t why_n);
int tokenizer_decode_prepare(struct tokenizer *t, char *why, size_t why_n);

#endif
