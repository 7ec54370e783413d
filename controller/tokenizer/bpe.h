/* bpe.h - byte pair encoding: one word to ids, by the ranked merges of the file.
 * R. Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (2016);
 * byte-level as in GPT-2, with byte fallback as in SentencePiece.
 *
 * The pair of least rank, the leftmost of equals, is merged until none is left.  Short words are
 * scanned for it; long ones keep a heap, so that any n symbols take O(n log n). */
#ifndef QUERN_CONTROLLER_TOKENIZER_BPE_H
#define QUERN_CONTROLLER_TOKENIZER_BPE_H

#include "controller/tokenizer/token_ids.h"
#include "controller/tokenizer/vocab.h"

struct merge_slot {
	uint64_t pair; /* left << 32 | right; BPE_NO_PAIR when empty */
	uint32_t rank;
	uint32_t id; /* of the merged pair */
};
#define BPE_NO_PAIR UINT64_MAX
#define BPE_NO_RANK UINT32_MAX

struct bpe {
	struct merge_slot *slots; /* [mask + 1], linear probing, at most 5/8 full */
	size_t mask;
	uint32_t n_merges;
	uint32_t *merged;       /* [n_merges]: the id of each rank's merge */
	uint32_t *byte_pairs;   /* byte-level: rank of the pair of bytes [a << 8 | b]; else NULL */
	uint32_t byte_id[256];  /* byte-level: the piece of a byte; else of <0xXX>; VOCAB_NONE */
	uint32_t ascii_id[128]; /* the piece of a character */
	bool byte_fallback;     /* used only if all bytes of an unknown character have pieces */
	bool fuse_unk;
	bool ignore_merges; /* a word that is a piece is not merged from its parts */
	uint32_t unk;       /* VOCAB_NONE: unknown characters are dropped */
	/* No merge makes a piece with U+2581 behind another character: cutting a text before each run
	 * of U+2581 into words gives the same result. */
	bool cut_at_meta;
};

/* Working memory of one call, reused from word to word. */
struct bpe_scratch {
	uint32_t *ids;  /* [cap] symbols */
	uint32_t *rank; /* [cap] of the pair that begins here */
	uint32_t *next; /* [cap] */
	uint32_t *prev; /* [cap] */
	size_t cap;
	uint64_t *heap; /* rank << 32 | position */
	size_t n_heap;
	size_t heap_cap;
};

void bpe_init(struct bpe *b, uint32_t n_merges);
void bpe_fini(struct bpe *b);

/* The merge of this rank (0, 1, ...).  -EEXIST: duplicate pair. */
int bpe_add_merge(struct bpe *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t id);
/* Fills in the tables by byte and character, once vocabulary, merges and flags are set. */
void bpe_finish(struct bpe *b, const struct vocab *v);

/* Append the ids of a word of at most UINT32_MAX / 2 bytes. */
void bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_scratch *s, const char *word, size_t n,
		struct token_ids *out);
void bpe_scratch_fini(struct bpe_scratch *s);

#endif
