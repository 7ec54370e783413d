/* files.h - which files of a model a worker reads: configuration and weights, and of those what tells two
 * models apart without reading them whole.
 *
 *     sketch   1:CONFIG.FILES.SAMPLES, 32 hexadecimal digits each (SHA-256, cut)
 *              1        the version of this rule
 *              CONFIG   the contents of all *.json
 *              FILES    the names and sizes of all files
 *              SAMPLES  of each file of weights the first bytes (a safetensors header, say), and 32
 *                       pieces of 4 KiB, at even distances over the weights of all files
 *
 * Two fine-tunes of one model, which have names, sizes and headers in common, differ in SAMPLES.  A single
 * changed weight does not show: that takes a fingerprint (manifest.h), for which every byte is read. */
#ifndef QUERN_STORE_FILES_H
#define QUERN_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_FILES_MAX = 8192, SKETCH_SIZE = 101 };

/* A file's contents as far as stat(2) tells them apart. */
struct store_id {
	uint64_t dev, ino;
	int64_t size, mtime_ns, ctime_ns;
};

struct store_file {
	char *name; /* owned; below the directory */
	struct store_id id;
};

/* Zeroed is empty. */
struct store_files {
	char *dir;   /* owned: the directory of the names */
	char *first; /* owned: the name that the model's path has, where that is a file; NULL: a directory */
	struct store_file *files; /* [n], by name */
	size_t n, cap;
};

/* Of a directory in Hugging Face layout, a directory of GGUF files, or a file (with the other parts of a
 * split GGUF).  Links are followed.  -ENOENT and others, where weights are missing too, with the reason;
 * -ENODATA: a file is empty, or a git-lfs pointer. */
int store_files_list(const char *path, struct store_files *out, char *why, size_t why_n);
void store_files_fini(struct store_files *l);
/* Whether nothing has been written or replaced in between. */
bool store_files_same(const struct store_files *a, const struct store_files *b);
/* Milliseconds, however large the model is. */
int store_files_sketch(const struct store_files *l, char out[SKETCH_SIZE], char *why, size_t why_n);
/* Whether the model at path has this sketch; one that is not known fits every model.  -EINVAL: it is another
 * one; -ENOENT and others as above. */
int store_files_check(const char *path, const char *sketch, char *why, size_t why_n);
/* Whether it is of this version's rule.  Another program's may be of another, or "": then it tells nothing.
 */
bool sketch_is_known(const char *s);
/* What differs first, for a message: "their configurations differ", ...; NULL: nothing, or one of them is not
 * known. */
const char *sketch_difference(const char *a, const char *b);

struct stat;
struct store_id store_id_of(const struct stat *st);
bool store_id_equal(const struct store_id *a, const struct store_id *b);

#endif
