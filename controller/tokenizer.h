/* tokenizer.h - text to token ids and back, as Hugging Face's `tokenizers` does it, from
 * a model directory's tokenizer.json (and tokenizer_config.json where it is there).
 * Byte-level BPE (GPT-2, Qwen, Llama 3) and BPE with byte fallback and metaspace (Llama 2,
 * Mistral, Phi-3); NFC; added and special tokens; template post-processing (BOS, EOS).
 * What a file asks for beyond that is named in the error.
 * A loaded tokenizer is immutable: any number of threads may use it at once. */
#ifndef QUERN_CONTROLLER_TOKENIZER_H
#define QUERN_CONTROLLER_TOKENIZER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum tokenizer_flags {
	TOKENIZER_ADD_SPECIAL = 1,   /* BOS and the like, as the post-processor says */
	TOKENIZER_NO_SPECIAL = 2,    /* special tokens in the text are plain text */
};

/* Bytes [start, end) of the text in which no special token is recognized (a user's message
 * within a rendered chat), nor one that reaches into them.  Special is what the files call so:
 * Qwen's <think> and <tool_call> are added tokens that are not.  Ascending, not overlapping. */
struct tokenizer_span {
	size_t start;
	size_t end;
};

struct token_ids {
	uint32_t *ids;   /* owned */
	size_t n;
	size_t cap;
};
void token_ids_push(struct token_ids *t, uint32_t id);
void token_ids_fini(struct token_ids *t);

/* dir: a directory that holds tokenizer.json. -ENOENT, -EINVAL with the reason. */
int tokenizer_load(const char *dir, struct tokenizer **out, char *why, size_t why_n);
void tokenizer_free(struct tokenizer *t);          /* NULL is fine */

/* Append the ids of text[0..n) to out.  Bytes that are not UTF-8 are -EINVAL (why names the
 * offset); NUL bytes are text like any other.  -E2BIG: the file's split pattern takes too long
 * on this text (never with the patterns of GPT-2, Llama 3 and Qwen).  plain: spans, may be NULL with n_plain 0. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
		     const struct tokenizer_span *plain, size_t n_plain, struct token_ids *out,
		     char *why, size_t why_n);

/* Append the text of all ids, as HF's decode(ids, skip_special_tokens=skip_special,
 * clean_up_tokenization_spaces=False).  Bytes that form no whole character become U+FFFD.
 * -EINVAL for an id out of range. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
		     struct buf *out);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);      /* largest id + 1, added tokens included */
size_t tokenizer_max_piece(const struct tokenizer *t);      /* bytes of the longest token */
/* The id of exactly this token (special or not); -1 when there is none. */
int64_t tokenizer_id(const struct tokenizer *t, const char *piece);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Append the bytes that the token stands for (for logprobs' "bytes"); a byte token gives its byte. */
void tokenizer_piece(const struct tokenizer *t, uint32_t id, struct buf *out);
int64_t tokenizer_bos(const struct tokenizer *t);           /* from tokenizer_config.json; -1: none */
int64_t tokenizer_eos(const struct tokenizer *t);

#endif
