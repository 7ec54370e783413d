/* files.h - the files of a model that a worker reads (configuration and weights), and a quick comparison of
 * two models.
 *
 *     sketch   1:CONFIG.FILES.SAMPLES, 32 hexadecimal digits each (SHA-256, truncated)
 *              1        the version of this rule
 *              CONFIG   the contents of all *.json
 *              FILES    the names and sizes of all files
 *              SAMPLES  the first bytes of each weights file (a safetensors header, say), and 32
 *                       samples of 4 KiB, evenly spaced over the weights of all files
 *
 * Two fine-tunes of one model, with equal names, sizes and headers, differ in SAMPLES.  The sketch misses a
 * single changed weight; the fingerprint (manifest.h), for which every byte is read, does not. */
#ifndef QUERN_STORE_FILES_H
#define QUERN_STORE_FILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_FILES_MAX = 8192, QUICK_FINGERPRINT_SIZE = 101 };

/* Identifies a file's contents as well as stat(2) can. */
struct store_id {
	uint64_t dev, ino;
	int64_t size, mtime_ns, ctime_ns;
};

struct store_file {
	char *name; /* owned; relative to the directory */
	struct store_id id;
};

/* An empty list is all zeros. */
struct store_files {
	char *dir;   /* owned: the files' directory */
	char *first; /* owned: name of the file that the model's path names; NULL: the path is a directory */
	struct store_file *files; /* [n], sorted by name */
	size_t n, cap;
};

/* List a directory in Hugging Face layout, a directory of GGUF files, or a file (with the other shards of a
 * split GGUF).  Links are followed.  -ENOENT and others with the reason, also if weights are missing;
 * -ENODATA: a file is empty, or a git-lfs pointer. */
int store_files_list(const char *path, struct store_files *out, struct why *why);
void store_files_fini(struct store_files *l);
/* Compute the sketch.  Takes milliseconds, however large the model is. */
int store_files_quick_fingerprint(const struct store_files *l, char out[QUICK_FINGERPRINT_SIZE],
				  struct why *why);
/* Compare the model at path with a sketch; an unknown sketch matches every model.  -EINVAL: it is another
 * model; -ENOENT and others as above. */
int store_files_check(const char *path, const char *quick_fingerprint, struct why *why);
/* True if s follows this version's rule.  A sketch from another version, or "", tells nothing. */
bool quick_fingerprint_is_known(const char *s);
/* Describe the first difference: "their configurations differ", ...  NULL: none, or a sketch is unknown. */
const char *quick_fingerprint_difference(const char *a, const char *b);

struct stat;
struct store_id store_id_of(const struct stat *st);
bool store_id_equal(const struct store_id *a, const struct store_id *b);

#endif
