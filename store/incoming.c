#include "store/incoming.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/replace.h"
#include "proto/bus.h"
#include "store/digest.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
	DEPTH_MAX = MANIFEST_DEPTH_MAX + 1,
	ROOM_BYTES = 16 << 20, /* left free on the disk */
	SYNC_BYTES = 64 << 20, /* between two hints to write back, so that the final sync is short */
};

struct incoming {
	const struct manifest *m;
	const struct checksums *c;
	char *folder;  /* ROOT/_fetched/MODEL */
	char *staging; /* folder/.FINGERPRINT.part */
	char *final;
	int lock;
	/* The file being received; all files before it are complete. */
	uint32_t file;
	int fd; /* -1: not open */
	int64_t at;
	struct digest *digest; /* digest of the bytes received so far */
	int64_t before;        /* bytes of the files before it */
	bool again;            /* this is the second fetch of the file */
	uint64_t synced;
	/* The next position to request. */
	uint32_t want_file;
	int64_t want_at;
	uint32_t outstanding;
};

/* ---- paths ---- */

/* Return the path of a file of the list, or with part, of the partial file: DIR/FOLDER/.FILE.part. */
static char *path_of(const struct incoming *in, uint32_t file, bool part)
{
	const char *name = in->m->files[file].name, *slash = strrchr(name, '/');
	const int folder = slash ? (int)(slash - name) + 1 : 0;
	return part ? xasprintf("%s/%.*s.%s.part", in->staging, folder, name, name + folder)
		    : file_join(in->staging, name);
}

/* Create the folders in `path` after its first n bytes; none may be a link. */
static int make_folders(char *path, size_t n, struct why *why)
{
	for (char *slash = strchr(path + n, '/'); slash; slash = strchr(slash + 1, '/')) {
		struct stat st;
		*slash = '\0';
		int rc = mkdir(path, 0777) < 0 && errno != EEXIST
				 ? err_why(why, -errno,
					   "cannot make %s: %s; --cache names another place for models", path,
					   strerror(errno))
			 : lstat(path, &st) < 0 || !S_ISDIR(st.st_mode)
				 ? err_why(why, -ENOTDIR, "%s is not a directory", path)
				 : 0;
		*slash = '/';
		if (rc)
			return rc;
	}
	return 0;
}

/* Create all folders of root; existing ones may be links. */
static int make_root(const char *root)
{
	char *path = xasprintf("%s/", root);
	int rc = 0;
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
		*slash = '/';
	}
	free(path);
	return rc;
}

static int remove_tree(const char *dir, int depth)
{
	DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;
	if (!d)
		return -errno;
	for (const struct dirent *e; (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		char *path = file_join(dir, e->d_name);
		if (unlink(path) < 0)
			remove_tree(path, depth + 1);
		free(path);
	}
	closedir(d);
	return rmdir(dir) < 0 ? -errno : 0;
}

/* ---- files present ---- */

/* True if the file is complete; a file with other content is removed. */
static bool is_there(const struct incoming *in, uint32_t file)
{
	const struct manifest_file *f = &in->m->files[file];
	uint8_t digest[MANIFEST_DIGEST];
	struct stat st;
	char *path = path_of(in, file, false);
	bool yes = lstat(path, &st) == 0;
	if (yes && (!S_ISREG(st.st_mode) || st.st_size != f->size ||
		    checksum_file(in->c, in->staging, f->name, digest, NULL) ||
		    memcmp(digest, f->digest, MANIFEST_DIGEST) != 0)) {
		log_warn("store", "fetching again file=%s reason=\"it has another size or checksum\"", path);
		unlink(path);
		yes = false;
	}
	free(path);
	return yes;
}

/* Hash the part of the open file that an earlier run fetched. */
static int hash_begun(struct incoming *in, struct why *why)
{
	enum { PIECE = 1 << 20 };
	char *piece = xmalloc(PIECE);
	int rc = 0;
	in->digest = digest_new();
	for (int64_t at = 0; at < in->at && !rc;) {
		const size_t most = in->at - at < PIECE ? (size_t)(in->at - at) : PIECE;
		const ssize_t n = pread(in->fd, piece, most, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			rc = err_why(why, n ? -errno : -EIO, "cannot read what was fetched of %s: %s",
				     in->m->files[in->file].name, n ? strerror(errno) : "it is cut");
		else
			digest_add(in->digest, piece, (size_t)n);
		at += n > 0 ? n : 0;
	}
	free(piece);
	return rc;
}

static int open_part(struct incoming *in, struct why *why)
{
	const struct manifest_file *f = &in->m->files[in->file];
	struct stat st;
	char *path = path_of(in, in->file, true);
	int rc = make_folders(path, strlen(in->staging) + 1, why);
	if (!rc) {
		in->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
		if (in->fd < 0 || fstat(in->fd, &st) < 0)
			rc = err_why(why, -errno, "cannot write %s: %s", path, strerror(errno));
	}
	if (!rc && (!S_ISREG(st.st_mode) || st.st_size > f->size) && ftruncate(in->fd, 0) < 0)
		rc = err_why(why, -errno, "cannot write %s: %s", path, strerror(errno));
	if (!rc) {
		in->at = st.st_size > f->size ? 0 : st.st_size;
		rc = hash_begun(in, why);
	}
	free(path);
	return rc;
}

static void close_part(struct incoming *in)
{
	if (in->fd >= 0)
		close(in->fd);
	in->fd = -1;
	in->at = 0;
	digest_drop(in->digest);
	in->digest = NULL;
}

/* Complete the current file.  1: its checksum is wrong, and it is fetched again. */
static int finish_file(struct incoming *in, struct why *why)
{
	const struct manifest_file *f = &in->m->files[in->file];
	uint8_t digest[MANIFEST_DIGEST];
	char *part = path_of(in, in->file, true), *path = path_of(in, in->file, false);
	int rc = 0;
	digest_end(in->digest, digest);
	in->digest = NULL;
	if (memcmp(digest, f->digest, MANIFEST_DIGEST) != 0) {
		rc = in->again ? err_why(why, -EBADMSG,
					 "%s has a wrong checksum, twice: the controller's disk or memory, "
					 "or this "
					 "host's, is damaged",
					 f->name)
			       : 1;
		in->again = true;
		if (ftruncate(in->fd, 0) < 0 && rc > 0)
			rc = err_why(why, -errno, "cannot write %s: %s", part, strerror(errno));
		if (rc > 0)
			log_warn("store", "fetching again file=%s reason=\"wrong checksum\"", f->name);
	} else if (fsync(in->fd) < 0 || rename(part, path) < 0) {
		rc = err_why(why, -errno, "cannot write %s: %s", path, strerror(errno));
	} else {
		file_sync_folder(path);
		checksum_record(in->c, path, digest);
	}
	close_part(in);
	free(part);
	free(path);
	return rc;
}

/* Open the next file that is incomplete. */
static int go_on(struct incoming *in, struct why *why)
{
	for (int rc; in->file < in->m->n; in->before += in->m->files[in->file++].size, in->again = false) {
		if (is_there(in, in->file))
			continue;
		do {
			if ((rc = open_part(in, why)))
				return rc;
			if (in->at < in->m->files[in->file].size)
				return 0;
		} while ((rc = finish_file(in, why)) > 0);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- lifecycle ---- */

static int take_lock(struct incoming *in, struct why *why)
{
	char *path = file_join(in->folder, ".lock");
	int rc = 0;
	in->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	struct stat held, named;
	if (in->lock < 0 && errno != ENOENT)
		rc = err_why(why, -errno, "cannot write %s: %s; --cache names another place for models", path,
			     strerror(errno));
	/* quern rm holds the lock while it removes the folder with the lock file, so check that the name
	 * still refers to this file. */
	else if (in->lock < 0 || flock(in->lock, LOCK_EX | LOCK_NB) < 0 || fstat(in->lock, &held) < 0 ||
		 stat(path, &named) < 0 || held.st_ino != named.st_ino)
		rc = err_why(why, -EBUSY, "another worker of this host fetches %s", in->folder);
	free(path);
	return rc;
}

/* Reuse intact files of a finished entry that has damaged ones. */
static void link_finished(const struct incoming *in)
{
	for (uint32_t i = 0; i < in->m->n; i++) {
		char *from = file_join(in->final, in->m->files[i].name), *to = path_of(in, i, false);
		struct stat st;
		if (lstat(from, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == in->m->files[i].size &&
		    !make_folders(to, strlen(in->staging) + 1, NULL) && link(from, to) < 0)
			errno = 0; /* it is fetched again */
		free(from);
		free(to);
	}
}

/* Check that the disk has room for the missing bytes. */
static int check_room(const struct incoming *in, struct why *why)
{
	struct statvfs v;
	const int64_t missing = in->m->bytes - incoming_done(in);
	if (incoming_is_complete(in) || statvfs(in->folder, &v) < 0)
		return 0;
	const uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	if (free_bytes >= (uint64_t)missing + ROOM_BYTES)
		return 0;
	return err_why(why, -ENOSPC,
		       "the model's files that are missing take %lld MiB, but %s has only %llu MiB free: "
		       "quern rm, or --cache on another disk",
		       (long long)((missing + (1 << 20) - 1) >> 20), in->folder,
		       (unsigned long long)(free_bytes >> 20));
}

int incoming_open(struct incoming **out, const char *root, const struct manifest *m,
		  const struct checksums *c, struct why *why)
{
	struct incoming *in = xcalloc(1, sizeof *in);
	char fingerprint[MANIFEST_FINGERPRINT];
	*in = (struct incoming){.m = m, .c = c, .lock = -1, .fd = -1};
	manifest_fingerprint(m, fingerprint);
	in->folder = xasprintf("%s/" CACHED_FETCHED "/%s", root, m->model);
	in->final = file_join(in->folder, fingerprint);
	in->staging = xasprintf("%s/.%s.part", in->folder, fingerprint);
	char *inside = xasprintf("%s/", in->staging);
	int rc = make_root(root);
	if (rc)
		err_why(why, rc, "cannot make %s: %s; --cache names another place for models", root,
			strerror(-rc));
	if (!rc)
		rc = make_folders(inside, strlen(root) + 1, why);
	free(inside);
	if (!rc && !(rc = take_lock(in, why))) {
		link_finished(in);
		if (!(rc = go_on(in, why)))
			rc = check_room(in, why);
		incoming_rewind(in);
	}
	if (rc)
		incoming_close(in);
	else
		*out = in;
	return rc;
}

void incoming_close(struct incoming *in)
{
	if (!in)
		return;
	close_part(in);
	if (in->lock >= 0)
		close(in->lock);
	free(in->folder);
	free(in->staging);
	free(in->final);
	free(in);
}

int64_t incoming_done(const struct incoming *in)
{
	return in->before + in->at;
}

bool incoming_is_complete(const struct incoming *in)
{
	return in->file == in->m->n;
}

/* ---- bytes ---- */

void incoming_rewind(struct incoming *in)
{
	in->want_file = in->file;
	in->want_at = in->at;
	in->outstanding = 0;
}

uint32_t incoming_outstanding(const struct incoming *in)
{
	return in->outstanding;
}

/* Later files are requested from their beginnings.  If such a file turns out to be present, up to a window
 * of its bytes is dropped; this is rare. */
bool incoming_want(struct incoming *in, uint32_t *file, uint64_t *offset, uint32_t *bytes)
{
	while (in->want_file < in->m->n && in->want_at >= in->m->files[in->want_file].size) {
		in->want_file++;
		in->want_at = 0;
	}
	if (in->want_file >= in->m->n)
		return false;
	const int64_t left = in->m->files[in->want_file].size - in->want_at;
	*file = in->want_file;
	*offset = (uint64_t)in->want_at;
	*bytes = left < BUS_CHUNK_MAX ? (uint32_t)left : BUS_CHUNK_MAX;
	in->want_at += *bytes;
	in->outstanding++;
	return true;
}

static int write_all(struct incoming *in, const char *bytes, size_t n, struct why *why)
{
	int64_t at = in->at;
	while (n) {
		const ssize_t done = pwrite(in->fd, bytes, n, (off_t)at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return err_why(why, done ? -errno : -EIO,
				       "cannot write %s in %s: %s; what was fetched is kept",
				       in->m->files[in->file].name, in->staging,
				       done && errno == ENOSPC
					       ? "the disk is full: quern rm, or --cache on another "
						 "disk"
					       : strerror(errno));
		bytes += done;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

int incoming_put(struct incoming *in, uint32_t file, uint64_t offset, const void *bytes, uint32_t n,
		 struct why *why)
{
	if (incoming_is_complete(in) || file != in->file || offset != (uint64_t)in->at)
		return 1;
	const int64_t size = in->m->files[file].size;
	if (n > size - in->at)
		return err_why(why, -EBADMSG, "%s has %lld bytes by the list, and more came",
			       in->m->files[file].name, (long long)size);
	if (in->outstanding)
		in->outstanding--;
	int rc = write_all(in, bytes, n, why);
	if (rc)
		return rc;
	digest_add(in->digest, bytes, n);
	in->at += n;
	in->synced += n;
	if (in->synced >= SYNC_BYTES) {
		sync_file_range(in->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		in->synced = 0;
	}
	if (in->at < size)
		return 0;
	if ((rc = finish_file(in, why)) < 0)
		return rc;
	const uint32_t next = rc ? file : file + 1;
	if (!rc) {
		in->before += size;
		in->file++;
		in->again = false;
	}
	if ((rc = go_on(in, why)))
		return rc;
	/* Requests in flight continue at the start of the next file; if that is not the next position,
	 * request anew. */
	if (in->file != next || in->at || next == file)
		incoming_rewind(in);
	return 0;
}

/* ---- the end ---- */

static int write_manifest(const struct incoming *in, struct why *why)
{
	char *path = file_join(in->staging, ".quern-model.json"), hex[DIGEST_TEXT];
	json_t *digests = json_object();
	for (uint32_t i = 0; i < in->m->n; i++) {
		digest_hex(in->m->files[i].digest, DIGEST_BYTES, hex);
		json_object_set_new(digests, in->m->files[i].name, json_string(hex));
	}
	json_t *o = json_pack("{s:s+, s:s, s:s, s:s, s:I, s:I, s:I, s:o}", "name", CACHED_FETCHED "/",
			      in->m->model, "revision", "controller", "commit", strrchr(in->final, '/') + 1,
			      "source", "controller", "date", (json_int_t)clock_unix(), "files",
			      (json_int_t)in->m->n, "bytes", (json_int_t)in->m->bytes, "digests", digests);
	int rc = replace_json(path, o, why);
	json_decref(o);
	free(path);
	return rc;
}

int incoming_publish(struct incoming *in, char path[PATH_MAX], struct why *why)
{
	char *old = xasprintf("%s/.%s.old", in->folder, strrchr(in->final, '/') + 1);
	int rc = write_manifest(in, why);
	remove_tree(old, 0);
	/* A damaged entry may occupy the name. */
	if (!rc && rename(in->staging, in->final) < 0 &&
	    (rename(in->final, old) < 0 || rename(in->staging, in->final) < 0))
		rc = err_why(why, -errno, "cannot rename %s to %s: %s", in->staging, in->final,
			     strerror(errno));
	remove_tree(old, 0);
	file_sync_folder(in->final);
	free(old);
	return rc ? rc : cached_path(in->final, in->m, path, why);
}
