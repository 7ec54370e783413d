/* vocab.h - the pieces of a tokenizer by id, and the ids of the model's pieces by text.
 *
 * Byte-level files spell a piece in GPT-2's alphabet of 256 printable characters, one per byte. The
 * vocabulary stores the piece as those bytes, so that text is looked up unchanged. A piece not spelled in
 * that alphabet never occurs in a text; it is stored as written, outside the table. */
#ifndef QUERN_CONTROLLER_TOKENIZER_VOCAB_H
#define QUERN_CONTROLLER_TOKENIZER_VOCAB_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VOCAB_ID_MAX = (1 << 22) - 1, /* sixteen times the largest vocabulary known */
	VOCAB_TEXT_MAX = 1 << 30,     /* offsets are 32 bits */
};

enum piece_flags {
	PIECE_USED = 1,
	PIECE_MODEL = 2, /* present in the table */
	PIECE_ADDED = 4,
	PIECE_SPECIAL = 8,
	PIECE_LITERAL = 16, /* byte-level: stored as written in the file, not in the byte alphabet */
};

struct piece {
	uint32_t at; /* offset in text */
	uint32_t len;
	uint8_t flags;
	uint8_t whole; /* enum vocab_whole; atomic; the only field that changes after loading */
};

enum vocab_whole {
	WHOLE_UNKNOWN,
	WHOLE_YES, /* merging its text gives this piece */
	WHOLE_NO,
};

/* A table entry. It includes the offset of the text, so that a hit costs two cache misses
 * instead of three. */
struct vocab_slot {
	uint32_t hash; /* the upper half of the hash, compared before the text */
	uint32_t id;   /* VOCAB_NONE: empty */
	uint32_t at;
	uint32_t len;
};
#define VOCAB_NONE UINT32_MAX

struct vocab {
	struct piece *pieces; /* [n] */
	uint32_t n;
	uint32_t cap;
	struct buf text;
	struct vocab_slot *slots; /* [mask + 1], linear probing, at most 5/8 full */
	size_t mask;
	size_t n_used; /* used slots */
	bool byte_level;
};

void vocab_init(struct vocab *v, bool byte_level);
void vocab_fini(struct vocab *v);

/* Add a piece of the model, as the file spells it. -EEXIST: duplicate text or id; -EFBIG: text or id
 * out of bounds. */
int vocab_add(struct vocab *v, uint32_t id, const char *piece, size_t n);
/* Add an added token, or find it; its flags are or'ed. */
int vocab_add_token(struct vocab *v, uint32_t id, const char *content, size_t n, uint8_t flags);

/* Return the model's piece with exactly these bytes, or VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *v, const char *p, size_t n);
/* Like vocab_find(), but try hint and the next id first: merges are sorted by their results. */
uint32_t vocab_find_near(const struct vocab *v, const char *p, size_t n, uint32_t hint);
/* Like vocab_find(), for a piece spelled as in the file; tmp is scratch. */
uint32_t vocab_find_spelled(const struct vocab *v, const char *p, size_t n, struct buf *tmp);

static inline const char *vocab_text(const struct vocab *v, uint32_t id)
{
	return v->text.p + v->pieces[id].at;
}

/* Append the bytes of a piece spelled in the byte alphabet.  Return false and append nothing if it is not. */
bool vocab_spelled_bytes(const char *p, size_t n, struct buf *out);

#endif
