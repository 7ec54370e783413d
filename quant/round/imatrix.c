#include "quant/round/imatrix.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "formats/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 4096, ENTRIES_MAX = 100000 };

static const char sums_end[] = ".in_sum2", counts_end[] = ".counts";

struct entry {
	char *name; /* name of the tensor; owned */
	int64_t n;  /* values of all parts */
	int parts;
	float *sums;   /* [n], owned */
	float *counts; /* [parts], owned */
	float *mean;   /* [n], owned */
};

struct imatrix {
	struct entry *entries; /* owned */
	size_t n, cap;
	char *text; /* owned */
	int chunks, chunk_size;
};

struct imatrix *imatrix_new(const char *text, int chunks, int chunk_size)
{
	struct imatrix *m = xcalloc(1, sizeof *m);
	m->text = xstrdup(text);
	m->chunks = chunks;
	m->chunk_size = chunk_size;
	return m;
}

void imatrix_free(struct imatrix *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++) {
		free(m->entries[i].name);
		free(m->entries[i].sums);
		free(m->entries[i].counts);
		free(m->entries[i].mean);
	}
	free(m->entries);
	free(m->text);
	free(m);
}

static struct entry *entry_of(const struct imatrix *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->entries[i].name, name) == 0)
			return &m->entries[i];
	return NULL;
}

static struct entry *entry_new(struct imatrix *m, const char *name, size_t length, int64_t n, int parts)
{
	array_grow(m->entries, m->cap, m->n + 1);
	struct entry *e = &m->entries[m->n++];
	*e = (struct entry){.name = xasprintf("%.*s", (int)length, name), .n = n, .parts = parts};
	e->sums = xcalloc((size_t)n, sizeof *e->sums);
	e->counts = xcalloc((size_t)parts, sizeof *e->counts);
	e->mean = xcalloc((size_t)n, sizeof *e->mean);
	return e;
}

/* Compute the means of a part. */
static void set_means(struct entry *e, int part)
{
	const int64_t k = e->n / e->parts;
	for (int64_t i = part * k; i < (part + 1) * k; i++)
		e->mean[i] = e->counts[part] > 0 ? e->sums[i] / e->counts[part] : 1;
}

/* Check that an importance is a mean square. */
static int check_entry(const struct entry *e, const char *path, struct why *why)
{
	for (int64_t i = 0; i < e->n; i++)
		if (!(e->mean[i] >= 0 && isfinite(e->mean[i])))
			return err_why(why, -EINVAL, "%s: the entry %s has the value %g: no mean of squares",
				       path, e->name, (double)e->mean[i]);
	return 0;
}

void imatrix_set(struct imatrix *m, const char *tensor, int part, int parts, const double *sums, int k,
		 double rows)
{
	struct entry *e = entry_of(m, tensor);
	if (!e)
		e = entry_new(m, tensor, strlen(tensor), (int64_t)k * parts, parts);
	for (int i = 0; i < k; i++)
		e->sums[(int64_t)part * k + i] = (float)sums[i];
	e->counts[part] = (float)rows;
	set_means(e, part);
}

int imatrix_find(const struct imatrix *m, const char *tensor, int part, int parts, int64_t k,
		 const float **out, struct why *why)
{
	const struct entry *e = entry_of(m, tensor);
	if (!e)
		return 0;
	if (e->n != k * parts)
		return err_why(why, -EINVAL,
			       "the importance matrix has %lld values for tensor %s, which has %lld inputs",
			       (long long)e->n, tensor, (long long)(k * parts));
	*out = e->mean + part * k;
	return 1;
}

/* ---- the legacy format ---- */

struct reader {
	const unsigned char *p;
	size_t n, at;
	const char *path;
	struct why *why;
};

static int take_int(struct reader *r, int32_t *out, const char *what)
{
	if (r->n - r->at < sizeof *out)
		return err_why(r->why, -EINVAL, "%s ends within %s (byte %zu)", r->path, what, r->at);
	memcpy(out, r->p + r->at, sizeof *out);
	r->at += sizeof *out;
	return 0;
}

static int read_entry(struct reader *r, struct imatrix *m)
{
	int32_t length = 0, calls = 0, n = 0;
	int rc = take_int(r, &length, "the name of an entry");
	if (rc)
		return rc;
	if (length < 1 || length > NAME_MAX_BYTES || (size_t)length > r->n - r->at)
		return err_why(r->why, -EINVAL, "%s has an entry with a name of %d bytes (byte %zu)", r->path,
			       length, r->at);
	const char *name = (const char *)r->p + r->at;
	r->at += (size_t)length;
	if ((rc = take_int(r, &calls, "an entry")) || (rc = take_int(r, &n, "an entry")))
		return rc;
	if (n < 1 || (size_t)n > (r->n - r->at) / 4)
		return err_why(r->why, -EINVAL, "%s ends within the entry %.*s of %d values", r->path, length,
			       name, n);
	struct entry *e = entry_new(m, name, (size_t)length, n, 1);
	memcpy(e->sums, r->p + r->at, (size_t)n * 4);
	r->at += (size_t)n * 4;
	e->counts[0] = calls > 0 ? (float)calls : 1;
	set_means(e, 0);
	return check_entry(e, r->path, r->why);
}

static int read_legacy(struct reader *r, struct imatrix *m)
{
	int32_t n = 0, length = 0;
	int rc = take_int(r, &n, "its number of entries");
	if (!rc && (n < 1 || n > ENTRIES_MAX))
		rc = err_why(r->why, -EINVAL, "%s is no importance matrix: it has %d entries", r->path, n);
	for (int32_t i = 0; !rc && i < n; i++)
		rc = read_entry(r, m);
	if (rc || r->at == r->n)
		return rc;
	if ((rc = take_int(r, &m->chunks, "its number of chunks")) ||
	    (rc = take_int(r, &length, "the name of its text")))
		return rc;
	if (length < 0 || (size_t)length > r->n - r->at)
		return err_why(r->why, -EINVAL, "%s ends within the name of its text", r->path);
	free(m->text);
	m->text = xasprintf("%.*s", (int)length, (const char *)r->p + r->at);
	return 0;
}

static int open_legacy(const char *path, struct imatrix *m, struct why *why)
{
	struct stat st;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		const int rc = -errno;
		if (fd >= 0)
			close(fd);
		return err_why(why, rc, "%s: %s", path, strerror(-rc));
	}
	struct reader r = {.n = (size_t)st.st_size, .path = path, .why = why};
	void *p = r.n ? mmap(NULL, r.n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	close(fd);
	if (p == MAP_FAILED)
		return err_why(why, -EINVAL, "%s cannot be read", path);
	r.p = p;
	const int rc = read_legacy(&r, m);
	if (p)
		munmap(p, r.n);
	return rc;
}

/* ---- the GGUF format ---- */

/* Read the pair of tensors to which sums belongs. */
static int read_pair(const struct gguf *g, const struct gguf_tensor *sums, size_t length, struct imatrix *m,
		     struct why *why)
{
	char *name = xasprintf("%.*s%s", (int)length, sums->name, counts_end);
	const struct gguf_tensor *counts = gguf_find(g, name);
	free(name);
	int64_t parts = 1;
	for (int d = 1; d < GGUF_DIMS_MAX; d++)
		parts *= sums->size[d];
	const int64_t n = sums->size[0] * parts;
	if (!counts || counts->type != GGUF_TYPE_F32 || sums->type != GGUF_TYPE_F32 || n > INT32_MAX ||
	    counts->bytes != (size_t)parts * 4 || n < 1)
		return err_why(why, -EINVAL,
			       "%s: the tensor %s has no counts in F32 (%.*s%s), one for each of %lld parts",
			       gguf_path(g), sums->name, (int)length, sums->name, counts_end,
			       (long long)parts);
	struct entry *e = entry_new(m, sums->name, length, n, (int)parts);
	memcpy(e->sums, sums->data, sums->bytes);
	memcpy(e->counts, counts->data, counts->bytes);
	for (int i = 0; i < e->parts; i++)
		set_means(e, i);
	return check_entry(e, gguf_path(g), why);
}

static int read_gguf(const struct gguf *g, struct imatrix *m, struct why *why)
{
	struct gguf_string type;
	struct gguf_array texts;
	int64_t chunks = 0;
	int rc = gguf_find_string(g, "general.type", &type, why);
	if (rc || type.n != strlen("imatrix") || memcmp(type.p, "imatrix", type.n) != 0)
		return err_why(why, -EINVAL, "%s is a GGUF file, but no importance matrix", gguf_path(g));
	if (!gguf_find_array(g, "imatrix.datasets", &texts, NULL) && texts.type == GGUF_STRING && texts.n) {
		const struct gguf_string s = gguf_next_string(&texts);
		free(m->text);
		m->text = xasprintf("%.*s", (int)s.n, s.p);
	}
	if (!gguf_find_int(g, "imatrix.chunk_count", &chunks, NULL))
		m->chunks = (int)chunks;
	for (int i = 0; !rc && i < gguf_count(g); i++) {
		const struct gguf_tensor *t = gguf_at(g, i);
		const size_t n = strlen(t->name), end = strlen(sums_end);
		if (n > end && strcmp(t->name + n - end, sums_end) == 0)
			rc = read_pair(g, t, n - end, m, why);
	}
	if (!rc && !m->n)
		rc = err_why(why, -EINVAL, "%s has no entries", gguf_path(g));
	return rc;
}

int imatrix_read(const char *path, struct imatrix **out, struct why *why)
{
	struct imatrix *m = imatrix_new("", 0, 0);
	struct gguf *g = NULL;
	int rc;
	if (!gguf_is(path))
		rc = open_legacy(path, m, why);
	else if (!(rc = gguf_open(path, &g, why)))
		rc = read_gguf(g, m, why);
	gguf_close(g);
	if (rc) {
		imatrix_free(m);
		m = NULL;
	}
	*out = m;
	return rc;
}

/* ---- writing ---- */

static int write_tensor(struct writer *w, int at, const float *values, int64_t rows, struct why *why)
{
	return writer_rows(w, at, 0, rows, values, why);
}

static int declare(struct writer *w, const struct entry *e, const char *end, int64_t columns, struct why *why)
{
	char *name = xasprintf("%s%s", e->name, end);
	const struct writer_tensor t = {
		.name = name, .type = "F32", .n_dims = 2, .shape = {e->parts, columns}};
	const int at = writer_declare(w, &t, why);
	free(name);
	return at;
}

static int write_all(const struct imatrix *m, struct writer *w, struct why *why)
{
	int rc = 0;
	writer_meta_str(w, "general.type", "imatrix");
	writer_meta_strings(w, "imatrix.datasets", 1);
	writer_meta_item(w, m->text, strlen(m->text));
	writer_meta_u32(w, "imatrix.chunk_count", (uint32_t)m->chunks);
	writer_meta_u32(w, "imatrix.chunk_size", (uint32_t)m->chunk_size);
	for (size_t i = 0; rc >= 0 && i < m->n; i++) {
		const struct entry *e = &m->entries[i];
		rc = declare(w, e, sums_end, e->n / e->parts, why);
		if (rc >= 0)
			rc = declare(w, e, counts_end, 1, why);
	}
	rc = rc < 0 ? rc : writer_begin(w, why);
	for (size_t i = 0; !rc && i < m->n; i++) {
		rc = write_tensor(w, (int)i * 2, m->entries[i].sums, m->entries[i].parts, why);
		if (!rc)
			rc = write_tensor(w, (int)i * 2 + 1, m->entries[i].counts, m->entries[i].parts, why);
	}
	return rc;
}

int imatrix_write(const struct imatrix *m, const char *path, struct why *why)
{
	struct writer *w;
	int rc = writer_new(path, WRITER_GGUF, &w, why);
	if (!rc && !(rc = write_all(m, w, why)))
		rc = writer_commit(&w, why);
	writer_abort(&w);
	return rc;
}

void imatrix_keys(const struct imatrix *m, const char *path, struct writer *w)
{
	writer_meta_str(w, "quantize.imatrix.file", path);
	if (m->text[0])
		writer_meta_str(w, "quantize.imatrix.dataset", m->text);
	writer_meta_u32(w, "quantize.imatrix.entries_count", (uint32_t)m->n);
	if (m->chunks > 0)
		writer_meta_u32(w, "quantize.imatrix.chunks_count", (uint32_t)m->chunks);
}
