/* model_kind.h - what a path that is to be a model really is, by the names and first bytes of its files.
 * For an early answer with a remedy; a model that passes may still be refused when it is read. */
#ifndef QUERN_FORMATS_MODEL_KIND_H
#define QUERN_FORMATS_MODEL_KIND_H

#include <stdbool.h>
#include <stddef.h>

/* 0: a directory in Hugging Face layout, with a configuration, weights and a tokenizer.  Otherwise why says
 * what it is, and what to do: -ENOENT (nothing, an empty directory, a missing part), -ENOTSUP (a GGUF or
 * PyTorch file, a LoRA adapter, another layout), -EBADMSG (git-lfs pointers instead of files). */
int model_kind_check(const char *path, char *why, size_t why_n);

/* Whether the file is a git-lfs pointer: a few lines of text in place of the file. */
bool model_kind_is_pointer(const char *path);

#endif
