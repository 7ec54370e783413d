/* model_kind.h - check early that a path is a model, by the names and first bytes of its files.
 * The error has a remedy.  A model that passes may still be refused when it is read. */
#ifndef QUERN_FORMATS_MODEL_KIND_H
#define QUERN_FORMATS_MODEL_KIND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Return 0 for a directory in Hugging Face layout with a configuration, weights and a tokenizer.  Otherwise
 * why describes the path and the remedy: -ENOENT (nothing, an empty directory, a missing file), -ENOTSUP (a
 * GGUF or PyTorch file, a LoRA adapter, another layout), -EBADMSG (git-lfs pointers instead of files). */
int model_kind_check(const char *path, struct why *why);

/* Return whether the file is a git-lfs pointer: a few lines of text in place of the content. */
bool model_kind_is_pointer(const char *path);

#endif
