/* bpe.h - byte pair encoding: converts one word to ids by the file's ranked merges.
 * R. Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (2016). Byte-level as in
 * GPT-2, with byte fallback as in SentencePiece, or by scores, also as in SentencePiece: any two neighbours
 * that together are a piece may merge, highest score first. Pieces of equal score have one rank; characters
 * without a piece take part as symbols of their own (BPE_CHAR and up).
 *
 * The pair of least rank, the leftmost if several are equal, is merged until no pair is left. Short words
 * are scanned; long words keep a heap, so that n symbols take O(n log n). */
#ifndef QUERN_CONTROLLER_TOKENIZER_BPE_H
#define QUERN_CONTROLLER_TOKENIZER_BPE_H

#include "controller/tokenizer/tokenizer.h"
#include "controller/tokenizer/vocab.h"

struct merge_slot {
	uint64_t pair; /* left << 32 | right; BPE_NO_PAIR when empty */
	uint32_t rank;
	uint32_t id; /* the id of the merged pair */
};
#define BPE_NO_PAIR UINT64_MAX
#define BPE_NO_RANK UINT32_MAX
#define BPE_CHAR                                                                                             \
	(VOCAB_ID_MAX + 1u) /* by scores: the symbol of a character c without a piece is BPE_CHAR + c */

struct bpe {
	struct merge_slot *slots; /* [mask + 1], linear probing, at most 5/8 full */
	size_t mask;
	uint32_t n_merges;
	/* by rank: the id of the merge's result; VOCAB_NONE: several merges share the rank */
	uint32_t *merged;
	uint32_t *byte_pairs; /* byte-level: the rank of the byte pair [a << 8 | b]; else NULL */
	/* byte-level: the piece of a byte; otherwise the piece <0xXX>; VOCAB_NONE: none */
	uint32_t byte_id[256];
	uint32_t ascii_id[128]; /* the piece of an ASCII character */
	bool byte_fallback;     /* used only if all bytes of an unknown character have pieces */
	bool fuse_unk;
	bool ignore_merges; /* a word that is a piece is output whole, without merging */
	uint32_t unk;       /* VOCAB_NONE: drop unknown characters */
	/* No merge makes a piece with U+2581 after another character, so the text may be cut into words
	 * before each run of U+2581 without changing the result. */
	bool cut_at_meta;
	bool by_score;
	/* Pieces that merges make but that must not be output; they are replaced by the two pieces that made
	 * them. [n_parts]; NULL: none. */
	bool *unused;
	uint32_t n_parts; /* number of pieces in the vocabulary */
};

/* Scratch memory of one call, reused for each word. */
struct bpe_scratch {
	uint32_t *ids;  /* [cap] symbols */
	uint32_t *rank; /* [cap]: the rank of the pair that begins here */
	uint32_t *next; /* [cap] */
	uint32_t *prev; /* [cap] */
	size_t cap;
	uint64_t *heap; /* rank << 32 | position */
	size_t n_heap;
	size_t heap_cap;
	uint64_t *parts; /* [n_parts]: the pair from which a piece was last made */
};

void bpe_init(struct bpe *b, uint32_t n_merges);
void bpe_fini(struct bpe *b);

/* Add the merge of this rank (0, 1, ...).  -EEXIST: duplicate pair. */
int bpe_add_merge(struct bpe *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t id);
/* Replaces bpe_init() and bpe_add_merge(): derive ranks and merges from the scores of the pieces. score:
 * [v->n]; unused: [v->n] pieces that must not be output; byte_id: [256] ids of byte pieces, or VOCAB_NONE. */
void bpe_init_scores(struct bpe *b, const struct vocab *v, const float *score, const bool *unused,
		     const uint32_t *byte_id);
/* Fill in the tables by byte and by character.  Call once vocabulary, merges and flags are set. */
void bpe_finish(struct bpe *b, const struct vocab *v);

/* Append the ids of a word of at most UINT32_MAX / 2 bytes. */
void bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_scratch *s, const char *word, size_t n,
		struct token_ids *out);
void bpe_scratch_fini(struct bpe_scratch *s);

#endif
