/* spm.h - SentencePiece's text normalization and its Unigram model.
 * T. Kudo, J. Richardson, SentencePiece: A simple and language independent subword tokenizer and detokenizer
 * for Neural Text Processing (2018); T. Kudo, Subword Regularization (2018).
 *
 * Normalization: user-defined pieces are kept; other text is rewritten by the file's charsmap, a
 * double-array trie from texts to replacements (the longest match); white space is escaped, collapsed and
 * added as the file's flags say. */
#ifndef QUERN_CONTROLLER_TOKENIZER_SPM_H
#define QUERN_CONTROLLER_TOKENIZER_SPM_H

#include "base/buf.h"
#include "base/err.h"
#include "controller/tokenizer/piece_table.h"
#include "controller/tokenizer/tokenizer.h"
#include "controller/tokenizer/vocab.h"

struct spm_edge {
	uint32_t from; /* node << 8 | byte, and 1 << 31; 0: empty */
	uint32_t to;
};

/* A trie of texts by byte, with all edges in one hash table. */
struct spm_trie {
	struct spm_edge *edges; /* [mask + 1] */
	size_t mask, n_edges;
	uint32_t *ids; /* [n_nodes]: the id of the text that ends at the node, or VOCAB_NONE */
	uint32_t n_nodes, cap;
};

struct spm {
	enum table_model model;
	bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
	/* the charsmap: units of the trie, and the replacements, each terminated by NUL */
	uint32_t *units;
	size_t n_units;
	char *texts;
	size_t texts_n;
	struct spm_trie user;   /* user-defined pieces */
	struct spm_trie pieces; /* TABLE_UNIGRAM: all pieces that text may produce */
	float *scores;          /* TABLE_UNIGRAM: [vocab.n] */
	uint8_t *user_defined;  /* TABLE_UNIGRAM: [vocab.n] */
	float min_score;        /* smallest score of the normal pieces */
	uint32_t unk;           /* VOCAB_NONE: none */
	const uint32_t *byte_id;
	bool byte_fallback;
	bool plain[256]; /* ASCII characters, except the space, that never change, whatever follows */
};

/* Check and copy the charsmap and flags.  -EINVAL. */
int spm_init(struct spm *s, const struct piece_table *pt, struct why *why);
/* Call once all user-defined pieces are added. */
void spm_finish(struct spm *s);
void spm_free(struct spm *s); /* NULL is fine */

void spm_trie_add(struct spm_trie *t, const char *p, size_t n, uint32_t id);
/* Find the longest text of the trie that is a prefix of p[0..n).  Return its length; 0: none. */
size_t spm_trie_longest(const struct spm_trie *t, const char *p, size_t n, uint32_t *id);

/* Append the normalized text.  p is valid UTF-8. */
void spm_normalize(const struct spm *s, const char *p, size_t n, struct buf *out);

/* Scratch memory, reused for each text. */
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
