#include "cli/rundir.h"

#include "base/alloc.h"
#include "base/err.h"
#include "cli/terminal/environment.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "quern-";
/* A younger directory may belong to a service that has not locked it yet. */
static const time_t young_s = 60;

/* Remove a directory and its entries.  It has no subdirectories. */
static void remove_tree(int parent_fd, const char *name)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(fd, e->d_name, 0);
	closedir(dir);
	unlinkat(parent_fd, name, AT_REMOVEDIR);
}

/* Remove a directory that a killed service left: one that is ours, not young, and not locked. */
static void sweep_one(int base_fd, const char *name)
{
	struct stat st;
	if (fstatat(base_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
	    st.st_uid != getuid() || (st.st_mode & 077) || time(NULL) - st.st_mtime < young_s)
		return;
	char *lock = xasprintf("%s/lock", name);
	int fd = openat(base_fd, lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		remove_tree(base_fd, name);
	if (fd >= 0)
		close(fd);
	free(lock);
}

static void sweep(const char *base)
{
	int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *e; (e = readdir(dir));)
		if (strncmp(e->d_name, prefix, sizeof prefix - 1) == 0)
			sweep_one(fd, e->d_name);
	closedir(dir);
}

int rundir_open(struct rundir *d, struct why *why)
{
	const char *base = environment_read().runtime_dir;
	size_t room = sizeof d->path - sizeof "/quern-XXXXXX";
	if (!base || strlen(base) > room || access(base, W_OK) < 0)
		base = "/tmp";
	sweep(base);
	snprintf(d->path, sizeof d->path, "%.*s/%sXXXXXX", (int)room, base, prefix);
	if (!mkdtemp(d->path))
		return err_why(why, -errno, "cannot make a run directory in %s: %s", base, strerror(errno));
	char *lock = xasprintf("%s/lock", d->path);
	d->lock_fd = open(lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int rc = d->lock_fd < 0 || flock(d->lock_fd, LOCK_EX) < 0 ? -errno : 0;
	free(lock);
	if (rc) {
		err_why(why, rc, "cannot lock the run directory %s: %s", d->path, strerror(-rc));
		rundir_remove(d);
	}
	return rc;
}

void rundir_remove(struct rundir *d)
{
	remove_tree(AT_FDCWD, d->path);
	if (d->lock_fd >= 0)
		close(d->lock_fd);
	d->lock_fd = -1;
}
