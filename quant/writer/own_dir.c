#include "quant/writer/own_dir.h"

#include "base/err.h"
#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 };

static int drop(int *fd, int rc)
{
	close(*fd);
	*fd = -1;
	return rc;
}

/* ---- entries ---- */

static DIR *entries(int fd)
{
	const int again = dup(fd);
	DIR *d = again < 0 ? NULL : fdopendir(again);
	if (!d && again >= 0)
		close(again);
	if (d)
		rewinddir(d);
	return d;
}

static bool is_entry(const char *name)
{
	return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool own_dir_is_empty(int fd, const char *but)
{
	DIR *d = entries(fd);
	int n = 0;
	if (!d)
		return false;
	for (const struct dirent *e; (e = readdir(d));)
		n += is_entry(e->d_name) && (!but || strncmp(e->d_name, but, strlen(but)) != 0);
	closedir(d);
	return n == 0;
}

/* Remove files, and directories that contain only files (a result that is a directory). */
static void remove_entries(int fd, const char *mark, bool directories)
{
	DIR *d = entries(fd);
	if (!d)
		return;
	for (const struct dirent *e; (e = readdir(d));) {
		if (!is_entry(e->d_name) || strcmp(e->d_name, mark) == 0 || unlinkat(fd, e->d_name, 0) == 0 ||
		    !directories)
			continue;
		const int inner = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (inner < 0)
			continue;
		remove_entries(inner, "", false);
		close(inner);
		unlinkat(fd, e->d_name, AT_REMOVEDIR);
	}
	closedir(d);
}

void own_dir_empty(int fd, const char *mark)
{
	remove_entries(fd, mark, true);
	unlinkat(fd, mark, 0);
}

/* ---- the directory ---- */

/* Return whether the path still names the directory: its previous owner may have removed it. */
static bool is_at(int fd, const char *path)
{
	struct stat a, b;
	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int own_dir_lock(const char *path, const char *dst, int *fd, struct why *why)
{
	for (int i = 0; i < TRIES; i++) {
		*fd = -1;
		if (mkdir(path, 0777) && errno != EEXIST)
			return file_failed(why, path, "made");
		*fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (*fd < 0 && errno != ENOENT)
			return file_failed(why, path, "opened");
		if (*fd < 0)
			continue;
		if (flock(*fd, LOCK_EX | LOCK_NB))
			break;
		if (is_at(*fd, path))
			return 0;
		drop(fd, 0);
	}
	const int rc = err_why(why, -EBUSY, "%s is being written by another run: wait for its end", dst);
	return *fd < 0 ? rc : drop(fd, rc);
}

int own_dir_take(const char *path, const char *dst, const char *mark, int *fd, struct why *why)
{
	int rc = own_dir_lock(path, dst, fd, why);
	if (rc)
		return rc;
	if (faccessat(*fd, mark, F_OK, 0) && !own_dir_is_empty(*fd, NULL))
		return drop(fd, err_why(why, -EEXIST,
					"%s exists, and is not what a run left behind: remove it, or name "
					"another result",
					path));
	const int made = openat(*fd, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (made < 0) {
		rc = file_failed(why, path, "written");
		rmdir(path); /* if it is empty */
		return drop(fd, rc);
	}
	close(made);
	remove_entries(*fd, mark, true);
	return 0;
}

void own_dir_remove(const char *path, const char *mark, int *fd)
{
	if (*fd < 0)
		return;
	own_dir_empty(*fd, mark);
	rmdir(path);
	drop(fd, 0);
}
