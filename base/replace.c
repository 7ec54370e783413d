#include "base/replace.h"

#include "base/alloc.h"
#include "base/entropy.h"
#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int replace_begin(struct replace *r, const char *path, mode_t mode, struct why *why)
{
	char *temp = xasprintf("%s.%016" PRIx64, path, entropy_u64());
	const int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	*r = (struct replace){.f = fd < 0 ? NULL : fdopen(fd, "w")};
	if (!r->f) {
		const int rc = err_why(why, -errno, "%s cannot be written: %s", path, strerror(errno));
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

int replace_end(struct replace *r, struct why *why)
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
		/* If this fails, only a power cut can bring the old file back. */
		(void)file_sync_folder(r->path);
	}
	if (rc)
		err_why(why, rc, "%s cannot be written: %s", r->path, strerror(-rc));
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

int replace_json(const char *path, const json_t *o, struct why *why)
{
	struct replace r;
	int rc = replace_begin(&r, path, 0666, why);
	if (rc)
		return rc;
	if (!json_dumpf(o, r.f, JSON_INDENT(1)))
		return replace_end(&r, why);
	rc = err_why(why, errno ? -errno : -EIO, "%s cannot be written: %s", path,
		     strerror(errno ? errno : EIO));
	replace_drop(&r);
	return rc;
}
