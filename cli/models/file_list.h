/* file_list.h - the files of a model on a server, and which of them to fetch.  Names, sizes and counts come
 * from the server and are checked as they are added. */
#ifndef QUERN_CLI_MODELS_FILE_LIST_H
#define QUERN_CLI_MODELS_FILE_LIST_H

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
	char hex[DIGEST_HEX]; /* of the contents, in lower case */
	char etag[ETAG_SIZE]; /* as the server has it; "": none, or one that does not tell versions */
	bool chosen;
};

struct file_list {
	struct file_entry *files;
	size_t n, cap;
	char commit[DIGEST_HEX]; /* what the list is of: hexadecimal digits */
};

/* Zeroed is empty. */
void file_list_fini(struct file_list *l);

/* Adds a copy; hidden files (.gitattributes) are left out.  -EBADMSG, -E2BIG with the reason. */
int file_list_add(struct file_list *l, const struct file_entry *f, char *why, size_t why_n);

/* A server's hexadecimal digest of n digits, to lower case; false: it is not one. */
bool file_list_hex(const char *text, size_t n, char out[DIGEST_HEX]);

/* Names the list by its contents, where the server has no commit. */
int file_list_name(struct file_list *l, const char *url, char *why, size_t why_n);

struct file_globs {
	char *const *include, *const *exclude;
	size_t n_include, n_exclude;
};
/* Marks the files to fetch: those that match a pattern of include (shell patterns on the whole path; '*'
 * matches slashes, too), or without any what serving needs: configuration, tokenizer, and one set of weights
 * (*.safetensors, else GGUF, else *.bin of llama2.c).  Less those that exclude matches.  -ENOENT: nothing is
 * left, or there are several sets of weights to choose from; why names them. */
int file_list_choose(struct file_list *l, const struct file_globs *g, char *why, size_t why_n);

/* Of the chosen files. */
size_t file_list_chosen(const struct file_list *l, int64_t *bytes);

#endif
