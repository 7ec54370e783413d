/* manifest.h - the files of a model, as the controller names them to a worker that has none: names, sizes,
 * SHA-256 of the contents.  A list of a peer is checked as it is read: a worker makes files of these names.
 */
#ifndef QUERN_PROTO_MANIFEST_H
#define QUERN_PROTO_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MANIFEST_FILES_MAX = 8192,
	MANIFEST_NAME_MAX = 240, /* bytes of a name, folders included */
	MANIFEST_DEPTH_MAX = 4,
	MANIFEST_DIGEST = 32,
	MANIFEST_MODEL = 97, /* size of a model's name */
	MANIFEST_FINGERPRINT = 2 * MANIFEST_DIGEST + 1,
};
#define MANIFEST_BYTES_MAX ((int64_t)1 << 50)

struct manifest_file {
	char *name; /* owned; below the model's directory, with '/' between */
	int64_t size;
	uint8_t digest[MANIFEST_DIGEST];
};

/* Zeroed is empty. */
struct manifest {
	char model[MANIFEST_MODEL]; /* a name for people, and of the folder that the files go to */
	char *first; /* owned: the file that is the model (of a GGUF file); NULL: their directory is */
	struct manifest_file *files; /* [n], by name */
	uint32_t n;
	size_t cap;
	int64_t bytes; /* of all files */
};

/* Only relative, without "..", hidden parts, control characters, backslashes. */
bool manifest_name_is_valid(const char *name);
/* Names come in ascending order.  -EBADMSG, -E2BIG with the reason. */
int manifest_add(struct manifest *m, const char *name, int64_t size, const uint8_t digest[MANIFEST_DIGEST],
		 char *why, size_t why_n);
/* What the list as a whole must be: not empty, `first` one of its files, `model` one part of a path. */
int manifest_check(const struct manifest *m, char *why, size_t why_n);
void manifest_fini(struct manifest *m);

/* Any text as the name of one folder. */
void manifest_name_model(const char *text, char out[MANIFEST_MODEL]);

#endif
