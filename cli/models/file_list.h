/* file_list.h - the files of a model on a server, and which of them to fetch.
 * Names, sizes and counts are received from the server and are checked when they are added. */
#ifndef QUERN_CLI_MODELS_FILE_LIST_H
#define QUERN_CLI_MODELS_FILE_LIST_H

#include "base/err.h"
#include "cli/models/source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILES_MAX = 10000,
	DIGEST_HEX = 65, /* size of a digest as text */
	ETAG_SIZE = 136,
};
#define FILES_BYTES_MAX ((int64_t)1 << 50)

enum digest { DIGEST_NONE, DIGEST_SHA256, DIGEST_GIT /* SHA-1 of "blob SIZE\0" and the contents */ };

struct file_entry {
	char *path; /* owned; source_path_check()ed */
	char *url;  /* owned */
	int64_t size;
	enum digest digest;
	char hex[DIGEST_HEX]; /* hexadecimal digest of the contents, in lower case */
	char etag[ETAG_SIZE]; /* the server's ETag; "": none, or one that does not identify a version */
	bool chosen;
};

struct file_list {
	struct file_entry *files;
	size_t n, cap;
	char commit[DIGEST_HEX]; /* commit that the list describes, in hexadecimal */
};

/* Zeroed is empty. */
void file_list_fini(struct file_list *l);

/* Add a copy of f; hidden files (.gitattributes) are left out.  -EBADMSG, -E2BIG with the reason. */
int file_list_add(struct file_list *l, const struct file_entry *f, struct why *why);

/* Convert a server's hexadecimal digest of n digits to lower case; false if it is not one. */
bool file_list_hex(const char *text, size_t n, char out[DIGEST_HEX]);

/* Name the list after its contents, if the server has no commit. */
int file_list_name(struct file_list *l, const char *url, struct why *why);

struct file_globs {
	char *const *include, *const *exclude;
	size_t n_include, n_exclude;
};
/* Mark the files to fetch.  With include patterns (shell patterns on the whole path; '*' also matches
 * slashes): the files that match one.  Without: the files that serving needs, which are the configuration,
 * the tokenizer, and one set of weights (*.safetensors, else GGUF, else *.bin of llama2.c).  Files that match
 * an exclude pattern are removed.  -ENOENT: no file is left, or there are several sets of weights to choose
 * from; why names them. */
int file_list_choose(struct file_list *l, const struct file_globs *g, struct why *why);

/* Return the number of chosen files, and their bytes. */
size_t file_list_chosen(const struct file_list *l, int64_t *bytes);

#endif
