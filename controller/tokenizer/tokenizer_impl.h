/* tokenizer_impl.h - the components of a tokenizer, for tokenizer*.c and detok.c. */
#ifndef QUERN_CONTROLLER_TOKENIZER_TOKENIZER_IMPL_H
#define QUERN_CONTROLLER_TOKENIZER_TOKENIZER_IMPL_H

#include "base/err.h"
#include "base/json.h"
#include "controller/tokenizer/added.h"
#include "controller/tokenizer/bpe.h"
#include "controller/tokenizer/normalize.h"
#include "controller/tokenizer/pretok.h"
#include "controller/tokenizer/spm.h"
#include "controller/tokenizer/tokenizer.h"
#include "controller/tokenizer/vocab.h"

enum decoder_kind {
	DECODER_JOIN,       /* no decoder in the file: join pieces by spaces */
	DECODER_BYTE_LEVEL, /* pieces are bytes; replace invalid UTF-8 */
	DECODER_PIECES,     /* pieces with replacements, see the fields below */
};

struct decoder {
	enum decoder_kind kind;
	int step;             /* the last step read from the file */
	bool byte_fallback;   /* runs of <0xXX> are bytes of UTF-8 */
	char strip;           /* the ASCII character to strip from the beginning */
	unsigned n_strip;     /* strip at most this many */
	bool metaspace_first; /* drop `meta` from the first piece; replace it by a space in other pieces */
	char *meta;           /* owned; or NULL */
	struct norm replace;  /* applied to each piece */
};

/* The decoded text of an id. */
struct decoded {
	uint32_t at; /* offset in tokenizer.decoded_text */
	uint32_t len;
	int16_t byte; /* the byte of <0xXX> if the decoder has byte fallback, else -1 */
};

struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct added added;
	struct norm norm;
	struct pretok pretok;
	struct spm *spm; /* used instead of norm and pretok; or NULL */
	struct decoder decoder;
	struct decoded *decoded; /* [vocab.n]; NULL: use the vocabulary's text */
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
	int byte; /* the byte of a byte-fallback token, else -1 */
};
struct piece_text tokenizer_decoded(const struct tokenizer *t, uint32_t id);

/* State of decoding one id at a time. */
struct decode_state {
	const struct tokenizer *t;
	struct buf held;     /* an incomplete character, or a run of byte-fallback bytes */
	unsigned strip_left; /* number of characters that may still be stripped */
	bool begun;          /* a piece was decoded */
};
void decode_begin(struct decode_state *s, const struct tokenizer *t, bool continues);
void decode_push(struct decode_state *s, uint32_t id, bool skip_special, struct buf *out);
void decode_end(struct decode_state *s, struct buf *out);
void decode_fini(struct decode_state *s);

/* Load from the text of a tokenizer.json, without tokenizer_config.json. */
int tokenizer_from_text(const char *json, size_t n, struct tokenizer **out, struct why *why);

enum { TOKENIZER_DATA_MAX = 32 << 20 }; /* bytes of such a file; several times the largest known */

/* Load from the bytes of another file (piece_table.h), without tokenizer_config.json. */
typedef int (*piece_table_reader)(const void *data, size_t n, struct piece_table *pt, struct why *why);
int tokenizer_from_data(piece_table_reader read, const void *data, size_t n, struct tokenizer **out,
			struct why *why);

/* Stages of loading.  t: zeroed except for added_init(). */
int tokenizer_load_json(struct tokenizer *t, const char *path, struct why *why);
/* Load dir's tokenizer_config.json, if present: tokens found only there, BOS, EOS. */
int tokenizer_load_config(struct tokenizer *t, const char *dir, struct why *why);
/* Do the steps that need all tokens. */
int tokenizer_finish(struct tokenizer *t, struct why *why);
/* Stages of tokenizer_load_json(): each reads its member of tokenizer.json (NULL: absent). */
int tokenizer_load_pipeline(struct tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer,
			    const json_t *post_processor, const json_t *decoder, struct why *why);
int tokenizer_decode_prepare(struct tokenizer *t, struct why *why);

#endif
