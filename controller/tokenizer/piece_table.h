/* piece_table.h - a common representation of tokenizers from files other than tokenizer.json:
 * SentencePiece's tokenizer.model, llama2.c's tokenizer.bin and GGUF metadata. A reader fills it in from the
 * file's bytes. tokenizer_from_table() checks texts, types, scores and duplicates, so readers need not. */
#ifndef QUERN_CONTROLLER_TOKENIZER_PIECE_TABLE_H
#define QUERN_CONTROLLER_TOKENIZER_PIECE_TABLE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SentencePiece's numbers (sentencepiece_model.proto), also used in GGUF. */
enum row_type {
	ROW_NORMAL = 1,
	ROW_UNKNOWN,      /* replaces text that has no piece */
	ROW_CONTROL,      /* never produced from plain text: <s>; special */
	ROW_USER_DEFINED, /* always one token where its text occurs */
	ROW_UNUSED,       /* never produced from text; split into its parts */
	ROW_BYTE,         /* <0xXX>: one byte of a character that has no piece */
};

struct piece_row {
	const char *p; /* borrowed from the file, or from piece_table.text */
	size_t n;
	float score;
	int type;    /* enum row_type */
	bool rstrip; /* for tokens searched for in the text: the match includes the white space after it */
};

struct merge_row {
	const char *p; /* "left right" */
	size_t n;
};

enum table_model {
	TABLE_BYTE_BPE,  /* GPT-2: merges by rank on bytes, within words split by patterns */
	TABLE_SCORE_BPE, /* SentencePiece: merge neighbours that form a piece, highest score first */
	TABLE_UNIGRAM,   /* SentencePiece: the segmentation with the largest sum of scores */
};

enum { TABLE_SPLITS_MAX = 6 };

struct piece_table {
	enum table_model model;
	struct piece_row *rows; /* [n], owned; the index is the id */
	size_t n, cap;
	struct buf text; /* storage for texts that the file encodes differently */
	bool raw_user;   /* search user-defined pieces in the text as given (GGUF) */

	/* for TABLE_BYTE_BPE */
	struct merge_row *merges; /* [n_merges], owned */
	size_t n_merges, merges_cap;
	const char *splits[TABLE_SPLITS_MAX]; /* patterns, each isolates its matches; static */
	int n_splits;
	bool nfc, ignore_merges, prefix_space;

	/* for TABLE_SCORE_BPE and TABLE_UNIGRAM */
	bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
	bool byte_fallback;   /* effective only if all bytes have pieces */
	const char *charsmap; /* SentencePiece's precompiled_charsmap, or NULL */
	size_t charsmap_n;

	int64_t unk, bos, eos; /* -1: none */
	bool add_bos, add_eos;
};

struct tokenizer;

void piece_table_init(struct piece_table *pt);
void piece_table_fini(struct piece_table *pt);
void piece_table_add(struct piece_table *pt, const char *p, size_t n, float score, int type);
/* Return true if each of the 256 bytes has a ROW_BYTE. */
bool piece_table_has_bytes(const struct piece_table *pt);

/* Build the model and the steps around it: t is zeroed except for added_init(). Copies what it needs.
 * -EINVAL: why names the piece or the merge. */
int tokenizer_from_table(struct tokenizer *t, const struct piece_table *pt, struct why *why);

/* TABLE_BYTE_BPE: set the patterns and flags for a name of tokenizer.ggml.pre.  -ENOTSUP: unknown name. */
int piece_table_set_pre(struct piece_table *pt, const char *name, size_t n, struct why *why);

/* The inverse: write the first name for these patterns and flags.  Return false if there is none. */
bool piece_table_pre_name(const char *const *splits, int n, bool nfc, bool ignore_merges, char *out,
			  size_t out_n);

struct gguf;

/* Readers.  Texts are borrowed from data, which is NULL for an empty file.  -EINVAL with the reason. */
int spm_file_read(const void *data, size_t n, struct piece_table *pt, struct why *why);
int llama2c_file_read(const void *data, size_t n, struct piece_table *pt, struct why *why);
/* Read the keys tokenizer.ggml.*.  -ENOENT: there are none; -ENOTSUP: another kind of tokenizer; -EINVAL. */
int gguf_vocab_read(const struct gguf *g, struct piece_table *pt, struct why *why);

#endif
