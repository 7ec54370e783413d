/* synced_renames.h - records fsync() and rename() below a folder, and checks that each rename survives a
 * power cut. It replaces both functions in the whole test program. */
#ifndef QUERN_TESTS_SYNCED_RENAMES_H
#define QUERN_TESTS_SYNCED_RENAMES_H

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct synced_call {
	char *from, *to; /* to: NULL for an fsync */
} synced_calls[256];
static size_t n_synced_calls;
static const char *synced_below; /* NULL: nothing is recorded */

static void synced_note(const char *from, const char *to)
{
	if (!synced_below || strncmp(from, synced_below, strlen(synced_below)) != 0)
		return;
	cr_assert_lt(n_synced_calls, sizeof synced_calls / sizeof *synced_calls);
	synced_calls[n_synced_calls++] = (struct synced_call){xstrdup(from), to ? xstrdup(to) : NULL};
}

int fsync(int fd)
{
	char link[64], path[1024];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	const ssize_t n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	synced_note(path, NULL);
	return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
	synced_note(from, to);
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool synced_between(size_t from, size_t to, const char *path, size_t n)
{
	for (size_t i = from; i < to; i++)
		if (!synced_calls[i].to && strlen(synced_calls[i].from) == n &&
		    strncmp(synced_calls[i].from, path, n) == 0)
			return true;
	return false;
}

/* Expect that each renamed file or folder was synced before its rename, and the folder of its new name after
 * the rename and before the next. Return the number of renames. */
static size_t synced_expect(void)
{
	size_t n = 0;
	for (size_t i = 0; i < n_synced_calls; i++) {
		const struct synced_call *c = &synced_calls[i];
		if (!c->to)
			continue;
		size_t next = i + 1;
		while (next < n_synced_calls && !synced_calls[next].to)
			next++;
		cr_expect(synced_between(0, i, c->from, strlen(c->from)),
			  "%s is renamed before it is on the disk", c->from);
		cr_expect(synced_between(i + 1, next, c->to, (size_t)(strrchr(c->to, '/') - c->to)),
			  "the folder of %s is not synced", c->to);
		n++;
	}
	for (size_t i = 0; i < n_synced_calls; i++) {
		free(synced_calls[i].from);
		free(synced_calls[i].to);
	}
	n_synced_calls = 0;
	return n;
}

#endif
