#include "cli/models/part.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <assert.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES = 64, STATE_MAX = 4 << 20, READ_BYTES = 256 << 10 };
static const int64_t piece_min = 1 << 20, piece_max = 64 << 20;

/* ---- folders, names ---- */

/* Make the folders of dir/path below dir.  None of them may be a symbolic link. */
static int make_folders(const char *dir, const char *path, struct why *why)
{
	char *full = file_join(dir, path), *from = full + strlen(dir) + 1;
	int rc = 0;
	for (char *slash = strchr(from, '/'); slash && !rc; slash = strchr(slash + 1, '/')) {
		struct stat st;
		*slash = '\0';
		if (mkdir(full, 0777) < 0 && errno != EEXIST)
			rc = err_why(why, -errno, "cannot make %s: %s", full, strerror(errno));
		else if (lstat(full, &st) < 0 || !S_ISDIR(st.st_mode))
			rc = err_why(why, -ENOTDIR, "%s is not a directory", full);
		*slash = '/';
	}
	free(full);
	return rc;
}

/* Return DIR/.FILE.suffix.  It cannot collide, because hidden files of a server are not fetched. */
static char *sibling(const char *path, const char *suffix)
{
	const char *base = strrchr(path, '/') + 1;
	return xasprintf("%.*s.%s.%s", (int)(base - path), path, base, suffix);
}

static int64_t piece_bytes(int64_t size)
{
	const int64_t n = (size / PIECES + piece_min - 1) / piece_min * piece_min;
	return n < piece_min ? piece_min : n > piece_max ? piece_max : n;
}

static void cut_into_pieces(struct part *p)
{
	const int64_t size = p->file->size, each = p->ranges ? piece_bytes(size) : size;
	free(p->pieces);
	p->n_pieces = size ? (size_t)((size + each - 1) / each) : 0;
	p->pieces = xcalloc(p->n_pieces + 1, sizeof *p->pieces);
	for (size_t i = 0; i < p->n_pieces; i++) {
		p->pieces[i].from = (int64_t)i * each;
		p->pieces[i].to = p->pieces[i].from + each < size ? p->pieces[i].from + each : size;
	}
}

/* ---- the state ---- */

/* Take over the progress of an earlier run, if its state is of the same file. */
static void read_state(struct part *p)
{
	json_t *o = NULL;
	int64_t size = -1, each = -1;
	const char *digest = NULL;
	if (json_read(p->state_path, STATE_MAX, &o, NULL))
		return;
	const json_t *done = json_object_get(o, "done");
	json_get_int(o, "size", 0, INT64_MAX, &size, NULL);
	json_get_int(o, "piece", 0, INT64_MAX, &each, NULL);
	json_get_str(o, "digest", &digest, NULL);
	if (size == p->file->size && each == piece_bytes(size) && digest &&
	    strcmp(digest, p->file->hex) == 0 && json_array_size(done) == p->n_pieces)
		for (size_t i = 0; i < p->n_pieces; i++) {
			struct part_piece *x = &p->pieces[i];
			const int64_t n = json_integer_value(json_array_get(done, i));
			x->done = n > 0 && n <= x->to - x->from ? n : 0;
			p->resumed = p->resumed || x->done;
		}
	json_decref(o);
}

/* Return the size of a state.  It is always the same, so that a new state can overwrite the previous one. */
static size_t state_bytes(const struct part *p)
{
	enum { FIELDS = 256, NUMBER = 11 }; /* bytes per chunk: up to 67108864 plus the comma */
	return FIELDS + p->n_pieces * NUMBER;
}

static char *state_text(const struct part *p)
{
	json_t *done = json_array(),
	       *o = json_pack("{s:I, s:I, s:s, s:o}", "size", (json_int_t)p->file->size, "piece",
			      (json_int_t)piece_bytes(p->file->size), "digest", p->file->hex, "done", done);
	for (size_t i = 0; i < p->n_pieces; i++)
		json_array_append_new(done, json_integer(p->pieces[i].done));
	const size_t bytes = state_bytes(p);
	char *text = xmalloc(bytes);
	const size_t n = json_dumpb(o, text, bytes, JSON_COMPACT);
	assert(n && n <= bytes);
	memset(text + n, ' ', bytes - n);
	json_decref(o);
	return text;
}

/* Write text to a file.  0, or the errno. */
static int write_at(const char *path, int flags, const char *text, size_t n)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
	if (fd < 0)
		return errno;
	int err = 0;
	while (n && !err) {
		const ssize_t k = write(fd, text, n);
		if (k > 0) {
			text += k;
			n -= (size_t)k;
		} else if (k == 0 || errno != EINTR) {
			err = k ? errno : EIO;
		}
	}
	if (close(fd) < 0 && !err)
		err = errno;
	return err;
}

int part_save(struct part *p, struct why *why)
{
	if (!p->dirty || !p->ranges)
		return 0;
	char *text = state_text(p);
	int err = write_at(p->temp_path, O_CREAT, text, state_bytes(p));
	if (!err)
		err = rename(p->temp_path, p->state_path) < 0 ? errno : 0;
	if (err) /* on a full disk, overwrite the previous state */
		err = write_at(p->state_path, 0, text, state_bytes(p));
	free(text);
	p->dirty = err != 0;
	return err ? err_why(why, -err, "cannot write %s: %s", p->state_path, strerror(err)) : 0;
}

/* Reserve room for the first state: 0, or the errno. */
static int reserve_state(const struct part *p)
{
	const int fd = open(p->temp_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0)
		return errno;
	const int err = posix_fallocate(fd, 0, (off_t)state_bytes(p));
	close(fd);
	return err == EOPNOTSUPP || err == EINVAL ? 0 : err;
}

/* ---- open and close ---- */

static void hash_start(struct part *p)
{
	char head[64];
	gnutls_hash_hd_t h = NULL;
	if (p->hash)
		gnutls_hash_deinit(p->hash, NULL);
	p->hash = NULL;
	p->hashed = 0;
	if (p->file->digest == DIGEST_NONE)
		return;
	const bool git = p->file->digest == DIGEST_GIT;
	const int e = gnutls_hash_init(&h, git ? GNUTLS_DIG_SHA1 : GNUTLS_DIG_SHA256);
	assert(!e);
	if (git) {
		const int n = snprintf(head, sizeof head, "blob %" PRId64, p->file->size);
		gnutls_hash(h, head, (size_t)n + 1);
	}
	p->hash = h;
}

static int no_space(const struct part *p, int err, struct why *why)
{
	if (err == ENOSPC || err == EDQUOT)
		return err_why(
			why, -ENOSPC,
			"the disk is full: %s; free some space (quern list, quern rm), or set QUERN_MODELS "
			"to a "
			"directory on another disk. What was fetched is kept: the same command resumes",
			p->part_path);
	return err_why(why, -err, "cannot write %s: %s%s", p->part_path, strerror(err),
		       err == EFBIG ? "; raise the limit of a file's size (ulimit -f)" : "");
}

int part_open(struct part *p, const char *dir, const struct file_entry *f, struct why *why)
{
	*p = (struct part){.file = f, .fd = -1, .ranges = true};
	int rc = make_folders(dir, f->path, why);
	if (rc)
		return rc;
	p->path = file_join(dir, f->path);
	p->part_path = sibling(p->path, "part");
	p->state_path = sibling(p->path, "state");
	p->temp_path = sibling(p->path, "state~");
	p->fd = open(p->part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (p->fd < 0)
		return err_why(why, -errno, "cannot write %s: %s", p->part_path, strerror(errno));
	cut_into_pieces(p);
	struct stat st;
	if (fstat(p->fd, &st) == 0 && st.st_size == f->size)
		read_state(p);
	int err = f->size ? posix_fallocate(p->fd, 0, f->size) : 0;
	if (err == EOPNOTSUPP || err == EINVAL)
		err = ftruncate(p->fd, f->size) < 0 ? errno : 0;
	if (!err && st.st_size > f->size && ftruncate(p->fd, f->size) < 0)
		err = errno;
	if (!err)
		err = reserve_state(p);
	hash_start(p);
	return err ? no_space(p, err, why) : 0;
}

void part_close(struct part *p)
{
	if (!p->file)
		return;
	if (p->hash)
		gnutls_hash_deinit(p->hash, NULL);
	if (p->fd >= 0)
		close(p->fd);
	free(p->pieces);
	free(p->path);
	free(p->part_path);
	free(p->state_path);
	free(p->temp_path);
	*p = (struct part){.fd = -1};
}

/* ---- chunks ---- */

int64_t part_done(const struct part *p)
{
	int64_t n = 0;
	for (size_t i = 0; i < p->n_pieces; i++)
		n += p->pieces[i].done;
	return n;
}

bool part_is_complete(const struct part *p)
{
	return part_done(p) == p->file->size;
}

struct part_piece *part_free_piece(struct part *p)
{
	for (size_t i = 0; i < p->n_pieces; i++)
		if (!p->pieces[i].busy && p->pieces[i].done < p->pieces[i].to - p->pieces[i].from)
			return &p->pieces[i];
	return NULL;
}

int part_write(struct part *p, struct part_piece *piece, const char *data, size_t n, struct why *why)
{
	assert((int64_t)n <= piece->to - piece->from - piece->done);
	while (n) {
		const ssize_t k = pwrite(p->fd, data, n, piece->from + piece->done);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return no_space(p, k < 0 ? errno : EIO, why);
		piece->done += k;
		data += k;
		n -= (size_t)k;
	}
	p->dirty = true;
	return 0;
}

int part_restart(struct part *p, bool ranges, struct why *why)
{
	p->ranges = ranges;
	p->resumed = false;
	cut_into_pieces(p);
	hash_start(p);
	p->dirty = false;
	if (unlink(p->state_path) < 0 && errno != ENOENT)
		return err_why(why, -errno, "cannot remove %s: %s", p->state_path, strerror(errno));
	return 0;
}

/* ---- checksum ---- */

/* Return the bytes present before the first hole. */
static int64_t first_hole(const struct part *p)
{
	int64_t n = 0;
	for (size_t i = 0; i < p->n_pieces; i++) {
		n += p->pieces[i].done;
		if (p->pieces[i].done < p->pieces[i].to - p->pieces[i].from)
			break;
	}
	return n;
}

int part_hash(struct part *p, int64_t max, bool *caught_up, struct why *why)
{
	int64_t to = p->hash ? first_hole(p) : p->hashed;
	*caught_up = to - p->hashed <= max;
	if (!*caught_up)
		to = p->hashed + max;
	char *data = to > p->hashed ? xmalloc(READ_BYTES) : NULL;
	int rc = 0;
	while (p->hashed < to && !rc) {
		const size_t want = to - p->hashed < READ_BYTES ? (size_t)(to - p->hashed) : READ_BYTES;
		const ssize_t n = pread(p->fd, data, want, p->hashed);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			rc = err_why(why, n < 0 ? -errno : -EIO, "cannot read %s: %s", p->part_path,
				     n < 0 ? strerror(errno) : "it has become shorter");
		else if (n > 0) {
			gnutls_hash(p->hash, data, (size_t)n);
			p->hashed += n;
		}
	}
	free(data);
	return rc;
}

static int check_digest(struct part *p, struct why *why)
{
	unsigned char digest[32];
	char hex[DIGEST_HEX];
	const bool git = p->file->digest == DIGEST_GIT;
	if (!p->hash)
		return 0;
	assert(p->hashed == p->file->size);
	gnutls_hash_deinit(p->hash, digest);
	p->hash = NULL;
	for (size_t i = 0; i < (git ? 20 : 32); i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	if (strcmp(hex, p->file->hex) == 0)
		return 0;
	return err_why(why, -EBADMSG, "%s: wrong checksum: %s is %.16s..., the server lists %.16s...",
		       p->file->path, git ? "Git's SHA-1" : "SHA-256", hex, p->file->hex);
}

int part_finish(struct part *p, struct why *why)
{
	assert(part_is_complete(p));
	int rc = check_digest(p, why);
	if (rc)
		return rc;
	if (fsync(p->fd) < 0)
		return no_space(p, errno, why);
	if (rename(p->part_path, p->path) < 0)
		return err_why(why, -errno, "cannot rename %s: %s", p->part_path, strerror(errno));
	file_sync_folder(p->path);
	unlink(p->state_path);
	unlink(p->temp_path);
	return 0;
}

int64_t part_on_disk(const char *dir, const struct file_entry *f, bool *finished)
{
	char *path = file_join(dir, f->path), *part = sibling(path, "part");
	struct stat st;
	int64_t bytes = 0;
	*finished = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == f->size;
	if (*finished)
		bytes = f->size;
	else if (lstat(part, &st) == 0 && S_ISREG(st.st_mode))
		bytes = (int64_t)st.st_blocks * 512 < f->size ? (int64_t)st.st_blocks * 512 : f->size;
	free(path);
	free(part);
	return bytes;
}
