#include "quant/writer/writer_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "quant/writer/own_dir.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* File that marks a temporary directory until the result is whole; a directory without it is never
 * removed. */
static const char mark[] = ".quern-partial";
enum { COPY_BYTES = 1 << 20 };

static const struct writer_backend *const backends[] = {
	[WRITER_SAFETENSORS] = &writer_safetensors,
	[WRITER_GGUF] = &writer_gguf,
	[WRITER_AK48] = &writer_ak48,
};

bool writer_format_of(const char *name, enum writer_format *out)
{
	for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
		if (strcmp(backends[i]->name, name) != 0)
			continue;
		*out = (enum writer_format)i;
		return true;
	}
	return false;
}

int writer_new(const char *dst, enum writer_format format, struct writer **out, struct why *why)
{
	struct stat st;
	struct writer *w = xcalloc(1, sizeof *w);
	w->backend = backends[format];
	w->dst = xstrdup(dst);
	w->dir_fd = -1;
	w->shard_bytes = WRITER_SHARD_BYTES;
	for (size_t n = strlen(w->dst); n > 1 && w->dst[n - 1] == '/'; n--)
		w->dst[n - 1] = '\0';
	w->temp = xasprintf("%s.partial", w->dst);
	*out = NULL;
	int rc = 0;
	if (lstat(w->dst, &st) == 0)
		rc = err_why(why, -EEXIST, "%s exists already: remove it, or name another result", w->dst);
	if (!rc)
		rc = own_dir_take(w->temp, w->dst, mark, &w->dir_fd, why);
	if (rc) {
		writer_abort(&w);
		return rc;
	}
	*out = w;
	return 0;
}

void writer_shards(struct writer *w, int64_t bytes)
{
	w->shard_bytes = bytes;
}

/* ---- tensors ---- */

int writer_declare(struct writer *w, const struct writer_tensor *t, struct why *why)
{
	struct writer_slot s = {.n_dims = t->n_dims, .n_rows = 1};
	int values, bytes;
	assert(!w->begun && t->n_dims >= 0 && t->n_dims <= WRITER_DIMS_MAX);
	if (!w->backend->type(t->type, &s.type, &s.code, &values, &bytes))
		return err_why(why, -ENOTSUP, "tensor %s is %s, which %s does not have", t->name, t->type,
			       w->backend->name);
	int64_t all = 1;
	for (int d = 0; d < t->n_dims; d++) {
		s.shape[d] = t->shape[d];
		if (t->shape[d] < 0 || __builtin_mul_overflow(all, t->shape[d], &all) || all > INT64_MAX / 16)
			return err_why(why, -EINVAL, "tensor %s has an impossible shape", t->name);
		if (d < t->n_dims - 1)
			s.n_rows *= t->shape[d];
	}
	const int64_t columns = t->n_dims ? t->shape[t->n_dims - 1] : 1;
	if (columns % values)
		return err_why(why, -EINVAL,
			       "tensor %s has rows of %" PRId64 " values; %s needs multiples of %d", t->name,
			       columns, s.type, values);
	s.row_bytes = (size_t)(columns / values) * (size_t)bytes;
	s.name = xstrdup(t->name);
	array_grow(w->slots, w->cap_slots, w->n_slots + 1);
	w->slots[w->n_slots] = s;
	return (int)w->n_slots++;
}

int64_t writer_n_rows(const struct writer *w, int tensor)
{
	return w->slots[tensor].n_rows;
}

size_t writer_row_bytes(const struct writer *w, int tensor)
{
	return w->slots[tensor].row_bytes;
}

int64_t writer_bytes(const struct writer *w)
{
	int64_t bytes = 0;
	for (size_t i = 0; i < w->n_slots; i++)
		bytes += w->slots[i].n_rows * (int64_t)w->slots[i].row_bytes;
	return bytes;
}

int writer_out_new(struct writer *w, const char *name)
{
	array_grow(w->outs, w->cap_outs, w->n_outs + 1);
	w->outs[w->n_outs] = (struct writer_out){.name = xstrdup(name), .fd = -1};
	return (int)w->n_outs++;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_names(const struct writer *w, struct why *why)
{
	int rc = 0;
	char **names = xcalloc(w->n_slots + 1, sizeof *names);
	for (size_t i = 0; i < w->n_slots; i++)
		names[i] = w->slots[i].name;
	qsort(names, w->n_slots, sizeof *names, by_name);
	for (size_t i = 1; !rc && i < w->n_slots; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			rc = err_why(why, -EINVAL, "tensor %s is declared twice", names[i]);
	free(names);
	return rc;
}

int writer_begin(struct writer *w, struct why *why)
{
	int rc = check_names(w, why);
	if (!rc)
		rc = w->backend->lay_out(w, why);
	for (size_t i = 0; !rc && i < w->n_outs; i++) {
		struct writer_out *o = &w->outs[i];
		o->fd = openat(w->dir_fd, o->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (o->fd < 0)
			return file_failed(why, w->dst, "written");
		rc = -posix_fallocate(o->fd, 0, (off_t)o->bytes);
		if (rc == -EOPNOTSUPP || rc == -EINVAL) /* not supported by the file system, or an empty
							 * file */
			rc = ftruncate(o->fd, (off_t)o->bytes) ? -errno : 0;
		if (rc)
			err_why(why, rc, "%s needs %" PRId64 " bytes: %s", w->dst, writer_bytes(w),
				strerror(-rc));
	}
	w->begun = !rc;
	return rc;
}

static int write_at(int fd, const void *data, size_t n, uint64_t at)
{
	const unsigned char *p = data;
	while (n) {
		const ssize_t k = pwrite(fd, p, n, (off_t)at);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? -errno : -EIO;
		p += k;
		n -= (size_t)k;
		at += (uint64_t)k;
	}
	return 0;
}

int writer_preview(struct writer *w, char **path, struct why *why)
{
	int rc = 0;
	assert(w->begun);
	for (size_t i = 0; !rc && i < w->n_outs; i++)
		rc = write_at(w->outs[i].fd, w->outs[i].head.p, w->outs[i].head.len, 0);
	*path = rc ? NULL : w->backend->single ? file_join(w->temp, w->outs[0].name) : xstrdup(w->temp);
	return rc ? err_why(why, rc, "%s cannot be written: %s", w->dst, strerror(-rc)) : 0;
}

int writer_rows(struct writer *w, int tensor, int64_t row0, int64_t n_rows, const void *data, struct why *why)
{
	struct writer_slot *s = &w->slots[tensor];
	assert(w->begun && row0 == s->done && n_rows >= 0 && n_rows <= s->n_rows - row0);
	const int rc = write_at(w->outs[s->file].fd, data, (size_t)n_rows * s->row_bytes,
				s->at + (uint64_t)row0 * s->row_bytes);
	if (rc)
		return err_why(why, rc, "%s cannot be written: %s", w->dst, strerror(-rc));
	s->done += n_rows;
	return 0;
}

/* ---- whole files ---- */

int writer_file(struct writer *w, const char *name, const void *data, size_t n, struct why *why)
{
	assert(!w->backend->single && !strchr(name, '/'));
	const int fd = openat(w->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return file_failed(why, name, "written");
	int rc = write_at(fd, data, n, 0);
	if (!rc && fsync(fd))
		rc = -errno;
	close(fd);
	return rc ? err_why(why, rc, "%s/%s cannot be written: %s", w->dst, name, strerror(-rc)) : 0;
}

int writer_json(struct writer *w, const char *name, const json_t *tree, struct why *why)
{
	char *text = json_dumps(tree, JSON_INDENT(2));
	if (!text)
		return err_why(why, -EINVAL, "%s is no JSON", name);
	const int rc = writer_file(w, name, text, strlen(text), why);
	free(text);
	return rc;
}

int writer_copy(struct writer *w, const char *from_dir, const char *name, bool *copied, struct why *why)
{
	char *path = file_join(from_dir, name);
	const void *data;
	size_t n;
	*copied = file_exists(path);
	int rc = *copied ? file_map(path, &data, &n, why) : 0;
	if (*copied && !rc) {
		rc = writer_file(w, name, data, n, why);
		file_unmap(data, n);
	}
	free(path);
	return rc;
}

/* ---- finishing ---- */

static int finish_out(struct writer_out *o)
{
	int rc = write_at(o->fd, o->head.p, o->head.len, 0);
	if (!rc && fsync(o->fd))
		rc = -errno;
	if (close(o->fd) && !rc)
		rc = -errno;
	o->fd = -1;
	return rc;
}

/* Rename the temporary directory, or the file in it, to the result, which must not exist. */
static int publish(struct writer *w)
{
	int rc;
	if (w->backend->single) {
		rc = renameat2(w->dir_fd, w->outs[0].name, AT_FDCWD, w->dst, RENAME_NOREPLACE);
		if (rc && (errno == EINVAL || errno == ENOSYS))
			rc = renameat(w->dir_fd, w->outs[0].name, AT_FDCWD, w->dst);
		return rc ? -errno : 0;
	}
	/* Sync before removing the mark: a run that is killed afterwards lacks only the final name. */
	if ((fsync(w->dir_fd) && errno != EINVAL) || unlinkat(w->dir_fd, mark, 0))
		return -errno;
	rc = renameat2(AT_FDCWD, w->temp, AT_FDCWD, w->dst, RENAME_NOREPLACE);
	if (rc && (errno == EINVAL || errno == ENOSYS))
		rc = rename(w->temp, w->dst);
	return rc ? -errno : 0;
}

static void forget(struct writer *w)
{
	for (size_t i = 0; i < w->n_slots; i++)
		free(w->slots[i].name);
	for (size_t i = 0; i < w->n_outs; i++) {
		if (w->outs[i].fd >= 0)
			close(w->outs[i].fd);
		free(w->outs[i].name);
		buf_fini(&w->outs[i].head);
	}
	if (w->dir_fd >= 0)
		close(w->dir_fd);
	free(w->slots);
	free(w->outs);
	buf_fini(&w->meta);
	free(w->dst);
	free(w->temp);
	free(w);
}

int writer_commit(struct writer **wp, struct why *why)
{
	struct writer *w = *wp;
	int rc = 0;
	assert(w->begun);
	for (size_t i = 0; i < w->n_slots; i++)
		assert(w->slots[i].done == w->slots[i].n_rows);
	for (size_t i = 0; !rc && i < w->n_outs; i++)
		rc = finish_out(&w->outs[i]);
	if (!rc)
		rc = publish(w);
	if (rc) {
		err_why(why, rc, "%s cannot be written: %s", w->dst, strerror(-rc));
		writer_abort(wp);
		return rc;
	}
	*wp = NULL;
	if (w->backend->single)
		own_dir_remove(w->temp, mark, &w->dir_fd);
	rc = file_sync_folder(w->dst);
	if (rc)
		err_why(why, rc, "%s is written, but not synced: %s", w->dst, strerror(-rc));
	forget(w);
	return rc;
}

void writer_abort(struct writer **wp)
{
	struct writer *w = *wp;
	*wp = NULL;
	if (!w)
		return;
	own_dir_remove(w->temp, mark, &w->dir_fd);
	forget(w);
}
