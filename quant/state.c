#include "quant/state.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/replace.h"
#include "quant/writer/own_dir.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char run_file[] = "run", mark[] = "quern-quantize 1";
enum { RUN_MAX = 128 };

struct state {
	char *dir;
	int fd; /* dir, locked */
	uint64_t fingerprint;
	int n_layers, n_done;
	size_t bytes; /* bytes of a stream */
};

static char *path_of(const struct state *s, const char *what, int layer)
{
	return xasprintf("%s/%s-%03d", s->dir, what, layer);
}

/* ---- the directory ---- */

static int write_run(const struct state *s, struct why *why)
{
	struct replace r;
	char *path = file_join(s->dir, run_file);
	int rc = replace_begin(&r, path, 0666, why);
	if (!rc) {
		fprintf(r.f, "%s %016" PRIx64 "\n", mark, s->fingerprint);
		rc = replace_end(&r, why);
	}
	free(path);
	return rc;
}

/* Check the run file.  1: this run's; 0: missing, or another run's; -EEXIST: not a run's directory.  A
 * temporary file ("run.*") does not count. */
static int check_run(const struct state *s, struct why *why)
{
	char *path = file_join(s->dir, run_file), *text = NULL, want[RUN_MAX];
	size_t n;
	int rc = file_read(path, RUN_MAX, &text, &n, NULL);
	snprintf(want, sizeof want, "%s %016" PRIx64 "\n", mark, s->fingerprint);
	if (rc == -ENOENT && own_dir_is_empty(s->fd, "run."))
		rc = 0;
	else if (rc || strncmp(text, mark, sizeof mark - 1) != 0)
		rc = err_why(
			why, -EEXIST,
			"%s exists, and is not what a run left behind: remove it, or name another result",
			s->dir);
	else
		rc = strcmp(text, want) == 0;
	free(text);
	free(path);
	return rc;
}

static void count_done(struct state *s)
{
	for (s->n_done = 0; s->n_done < s->n_layers; s->n_done++) {
		char *path = path_of(s, "layer", s->n_done);
		const bool there = file_exists(path);
		free(path);
		if (!there)
			break;
	}
}

int state_open(struct state **out, const char *dst, uint64_t fingerprint, int n_layers, int rows, int hidden,
	       struct why *why)
{
	struct state *s = xcalloc(1, sizeof *s);
	size_t n = strlen(dst);
	while (n > 1 && dst[n - 1] == '/')
		n--;
	*s = (struct state){.dir = xasprintf("%.*s.state", (int)n, dst),
			    .fingerprint = fingerprint,
			    .n_layers = n_layers,
			    .bytes = (size_t)rows * (size_t)hidden * sizeof(float)};
	*out = NULL;
	int rc = own_dir_lock(s->dir, dst, &s->fd, why);
	if (!rc && (rc = check_run(s, why)) == 0) {
		own_dir_empty(s->fd, run_file);
		rc = write_run(s, why);
	}
	if (rc < 0) {
		state_close(s);
		return rc;
	}
	count_done(s);
	*out = s;
	return 0;
}

void state_close(struct state *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->dir);
	free(s);
}

void state_remove(struct state **s)
{
	if (!*s)
		return;
	own_dir_remove((*s)->dir, run_file, &(*s)->fd);
	state_close(*s);
	*s = NULL;
}

int state_n_done(const struct state *s)
{
	return s->n_done;
}

/* ---- streams ---- */

int state_rows(struct state *s, int layer, const float **out, struct why *why)
{
	char *path = path_of(s, "rows", layer);
	const void *data = NULL;
	size_t n = 0;
	int rc = file_map(path, &data, &n, why);
	if (!rc && n != s->bytes) {
		file_unmap(data, n);
		rc = err_why(why, -EINVAL, "%s is damaged: remove %s and start again", path, s->dir);
	}
	free(path);
	*out = data;
	return rc;
}

int state_rows_new(struct state *s, int layer, float **out, struct why *why)
{
	char *path = path_of(s, "rows", layer);
	int rc = 0;
	void *p = MAP_FAILED;
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		rc = file_failed(why, path, "made");
	if (!rc && (rc = posix_fallocate(fd, 0, (off_t)s->bytes))) {
		errno = rc;
		rc = file_failed(why, path, "given its room");
	}
	if (!rc && (p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		rc = file_failed(why, path, "mapped");
	if (fd >= 0)
		close(fd);
	free(path);
	*out = p == MAP_FAILED ? NULL : p;
	return rc;
}

void state_rows_unmap(struct state *s, const float *rows)
{
	if (rows)
		munmap((void *)(uintptr_t)rows, s->bytes);
}

/* ---- results ----
 *
 *     mark, fingerprint, layer
 *     for each block: rows, scales of inputs
 *     for each part: flags, errors, scales of rows, codes
 *     XXH3 of all that
 *
 * The lengths follow from the plan. */

static void put_array(struct buf *b, const void *p, size_t bytes)
{
	const unsigned char there = p != NULL;
	buf_put(b, &there, 1);
	if (p)
		buf_put(b, p, bytes);
}

struct sizes {
	size_t qweight, qzeros, scales;
};

static struct sizes sizes_of(const struct layer_plan *p, const struct layer_linear *l)
{
	const size_t n = (size_t)l->from->n, k = (size_t)l->from->k, groups = k / (size_t)p->group;
	return (struct sizes){k * (n / 8) * 4, groups * (n / 8) * 4, groups * n * 2};
}

static void put_plan(struct buf *b, const struct state *s, const struct layer_plan *p)
{
	buf_put(b, mark, sizeof mark);
	buf_put(b, &s->fingerprint, sizeof s->fingerprint);
	buf_put(b, &p->index, sizeof p->index);
	for (int i = 0; i < p->n_blocks; i++) {
		const struct layer_block *x = &p->blocks[i];
		buf_put(b, &x->n_rows, sizeof x->n_rows);
		put_array(b, x->in_by, (size_t)x->k * sizeof(float));
	}
	for (int i = 0; i < p->n_linears; i++) {
		const struct layer_linear *l = &p->linears[i];
		const struct sizes z = sizes_of(p, l);
		const int flags[2] = {l->kept, (int)l->reason};
		buf_put(b, flags, sizeof flags);
		buf_put(b, &l->weights, sizeof l->weights);
		buf_put(b, &l->nearest, sizeof l->nearest);
		buf_put(b, &l->outputs, sizeof l->outputs);
		put_array(b, l->out_by, (size_t)l->from->n * sizeof(float));
		put_array(b, l->qweight, z.qweight);
		put_array(b, l->qzeros, z.qzeros);
		put_array(b, l->scales, z.scales);
	}
	const uint64_t sum = XXH3_64bits(b->p, b->len);
	buf_put(b, &sum, sizeof sum);
}

int state_save(struct state *s, const struct layer_plan *p, float *next, struct why *why)
{
	char *path = path_of(s, "layer", p->index);
	struct replace r;
	struct buf b = {0};
	int rc = 0;
	assert(p->index == s->n_done);
	if (next && (msync(next, s->bytes, MS_SYNC)))
		rc = file_failed(why, s->dir, "synced");
	if (!rc && !(rc = replace_begin(&r, path, 0666, why))) {
		put_plan(&b, s, p);
		fwrite(b.p, 1, b.len, r.f);
		rc = replace_end(&r, why);
	}
	free(path);
	buf_fini(&b);
	if (rc)
		return rc;
	s->n_done++;
	path = path_of(s, "rows", p->index);
	unlink(path);
	free(path);
	return 0;
}

/* ---- the result ---- */

/* Format the device and inode of dst, which distinguish it from another file of the same name. */
static bool identify(const char *dst, char *out, size_t n)
{
	struct stat st;
	if (stat(dst, &st))
		return false;
	snprintf(out, n, "%" PRIuMAX " %" PRIuMAX "\n", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return true;
}

int state_written(const struct state *s, const char *dst, struct why *why)
{
	struct replace r;
	char id[RUN_MAX];
	if (!identify(dst, id, sizeof id))
		return file_failed(why, dst, "found");
	char *path = file_join(s->dir, "written");
	int rc = replace_begin(&r, path, 0666, why);
	if (!rc) {
		fputs(id, r.f);
		rc = replace_end(&r, why);
	}
	free(path);
	return rc;
}

bool state_is_written(const struct state *s, const char *dst)
{
	char id[RUN_MAX], *path = file_join(s->dir, "written"), *text = NULL;
	size_t n;
	const bool is = file_read(path, RUN_MAX, &text, &n, NULL) == 0 && identify(dst, id, sizeof id) &&
			strcmp(text, id) == 0;
	free(text);
	free(path);
	return is;
}

/* ---- loading ---- */

struct cursor {
	const unsigned char *p;
	size_t n;
	bool bad;
};

static void take(struct cursor *c, void *to, size_t n)
{
	if (c->n < n) {
		c->bad = true;
		memset(to, 0, n);
		return;
	}
	memcpy(to, c->p, n);
	c->p += n;
	c->n -= n;
}

static void *take_array(struct cursor *c, size_t bytes)
{
	unsigned char there = 0;
	take(c, &there, 1);
	if (!there || c->n < bytes) {
		c->bad |= there != 0;
		return NULL;
	}
	void *p = xmemdup(c->p, bytes);
	c->p += bytes;
	c->n -= bytes;
	return p;
}

static void take_plan(struct cursor *c, const struct state *s, struct layer_plan *p)
{
	char head[sizeof mark];
	uint64_t fingerprint = 0;
	int index = -1;
	take(c, head, sizeof head);
	take(c, &fingerprint, sizeof fingerprint);
	take(c, &index, sizeof index);
	c->bad |= memcmp(head, mark, sizeof mark) != 0 || fingerprint != s->fingerprint || index != p->index;
	for (int i = 0; !c->bad && i < p->n_blocks; i++) {
		take(c, &p->blocks[i].n_rows, sizeof p->blocks[i].n_rows);
		p->blocks[i].in_by = take_array(c, (size_t)p->blocks[i].k * sizeof(float));
	}
	for (int i = 0; !c->bad && i < p->n_linears; i++) {
		struct layer_linear *l = &p->linears[i];
		const struct sizes z = sizes_of(p, l);
		int flags[2];
		take(c, flags, sizeof flags);
		take(c, &l->weights, sizeof l->weights);
		take(c, &l->nearest, sizeof l->nearest);
		take(c, &l->outputs, sizeof l->outputs);
		l->out_by = take_array(c, (size_t)l->from->n * sizeof(float));
		l->qweight = take_array(c, z.qweight);
		l->qzeros = take_array(c, z.qzeros);
		l->scales = take_array(c, z.scales);
		c->bad |= flags[1] < 0 || flags[1] >= REASONS || flags[0] != (int)l->kept ||
			  (!l->kept && !(l->qweight && l->qzeros && l->scales));
		l->reason = c->bad ? REASON_NONE : (enum layer_reason)flags[1];
	}
}

int state_load(const struct state *s, struct layer_plan *p, struct why *why)
{
	char *path = path_of(s, "layer", p->index);
	const void *data = NULL;
	size_t n = 0;
	uint64_t sum = 0;
	int rc = file_map(path, &data, &n, why);
	if (!rc) {
		struct cursor c = {.p = data, .n = n > sizeof sum ? n - sizeof sum : 0};
		if (c.n)
			memcpy(&sum, c.p + c.n, sizeof sum);
		c.bad = !c.n || XXH3_64bits(c.p, c.n) != sum;
		if (!c.bad)
			take_plan(&c, s, p);
		if (c.bad || c.n)
			rc = err_why(why, -EINVAL, "%s is damaged: remove %s and start again", path, s->dir);
		file_unmap(data, n);
	}
	free(path);
	return rc;
}
