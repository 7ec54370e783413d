/* fuzz_hub.c - arbitrary bytes as a hub's list of files: every accepted path is safe to write below a model's
 * directory, and choosing files terminates.
 *
 *   clang -fsanitize=fuzzer,address,undefined -DFUZZ_LIBRARY -I. ... tests/fuzz/fuzz_hub.c */
#include "cli/models/hub.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(struct file_list *l)
{
	char none[] = "*.txt", *exclude[] = {none};
	struct why why;
	int64_t before, bytes;
	for (size_t i = 0; i < l->n; i++) {
		const char *p = l->files[i].path;
		assert(*p && *p != '/' && *p != '.' && !strstr(p, "/.") && !strstr(p, "//"));
		assert(l->files[i].size >= 0 && l->files[i].size <= FILES_BYTES_MAX);
		assert(strncmp(l->files[i].url, "http://h/", 9) == 0);
		l->files[i].chosen = true;
	}
	file_list_chosen(l, &before);
	assert(before >= 0 && before <= FILES_BYTES_MAX);
	why.text[0] = 1;
	int rc = file_list_choose(l, &(struct file_globs){.exclude = exclude, .n_exclude = 1}, &why);
	assert(rc ? why.text[0] > 1 : file_list_chosen(l, &bytes) > 0);
	file_list_fini(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct file_list l = {0};
	struct why why;
	char name[2 * SOURCE_PART_MAX + 2], revision[SOURCE_REVISION];
	struct source s;
	bool sized;
	if (!hub_read_revision((const char *)bytes, n, "http://h/", &l, &sized, &why))
		assert(strlen(l.commit) >= 40);
	check(&l);
	hub_read_tree((const char *)bytes, n, "http://h/", &l, &why);
	check(&l);
	char *text = strndup((const char *)bytes, n);
	if (!source_name(text, name, revision, &why))
		assert(strchr(name, '/') && *name != '.' && !strstr(name, "/.") && !strstr(revision, ".."));
	if (!source_parse(text, "https://h", NULL, &s, &why))
		assert(strchr(s.name, '/') && *s.name != '.' && !strstr(s.name, "/.") &&
		       !strstr(s.file, "/"));
	free(text);
	return 0;
}

#ifndef FUZZ_LIBRARY
int main(int argc, char **argv)
{
	static char data[1 << 20];
	FILE *f = argc > 1 ? fopen(argv[1], "rb") : stdin;
	const size_t n = f ? fread(data, 1, sizeof data, f) : 0;
	return f ? LLVMFuzzerTestOneInput((const uint8_t *)data, n) : 1;
}
#endif
