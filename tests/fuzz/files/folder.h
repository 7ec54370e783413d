/* folder.h - a directory of small files for a fuzz target, on a memory file system if there is one; made
 * once, removed at the end of the process. */
#ifndef QUERN_TESTS_FUZZ_FILES_FOLDER_H
#define QUERN_TESTS_FUZZ_FILES_FOLDER_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_PATH = 512 };

static char folder_path[64];

/* Return the path of a file in the directory. */
static inline const char *folder_name(char out[FOLDER_PATH], const char *name)
{
	snprintf(out, FOLDER_PATH, "%s/%s", folder_path, name);
	return out;
}

/* Remove a file, or a directory with its files; does nothing if it is missing. */
static inline void folder_remove(const char *path)
{
	char name[2 * FOLDER_PATH];
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof name, "%s/%s", path, e->d_name);
		folder_remove(name);
	}
	if (d)
		closedir(d);
	remove(path);
}

static inline void folder_end(void)
{
	folder_remove(folder_path);
}

static inline void folder_begin(void)
{
	if (folder_path[0])
		return;
	strcpy(folder_path, access("/dev/shm", W_OK | X_OK) ? "/tmp/fuzz_XXXXXX" : "/dev/shm/fuzz_XXXXXX");
	if (!mkdtemp(folder_path)) {
		perror(folder_path);
		exit(2);
	}
	atexit(folder_end);
}

static inline void folder_put(const char *path, const uint8_t *data, size_t n)
{
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f)) {
		perror(path);
		exit(2);
	}
}

#endif
