/* manifest.h - the files of a model, as the controller lists them to a worker that lacks them: names,
 * sizes, SHA-256 of the contents.
 * A received list is checked as it is read, since a worker creates files of these names. */
#ifndef QUERN_PROTO_MANIFEST_H
#define QUERN_PROTO_MANIFEST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MANIFEST_FILES_MAX = 8192,
	MANIFEST_NAME_MAX = 240, /* bytes of a name, folders included */
	MANIFEST_DEPTH_MAX = 4,
	MANIFEST_DIGEST = 32,
	MANIFEST_MODEL = 97, /* buffer size of a model's name */
	MANIFEST_FINGERPRINT = 2 * MANIFEST_DIGEST + 1,
};
#define MANIFEST_BYTES_MAX ((int64_t)1 << 50)

struct manifest_file {
	char *name; /* owned; relative to the model's directory, with '/' as separator */
	int64_t size;
	uint8_t digest[MANIFEST_DIGEST];
};

/* An empty manifest is all zeros. */
struct manifest {
	char model[MANIFEST_MODEL]; /* name for people, and of the folder that receives the files */
	char *first; /* owned: the file that is the model (a GGUF file); NULL: the directory is the model */
	struct manifest_file *files; /* [n], sorted by name */
	uint32_t n;
	size_t cap;
	int64_t bytes; /* sum over the files */
};

/* True if the name is relative and has no "..", hidden component, control character or backslash. */
bool manifest_name_is_valid(const char *name);
/* Add a file; names must be in ascending order.  -EBADMSG, -E2BIG with the reason. */
int manifest_add(struct manifest *m, const char *name, int64_t size, const uint8_t digest[MANIFEST_DIGEST],
		 struct why *why);
/* Check the list as a whole: not empty, `first` is one of its files, `model` is a single path component. */
int manifest_check(const struct manifest *m, struct why *why);
void manifest_fini(struct manifest *m);

/* Turn any text into the name of one folder. */
void manifest_name_model(const char *text, char out[MANIFEST_MODEL]);

#endif
