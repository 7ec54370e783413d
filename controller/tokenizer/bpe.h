/* bpe.h - byte pair encoding: one word to ids, by the ranked merges of the file.
 * R. Sennrich et al., Neural Machine Translation of Rare Words with Subword Units (2016);
 * byte-level as in GPT-2, with byte fallback as in SentencePiece; or by scores, as SentencePiece does it:
 * any two neighbours that make a piece together may merge, the best score first.  Pieces of one score
 * have one rank; characters without a piece take part as symbols of their own (BPE_CHAR and up).
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
#define BPE_CHAR                                                                                             \
	(VOCAB_ID_MAX + 1u) /* by scores: the symbol of character c without a piece is BPE_CHAR + c */

struct bpe {
	struct merge_slot *slots; /* [mask + 1], linear probing, at most 5/8 full */
	size_t mask;
	uint32_t n_merges;
	uint32_t *merged;       /* by rank: the id of its merge; VOCAB_NONE: it is one of several */
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
	bool by_score;
	/* Pieces that merges make but that may not be output: the parts they were made of are.  [n_parts];
	 * NULL: there are none. */
	bool *unused;
	uint32_t n_parts; /* pieces of the vocabulary */
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
	uint64_t *parts; /* [n_parts] the pair that a piece was last seen as */
};

void bpe_init(struct bpe *b, uint32_t n_merges);
void bpe_fini(struct bpe *b);

/* The merge of this rank (0, 1, ...).  -EEXIST: duplicate pair. */
int bpe_add_merge(struct bpe *b, uint32_t rank, uint32_t left, uint32_t right, uint32_t id);
/* Instead of these two: ranks and merges from the scores of the vocabulary's pieces.  score: [v->n]; unused:
 * [v->n] pieces that may not be output; byte_id: [256] of byte pieces, or VOCAB_NONE. */
void bpe_init_scores(struct bpe *b, const struct vocab *v, const float *score, const bool *unused,
		     const uint32_t *byte_id);
/* Fills in the tables by byte and character, once vocabulary, merges and flags are set. */
void bpe_finish(struct bpe *b, const struct vocab *v);

/* Append the ids of a word of at most UINT32_MAX / 2 bytes. */
void bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_scratch *s, const char *word, size_t n,
		struct token_ids *out);
void bpe_scratch_fini(struct bpe_scratch *s);

#endif
