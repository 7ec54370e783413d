#include "store/fingerprint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/replace.h"
#include "store/digest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)MANIFEST_DIGEST == (int)DIGEST_BYTES, "a manifest's digests are SHA-256");

enum { READ_BYTES = 1 << 20, RECORD_MAX = 256, YOUNG_S = 2 };

void manifest_fingerprint(const struct manifest *m, char out[MANIFEST_FINGERPRINT])
{
	static const char head[] = "quern model 1";
	uint8_t bytes[DIGEST_BYTES];
	struct digest *d = digest_new();
	digest_add(d, head, sizeof head);
	digest_add(d, m->first ? m->first : "", (m->first ? strlen(m->first) : 0) + 1);
	for (uint32_t i = 0; i < m->n; i++) {
		const struct manifest_file *f = &m->files[i];
		uint8_t size[8];
		for (int k = 0; k < 8; k++)
			size[k] = (uint8_t)((uint64_t)f->size >> (8 * k));
		digest_add(d, f->name, strlen(f->name) + 1);
		digest_add(d, size, sizeof size);
		digest_add(d, f->digest, MANIFEST_DIGEST);
	}
	digest_end(d, bytes);
	digest_hex(bytes, DIGEST_BYTES, out);
}

/* ---- records ---- */

static char *record_path(const struct checksums *c, const struct store_id *id)
{
	return xasprintf("%s/%" PRIx64 "-%" PRIx64, c->records, id->dev, id->ino);
}

static bool read_record(const struct checksums *c, const struct store_id *id, uint8_t out[MANIFEST_DIGEST])
{
	if (!c->records)
		return false;
	char *path = record_path(c, id), *text = NULL, hex[DIGEST_TEXT];
	size_t n;
	int64_t size, mtime, ctime;
	int end = 0;
	const bool yes = !file_read(path, RECORD_MAX, &text, &n, NULL) &&
			 sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %64s\n%n", &size, &mtime, &ctime,
				hex, &end) == 4 &&
			 (size_t)end == n && size == id->size && mtime == id->mtime_ns &&
			 ctime == id->ctime_ns && digest_read(hex, out);
	free(text);
	free(path);
	return yes;
}

static void make_folder(const char *path)
{
	char *part = xstrdup(path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(part, 0777);
		*slash = '/';
	}
	mkdir(part, 0777);
	free(part);
}

/* Failures are ignored: without a record the file is read again. */
static void write_record(const struct checksums *c, const struct store_id *id,
			 const uint8_t digest[MANIFEST_DIGEST])
{
	struct replace r;
	char hex[DIGEST_TEXT];
	if (!c->records)
		return;
	char *path = record_path(c, id);
	make_folder(c->records);
	digest_hex(digest, DIGEST_BYTES, hex);
	if (!replace_begin(&r, path, 0666, NULL)) {
		fprintf(r.f, "%" PRId64 " %" PRId64 " %" PRId64 " %s\n", id->size, id->mtime_ns, id->ctime_ns,
			hex);
		replace_end(&r, NULL);
	}
	free(path);
}

void checksum_record(const struct checksums *c, const char *path, const uint8_t digest[MANIFEST_DIGEST])
{
	struct stat st;
	if (stat(path, &st) < 0)
		return;
	const struct store_id id = store_id_of(&st);
	write_record(c, &id, digest);
}

bool checksum_known(const struct checksums *c, const char *dir, const char *name,
		    uint8_t out[MANIFEST_DIGEST])
{
	struct stat st;
	char *path = file_join(dir, name);
	const bool there = stat(path, &st) == 0 && S_ISREG(st.st_mode);
	free(path);
	if (!there)
		return false;
	const struct store_id id = store_id_of(&st);
	return read_record(c, &id, out);
}

/* ---- files ---- */

static bool is_young(const struct store_id *id)
{
	return clock_unix() - id->ctime_ns / 1000000000 <= YOUNG_S;
}

static int read_all(const struct checksums *c, int fd, uint8_t out[MANIFEST_DIGEST])
{
	char *piece = xmalloc(READ_BYTES);
	struct digest *d = digest_new();
	int rc = 0;
	for (ssize_t n = 1; n && !rc;) {
		n = read(fd, piece, READ_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = -errno;
		else if (c->stop && atomic_load(c->stop))
			rc = -ECANCELED;
		else
			digest_add(d, piece, (size_t)n);
		if (n > 0 && c->bytes)
			atomic_fetch_add(c->bytes, (uint64_t)n);
	}
	digest_end(d, out);
	free(piece);
	return rc;
}

int checksum_file(const struct checksums *c, const char *dir, const char *name, uint8_t out[MANIFEST_DIGEST],
		  struct why *why)
{
	char *path = file_join(dir, name);
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st, after;
	int rc = fd < 0 || fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
	if (rc) {
		err_why(why, rc, "%s: %s", path, rc == -EINVAL ? "not a file" : strerror(-rc));
		goto done;
	}
	const struct store_id id = store_id_of(&st);
	if (read_record(c, &id, out)) {
		if (c->bytes)
			atomic_fetch_add(c->bytes, (uint64_t)id.size);
		goto done;
	}
	if ((rc = read_all(c, fd, out))) {
		err_why(why, rc, "%s: %s", path, strerror(-rc));
		goto done;
	}
	const struct store_id now = fstat(fd, &after) < 0 ? (struct store_id){0} : store_id_of(&after);
	if (!store_id_equal(&id, &now))
		rc = err_why(why, -EAGAIN, "%s was changed while it was read", path);
	else if (!is_young(&id))
		write_record(c, &id, out);
done:
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

int manifest_make(struct manifest *out, const struct store_files *l, const char *model,
		  const struct checksums *c, bool known, struct why *why)
{
	uint8_t digest[MANIFEST_DIGEST];
	int rc = 0;
	*out = (struct manifest){.first = l->first ? xstrdup(l->first) : NULL};
	manifest_name_model(model, out->model);
	for (size_t i = 0; i < l->n && !rc; i++) {
		const struct store_file *f = &l->files[i];
		struct stat st;
		char *path = file_join(l->dir, f->name);
		if (!known)
			rc = checksum_file(c, l->dir, f->name, digest, why);
		else if (!checksum_known(c, l->dir, f->name, digest))
			rc = err_why(why, -ENOENT, "%s has no record", path);
		const struct store_id now =
			rc || stat(path, &st) < 0 ? (struct store_id){0} : store_id_of(&st);
		if (!rc && !store_id_equal(&now, &f->id))
			rc = err_why(why, -EAGAIN,
				     "%s was changed or replaced since the service started: restart it",
				     path);
		if (!rc)
			rc = manifest_add(out, f->name, f->id.size, digest, why);
		free(path);
	}
	if (!rc)
		rc = manifest_check(out, why);
	if (rc)
		manifest_fini(out);
	return rc;
}
