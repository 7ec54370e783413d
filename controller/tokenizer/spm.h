/* spm.h - SentencePiece: what it does to a text before the model sees it, and its Unigram model.
 * T. Kudo, J. Richardson, SentencePiece: A simple and language independent subword tokenizer and
 * detokenizer for Neural Text Processing (2018); T. Kudo, Subword Regularization (2018).
 *
 * Normalization: user-defined pieces stay as they are; other text is rewritten by the file's charsmap, a
 * double-array trie from texts to replacements (the longest match); white space is escaped, collapsed and
 * added as the file's flags say. */
#ifndef QUERN_CONTROLLER_TOKENIZER_SPM_H
#define QUERN_CONTROLLER_TOKENIZER_SPM_H

#include "base/buf.h"
#include "controller/tokenizer/piece_table.h"
#include "controller/tokenizer/token_ids.h"
#include "controller/tokenizer/vocab.h"

struct spm_edge {
	uint32_t from; /* node << 8 | byte, and 1 << 31; 0 when empty */
	uint32_t to;
};

/* A trie of texts by byte, its edges in one hash table. */
struct spm_trie {
	struct spm_edge *edges; /* [mask + 1] */
	size_t mask, n_edges;
	uint32_t *ids; /* [n_nodes]: of the text that ends at a node; VOCAB_NONE */
	uint32_t n_nodes, cap;
};

struct spm {
	enum table_model model;
	bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
	/* the charsmap: units of the trie, and the replacements, each ends with a NUL byte */
	uint32_t *units;
	size_t n_units;
	char *texts;
	size_t texts_n;
	struct spm_trie user;   /* user-defined pieces */
	struct spm_trie pieces; /* TABLE_UNIGRAM: all that may be made of text */
	float *scores;          /* TABLE_UNIGRAM: [vocab.n] */
	uint8_t *user_defined;  /* TABLE_UNIGRAM: [vocab.n] */
	float min_score;        /* of the normal pieces */
	uint32_t unk;           /* VOCAB_NONE: none */
	const uint32_t *byte_id;
	bool byte_fallback;
	bool plain[256]; /* characters that stay as they are, whatever follows; of ASCII, but the space */
};

/* The charsmap is checked.  -EINVAL. */
int spm_init(struct spm *s, const struct piece_table *pt, char *why, size_t why_n);
/* Once all user-defined pieces are in. */
void spm_finish(struct spm *s);
void spm_free(struct spm *s); /* NULL is fine */

void spm_trie_add(struct spm_trie *t, const char *p, size_t n, uint32_t id);
/* The longest text of the trie that p[0..n) begins with; its length, 0 for none. */
size_t spm_trie_longest(const struct spm_trie *t, const char *p, size_t n, uint32_t *id);

/* Append the normalized text; p is valid UTF-8. */
void spm_normalize(const struct spm *s, const char *p, size_t n, struct buf *out);

/* Working memory, reused from text to text. */
struct spm_scratch {
	struct buf text;
	struct spm_node *nodes;
	size_t cap;
	uint32_t *path;
	size_t path_cap;
};
void spm_scratch_fini(struct spm_scratch *s);

/* TABLE_UNIGRAM: append the ids of a normalized text. */
void spm_unigram(const struct spm *s, struct spm_scratch *scratch, const char *p, size_t n,
		 struct token_ids *out);

#endif
