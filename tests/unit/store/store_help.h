/* store_help.h - folders with files, for tests. Everything here may be unused in a test. */
#ifndef QUERN_TESTS_UNIT_STORE_STORE_HELP_H
#define QUERN_TESTS_UNIT_STORE_STORE_HELP_H

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELP __attribute__((unused)) static

static struct why why;

/* Make a new folder. It stays unless the test removes it. */
HELP char *new_dir(void)
{
	char *dir = xstrdup("/tmp/quern-store-XXXXXX");
	cr_assert(mkdtemp(dir));
	return dir;
}

HELP void remove_dir(char *dir)
{
	char *command = xasprintf("rm -rf '%s'", dir);
	cr_assert_eq(system(command), 0);
	free(command);
	free(dir);
}

/* Write n bytes to dir/name, and make its folders. */
HELP void put_bytes(const char *dir, const char *name, const void *bytes, size_t n)
{
	char *path = file_join(dir, name);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0777);
		*slash = '/';
	}
	FILE *f = fopen(path, "wb");
	cr_assert(f, "%s", path);
	cr_assert_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
	free(path);
}

HELP void put(const char *dir, const char *name, const char *text)
{
	put_bytes(dir, name, text, strlen(text));
}

HELP char *noise(size_t n, unsigned seed)
{
	char *p = xmalloc(n + 1);
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (char)(seed >> 24);
	}
	return p;
}

/* Changes one byte. */
HELP void flip(const char *dir, const char *name, long at)
{
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "r+b");
	cr_assert(f, "%s", path);
	fseek(f, at, SEEK_SET);
	const int c = fgetc(f);
	fseek(f, at, SEEK_SET);
	fputc(c ^ 1, f);
	fclose(f);
	free(path);
}

#endif
