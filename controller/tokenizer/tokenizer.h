/* tokenizer.h - converts text to token ids and back, as Hugging Face's `tokenizers` and `sentencepiece` do.
 * Supported files:
 *   tokenizer.json (HF)               byte-level BPE (GPT-2, Qwen, Llama 3); BPE with byte fallback and
 *                                     metaspace (Llama 2, Mistral, Phi-3); NFC; added and special tokens;
 *                                     template post-processing (BOS, EOS)
 *   tokenizer.model (SentencePiece)   BPE and UNIGRAM, with its normalization
 *   tokenizer.bin (llama2.c)
 * tokenizer_config.json next to them adds tokens and names BOS and EOS. Unsupported options are named in the
 * error. A loaded tokenizer is immutable: threads may share it.
 *
 *     text "<s>Hello world"
 *       |  added.h       added tokens, searched for in the text as given        <s>
 *       |  normalize.h   Unicode forms, prepending, replacing
 *       |  added.h       added tokens, searched for in the normalized text
 *       |  pretok.h      words, by patterns (splitter.h) or white space         "Hello" " world"
 *       v  bpe.h         merges within each word, to pieces of the vocabulary (vocab.h)
 *                        (SentencePiece's models: spm.h instead of the three above, and BPE by scores)
 *     ids, and back:     tokenizer_decode.c, or one id at a time detok.h */
#ifndef QUERN_CONTROLLER_TOKENIZER_TOKENIZER_H
#define QUERN_CONTROLLER_TOKENIZER_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growable array of token ids.  A zeroed struct is empty. */
struct token_ids {
	uint32_t *ids; /* owned */
	size_t n;
	size_t cap;
};

void token_ids_push(struct token_ids *t, uint32_t id);
void token_ids_fini(struct token_ids *t);

struct tokenizer;

enum tokenizer_flags {
	TOKENIZER_ADD_SPECIAL = 1, /* add BOS and EOS as the post-processor does */
	TOKENIZER_NO_SPECIAL = 2,  /* do not recognize special tokens in the text */
};

/* Load path: one of these files, recognized by its content; a directory that holds one, searched by name in
 * this order; or a weights file with one of them next to it. -ENOENT, -EINVAL, -EFBIG with the reason. */
int tokenizer_load(const char *path, struct tokenizer **out, struct why *why);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* Append the ids of text[0..n) to out. -EINVAL if the text is not UTF-8: why names the offset. NUL bytes are
 * ordinary text. -E2BIG: the file's split pattern takes too long on this text (never with the patterns of
 * GPT-2, Llama 3 and Qwen).
 * plain: ascending, disjoint spans of the text in which no special token is recognized, such as a user's
 * message in a rendered chat; NULL with n_plain 0. The model's files say which tokens are special: Qwen's
 * <think> and <tool_call> are added tokens, but not special. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
		     const struct text_span *plain, size_t n_plain, struct token_ids *out, struct why *why);

/* Append the text of all ids, as HF's decode(ids, skip_special_tokens=skip_special,
 * clean_up_tokenization_spaces=False). Bytes that do not form a whole character become U+FFFD. -EINVAL for
 * an id out of range. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
		     struct buf *out);

uint32_t tokenizer_n_vocab(const struct tokenizer *t); /* largest id + 1, added tokens included */
size_t tokenizer_max_piece(const struct tokenizer *t); /* bytes of the longest token */
/* Return the id of this token, special or not; -1: none. */
int64_t tokenizer_id(const struct tokenizer *t, const char *piece);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Append the bytes of the token (for logprobs' "bytes"); a byte token gives its byte. */
void tokenizer_piece(const struct tokenizer *t, uint32_t id, struct buf *out);
int64_t tokenizer_bos(const struct tokenizer *t); /* from tokenizer_config.json; -1: none */
int64_t tokenizer_eos(const struct tokenizer *t);

#endif
