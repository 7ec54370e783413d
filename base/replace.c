#include "base/replace.h"

#include "base/alloc.h"
#include "base/entropy.h"
#include "base/err.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int replace_begin(struct replace *r, const char *path, mode_t mode, char *why, size_t why_n)
{
	char *temp = xasprintf("%s.%016" PRIx64, path, entropy_u64());
	const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	*r = (struct replace){.f = fd < 0 ? NULL : fdopen(fd, "w")};
	if (!r->f) {
		const int rc = err_why(why, why_n, -errno, "%s cannot be written: %s", path, strerror(errno));
		if (fd >= 0) {
			close(fd);
			unlink(temp);
		}
		free(temp);
		return rc;
	}
	r->path = xstrdup(path);
	r->temp = temp;
	return 0;
}

/* The folder's entries: the new name is on the disk, too. */
static int sync_folder(const char *path)
{
	char *folder = xstrdup(path), *slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	const int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	free(folder);
	/* Some file systems cannot sync a folder; one that cannot be listed can still be written. */
	return rc == -EINVAL || rc == -EACCES ? 0 : rc;
}

int replace_end(struct replace *r, char *why, size_t why_n)
{
	const bool was_bad = ferror(r->f);
	int rc = fflush(r->f) || fsync(fileno(r->f)) ? -errno : was_bad ? -EIO : 0;
	if (fclose(r->f) && !rc)
		rc = -errno;
	r->f = NULL;
	if (!rc && rename(r->temp, r->path))
		rc = -errno;
	if (!rc) {
		free(r->temp);
		r->temp = NULL;
		rc = sync_folder(r->path);
	}
	if (rc)
		err_why(why, why_n, rc, "%s cannot be written: %s", r->path, strerror(-rc));
	replace_drop(r);
	return rc;
}

void replace_drop(struct replace *r)
{
	if (r->f)
		fclose(r->f);
	if (r->temp)
		unlink(r->temp);
	free(r->temp);
	free(r->path);
	*r = (struct replace){0};
}
