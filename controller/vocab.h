/* vocab.h - the pieces of a tokenizer by id, and the ids of the model's pieces by text.
 *
 * In a byte-level model a piece of the file is spelled in an alphabet of 256 printable
 * characters, one per byte (GPT-2's); it is kept here as the bytes it stands for, so that
 * text is looked up as it is.  A piece that is not spelled in that alphabet can never be met
 * in a text; it is kept as it is written, and is not in the table. */
#ifndef QUERN_CONTROLLER_VOCAB_H
#define QUERN_CONTROLLER_VOCAB_H

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
	PIECE_LITERAL = 16, /* byte-level: text as written in the file, not translated to bytes */
};

struct piece {
	uint32_t at; /* offset in text */
	uint32_t len;
	uint8_t flags;
	uint8_t whole; /* enum vocab_whole; atomic: the one thing that changes after the load */
};

enum vocab_whole {
	WHOLE_UNKNOWN,
	WHOLE_YES, /* the merges make exactly this piece of its text */
	WHOLE_NO,
};

/* With where the text lies, so that a hit costs two cache misses and not three. */
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

/* Add a piece of the model, as the file spells it.  -EEXIST: the text is there already with
 * another id, or the id with another text; -EFBIG: text or id beyond the bounds above. */
int vocab_add(struct vocab *v, uint32_t id, const char *piece, size_t n);
/* Add or find an added token; flags are or'ed. */
int vocab_add_token(struct vocab *v, uint32_t id, const char *content, size_t n, uint8_t flags);

/* The model's piece of exactly these bytes; VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *v, const char *p, size_t n);
/* The same, but hint is tried first, and the id after it: merges come in the order of what they
 * make. */
uint32_t vocab_find_near(const struct vocab *v, const char *p, size_t n, uint32_t hint);
/* The same as vocab_find, spelled as in the file; tmp is scratch. */
uint32_t vocab_find_spelled(const struct vocab *v, const char *p, size_t n, struct buf *tmp);

static inline const char *vocab_text(const struct vocab *v, uint32_t id)
{
	return v->text.p + v->pieces[id].at;
}

/* Append the bytes of a piece spelled in the byte alphabet; false (and nothing appended)
 * when it is not spelled in it. */
bool vocab_spelled_bytes(const char *p, size_t n, struct buf *out);
/* Append the spelling of bytes. */
void vocab_spell(const char *p, size_t n, struct buf *out);

#endif
