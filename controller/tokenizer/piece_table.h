/* piece_table.h - what a file other than tokenizer.json says about a tokenizer, in one form: SentencePiece's
 * tokenizer.model, llama2.c's tokenizer.bin and the metadata of a GGUF file.  A reader fills it in from
 * the file's bytes and need not check what tokenizer_from_table() checks: texts, types, scores, duplicates.
 */
#ifndef QUERN_CONTROLLER_TOKENIZER_PIECE_TABLE_H
#define QUERN_CONTROLLER_TOKENIZER_PIECE_TABLE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SentencePiece's numbers (sentencepiece_model.proto), which GGUF has too. */
enum row_type {
	ROW_NORMAL = 1,
	ROW_UNKNOWN,      /* stands for what has no piece */
	ROW_CONTROL,      /* never comes from plain text: <s>; special */
	ROW_USER_DEFINED, /* always one token where its text occurs */
	ROW_UNUSED,       /* never comes from text; its parts do */
	ROW_BYTE,         /* <0xXX>: a byte of a character without a piece */
};

struct piece_row {
	const char *p; /* borrowed from the file, or from piece_table.text */
	size_t n;
	float score;
	int type;    /* enum row_type */
	bool rstrip; /* of a token searched for in the text: its match has the white space behind it */
};

struct merge_row {
	const char *p; /* "left right" */
	size_t n;
};

enum table_model {
	TABLE_BYTE_BPE,  /* GPT-2's: merges by rank on bytes, within words that patterns split off */
	TABLE_SCORE_BPE, /* SentencePiece's: of two neighbours that make a piece, the best score first
			  */
	TABLE_UNIGRAM,   /* SentencePiece's: the segmentation of the largest sum of scores */
};

enum { TABLE_SPLITS_MAX = 6 };

struct piece_table {
	enum table_model model;
	struct piece_row *rows; /* [n], owned; the index is the id */
	size_t n, cap;
	struct buf text; /* for texts that the file has in another form */
	bool raw_user;   /* user-defined pieces are searched for in the text as given (GGUF) */

	/* TABLE_BYTE_BPE */
	struct merge_row *merges; /* [n_merges], owned */
	size_t n_merges, merges_cap;
	const char *splits[TABLE_SPLITS_MAX]; /* patterns, each isolates its matches; static */
	int n_splits;
	bool nfc, ignore_merges, prefix_space;

	/* the SentencePiece kinds */
	bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_suffix;
	bool byte_fallback;   /* if there are pieces for all bytes */
	const char *charsmap; /* SentencePiece's precompiled_charsmap; NULL */
	size_t charsmap_n;

	int64_t unk, bos, eos; /* -1: none */
	bool add_bos, add_eos;
};

struct tokenizer;

void piece_table_init(struct piece_table *pt);
void piece_table_fini(struct piece_table *pt);
void piece_table_add(struct piece_table *pt, const char *p, size_t n, float score, int type);
/* There is a ROW_BYTE for each of the 256. */
bool piece_table_has_bytes(const struct piece_table *pt);

/* Makes the model and the steps around it: t is zeroed but for added_init().  Copies what it needs.
 * -EINVAL: why names the piece or the merge. */
int tokenizer_from_table(struct tokenizer *t, const struct piece_table *pt, char *why, size_t why_n);

/* TABLE_BYTE_BPE: what a name of tokenizer.ggml.pre stands for.  -ENOTSUP: the name is not known. */
int piece_table_set_pre(struct piece_table *pt, const char *name, size_t n, char *why, size_t why_n);

/* The other way: the first name that stands for these patterns and flags.  False: none does. */
bool piece_table_pre_name(const char *const *splits, int n, bool nfc, bool ignore_merges, char *out,
			  size_t out_n);

struct gguf;

/* Readers.  Texts are borrowed from data, which is NULL of an empty file.  -EINVAL with the reason. */
int spm_file_read(const void *data, size_t n, struct piece_table *pt, char *why, size_t why_n);
int llama2c_file_read(const void *data, size_t n, struct piece_table *pt, char *why, size_t why_n);
/* From the keys tokenizer.ggml.*.  -ENOENT: it has none; -ENOTSUP: of
 * another kind; -EINVAL. */
int gguf_vocab_read(const struct gguf *g, struct piece_table *pt, char *why, size_t why_n);

#endif
