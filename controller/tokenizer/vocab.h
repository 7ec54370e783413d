/* vocab.h - the pieces of a tokenizer by id, and the ids of the model's pieces by text.
 *
 * In a byte-level model a piece of the file is spelled in GPT-2's alphabet of 256 printable characters,
 * one per byte; it is kept here as those bytes, so that text is looked up unchanged.  A piece that is not
 * spelled in that alphabet never occurs in a text; it is kept as written, outside the table. */
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
	PIECE_MODEL = 2, /* in the table */
	PIECE_ADDED = 4,
	PIECE_SPECIAL = 8,
	PIECE_LITERAL = 16, /* byte-level: as written in the file, not in the byte alphabet */
};

struct piece {
	uint32_t at; /* offset in text */
	uint32_t len;
	uint8_t flags;
	uint8_t whole; /* enum vocab_whole; atomic: the only field that changes after loading */
};

enum vocab_whole {
	WHOLE_UNKNOWN,
	WHOLE_YES, /* the merges of its text make this piece */
	WHOLE_NO,
};

/* Includes the position of the text, so that a hit costs two cache misses instead of three. */
struct vocab_slot {
	uint32_t hash; /* the upper half, compared before the text is */
	uint32_t id;   /* VOCAB_NONE when empty */
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
	size_t n_used; /* slots */
	bool byte_level;
};

void vocab_init(struct vocab *v, bool byte_level);
void vocab_fini(struct vocab *v);

/* Add a piece of the model, as the file spells it.  -EEXIST: duplicate text or id; -EFBIG: text or id
 * beyond the bounds above. */
int vocab_add(struct vocab *v, uint32_t id, const char *piece, size_t n);
/* Add or find an added token; flags are or'ed. */
int vocab_add_token(struct vocab *v, uint32_t id, const char *content, size_t n, uint8_t flags);

/* The model's piece of exactly these bytes; VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *v, const char *p, size_t n);
/* The same, but tries hint and the next id first: merges are in the order of their results. */
uint32_t vocab_find_near(const struct vocab *v, const char *p, size_t n, uint32_t hint);
/* The same as vocab_find, spelled as in the file; tmp is scratch. */
uint32_t vocab_find_spelled(const struct vocab *v, const char *p, size_t n, struct buf *tmp);

static inline const char *vocab_text(const struct vocab *v, uint32_t id)
{
	return v->text.p + v->pieces[id].at;
}

/* Append the bytes of a piece spelled in the byte alphabet; false, and nothing appended: it is not. */
bool vocab_spelled_bytes(const char *p, size_t n, struct buf *out);

#endif
