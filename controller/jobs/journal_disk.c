/* journal_disk.c - room on the journal's disk: margins, and a ballast that is deleted when the disk is
 * full. */
#include "controller/jobs/journal_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)

/* Return total / part, within [lo, hi]. */
static int64_t share(int64_t total, int64_t part, int64_t lo, int64_t hi)
{
	int64_t n = total / part;
	return n < lo ? lo : n > hi ? hi : n;
}

/* Measure the disk's total and free bytes.  false: the file system does not report them. */
static bool measure(int fd, int64_t *total, int64_t *left)
{
	struct statvfs st;
	if (fd < 0 || fstatvfs(fd, &st) || !st.f_blocks)
		return false;
	*total = (int64_t)st.f_blocks * (int64_t)st.f_frsize;
	*left = (int64_t)st.f_bavail * (int64_t)st.f_frsize;
	return true;
}

void journal_disk_init(struct journal_disk *d, const struct journal_config *cfg, int fd)
{
	int64_t total, left;
	*d = (struct journal_disk){.fd = fd, .ballast = xasprintf("%s-ballast", cfg->path)};
	if (!measure(fd, &total, &left))
		total = INT64_MAX;
	int64_t margin = share(total, 8, MIB, 256 * MIB);
	d->margin[JOURNAL_FILE] = cfg->file_margin ? cfg->file_margin : margin;
	/* Half of it is left for durable jobs. */
	d->margin[JOURNAL_JOB] = cfg->job_margin ? cfg->job_margin : d->margin[JOURNAL_FILE] / 2;
	for (int i = 0; i < JOURNAL_N_NEEDS; i++)
		if (d->margin[i] < 0)
			d->margin[i] = 0;
	/* A delete writes some tens of pages, and the checkpoint after it writes the contents of the -wal
	 * file. */
	d->ballast_bytes = share(total, 32, 256 * KIB, 16 * MIB);
	d->transaction_bytes = share(total, 32, 256 * KIB, 16 * MIB);
	d->wal_bytes = share(total, 32, 256 * KIB, 4 * MIB);
	d->spare_bytes = share(total, 64, 64 * KIB, MIB);
	d->has_ballast = access(d->ballast, F_OK) == 0;
}

void journal_disk_fini(struct journal_disk *d)
{
	free(d->ballast);
	d->ballast = NULL;
}

int64_t journal_disk_free(const struct journal_disk *d)
{
	int64_t total, left;
	return measure(d->fd, &total, &left) ? left : INT64_MAX;
}

int64_t journal_disk_keeps(const struct journal_disk *d, enum journal_need need)
{
	if (d->has_ballast)
		return d->margin[need];
	/* Half of the ballast is for ends, the other half only for deletes. */
	return need == JOURNAL_END ? d->ballast_bytes / 2 : d->margin[need] + d->ballast_bytes;
}

/* --- the ballast --- */

void journal_disk_make_ballast(struct journal_disk *d)
{
	if (d->has_ballast || journal_disk_free(d) < d->ballast_bytes + d->margin[JOURNAL_JOB])
		return;
	int fd = open(d->ballast, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	/* Allocate blocks, not only a length. */
	int rc = posix_fallocate(fd, 0, d->ballast_bytes);
	close(fd);
	if (rc) {
		unlink(d->ballast);
		log_debug("journal", "ballast not made reason=\"%s\"", strerror(rc));
		return;
	}
	d->has_ballast = true;
	log_debug("journal", "ballast made bytes=%" PRId64, d->ballast_bytes);
}

bool journal_disk_drop_ballast(struct journal_disk *d)
{
	if (!d->has_ballast)
		return false;
	d->has_ballast = false;
	if (unlink(d->ballast))
		return false;
	log_warn("journal", "ballast deleted file=%s reason=\"the disk is full\"", d->ballast);
	return true;
}

int journal_disk_refuse(const struct journal_disk *d, enum journal_need need, const char *path,
			struct why *why)
{
	return err_why(why, -EDQUOT,
		       "the disk of %s has %" PRId64 " KiB left, and %s leave %" PRId64
		       " KiB free: free space there, delete files that are not needed, or lower %s",
		       path, journal_disk_free(d) / KIB, need == JOURNAL_JOB ? "durable jobs" : "files",
		       journal_disk_keeps(d, need) / KIB,
		       need == JOURNAL_JOB ? "--job-margin" : "--file-margin");
}
