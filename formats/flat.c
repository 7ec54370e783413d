#include "formats/flat.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "formats/family.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	DIM_MAX = 1 << 17,
	HIDDEN_MAX = 1 << 20,
	HEADS_MAX = 1 << 12,
	VOCAB_MAX = 1 << 24,
	CONTEXT_MAX = 1 << 24,
};

struct flat_tensor {
	char name[72];
	const char *type;
	int64_t rows, cols;
	size_t from, bytes;
	bool unused;
};

struct flat {
	char *path;
	const void *data;
	size_t bytes;
	uint64_t at; /* next offset; beyond `bytes` if the file is too short */
	struct flat_tensor *tensors, cut;
	size_t n, cap;
};

static int flat_open(const char *path, size_t at, struct flat **out, struct why *why)
{
	struct flat *f = xcalloc(1, sizeof *f);
	int rc = file_map(path, &f->data, &f->bytes, why);
	if (rc) {
		free(f);
		return rc;
	}
	f->path = xstrdup(path);
	f->at = at;
	*out = f;
	return 0;
}

static void flat_close(void *flat)
{
	struct flat *f = flat;
	if (!f)
		return;
	file_unmap(f->data, f->bytes);
	free(f->path);
	free(f->tensors);
	free(f);
}

const void *flat_take(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols,
		      const char *name, ...)
{
	struct flat_tensor t = {.type = type, .rows = rows, .cols = cols};
	const uint64_t bytes = (uint64_t)(rows ? rows : 1) * (uint64_t)cols * item, from = f->at;
	va_list ap;
	va_start(ap, name);
	format_text(t.name, sizeof t.name, name, ap);
	va_end(ap);
	f->at += bytes;
	if (f->at > f->bytes) {
		if (!f->cut.type) {
			f->cut = t;
			f->cut.from = (size_t)from;
			f->cut.bytes = (size_t)bytes;
		}
		return NULL;
	}
	t.from = (size_t)from;
	t.bytes = (size_t)bytes;
	array_grow(f->tensors, f->cap, f->n + 1);
	f->tensors[f->n++] = t;
	return (const unsigned char *)f->data + from;
}

static int flat_end(const struct flat *f, struct why *why)
{
	if (f->cut.type)
		return err_why(why, -EINVAL,
			       "%s ends at byte %zu, within or before %s, which takes %zu bytes from byte "
			       "%zu; by its "
			       "header the file has %llu bytes: was it cut?",
			       f->path, f->bytes, f->cut.name, f->cut.bytes, f->cut.from,
			       (unsigned long long)f->at);
	if (f->at != f->bytes)
		return err_why(why, -EINVAL,
			       "%s has %zu bytes, by its header %llu: %llu bytes are left over after %s, "
			       "its last tensor",
			       f->path, f->bytes, (unsigned long long)f->at,
			       (unsigned long long)(f->bytes - f->at),
			       f->n ? f->tensors[f->n - 1].name : "the header");
	return 0;
}

static void tensor_at(const void *at, int i, struct weights_tensor *out)
{
	const struct flat *f = at;
	const struct flat_tensor *t = &f->tensors[i];
	*out = (struct weights_tensor){.name = t->name,
				       .type = t->type,
				       .n_dims = t->rows ? 2 : 1,
				       .shape = {t->rows ? t->rows : t->cols, t->cols},
				       .bytes = t->bytes,
				       .data = (const unsigned char *)f->data + t->from};
}

void flat_skip(struct flat *f, const char *type, size_t item, int64_t rows, int64_t cols, const char *name)
{
	if (flat_take(f, type, item, rows, cols, "%s", name))
		f->tensors[f->n - 1].unused = true;
}

int flat_weights(const char *path, size_t at, int n_layers, struct weights **out, struct flat **f,
		 struct why *why)
{
	int rc = flat_open(path, at, f, why);
	if (rc)
		return rc;
	struct weights *w = xcalloc(1, sizeof *w);
	w->files = (struct weights_files){.at = *f, .close = flat_close, .n_files = 1, .tensor = tensor_at};
	w->n_layers = n_layers;
	w->layers = xcalloc((size_t)n_layers, sizeof *w->layers);
	*out = w;
	return 0;
}

int flat_finish(struct weights *w, struct weights **out, struct why *why)
{
	const struct flat *f = w->files.at;
	int rc = flat_end(f, why);
	if (rc) {
		weights_close(w);
		return rc;
	}
	w->files.n_tensors = (int)f->n;
	for (size_t i = 0; i < f->n; i++) {
		w->n_unused += f->tensors[i].unused;
		w->bytes += f->tensors[i].unused ? 0 : (int64_t)f->tensors[i].bytes;
	}
	w->n_used = (int)f->n - w->n_unused;
	*out = w;
	return 0;
}

/* ---- headers ---- */

bool flat_header(const char *path, void *out, size_t n)
{
	struct stat st;
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* do not wait on a pipe */
	if (fd < 0)
		return false;
	const bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, out, n, 0) == (ssize_t)n;
	close(fd);
	return ok;
}

bool flat_sizes_valid(const struct flat_sizes *s)
{
	return s->dim > 0 && s->dim <= DIM_MAX && s->hidden > 0 && s->hidden <= HIDDEN_MAX && s->layers > 0 &&
	       s->layers <= CONFIG_LAYERS_MAX && s->heads > 0 && s->heads <= HEADS_MAX && s->kv_heads > 0 &&
	       s->kv_heads <= s->heads && s->heads % s->kv_heads == 0 && s->vocab > 0 &&
	       s->vocab <= VOCAB_MAX && s->context > 0 && s->context <= CONTEXT_MAX &&
	       (int64_t)s->vocab * s->dim <= INT32_MAX;
}

void flat_config(const struct flat_sizes *s, struct model_config *c)
{
	*c = (struct model_config){
		.family = family_find_file("flat"),
		.n_layers = s->layers,
		.hidden = s->dim,
		.intermediate = s->hidden,
		.n_heads = s->heads,
		.n_kv_heads = s->kv_heads,
		.head_dim = s->dim / s->heads,
		.n_vocab = s->vocab,
		.max_position = s->context,
		.rms_eps = 1e-5f,
		.rope_theta = 10000,
		.rope_dim = s->dim / s->heads,
		.rope_pairs = true,
		.rope = ROPE_NONE,
		.bos = s->vocab > 1 ? 1 : -1,
		.eos = {1, 2}, /* the training data separates texts with BOS */
		.n_eos = s->vocab > 2 ? 2 : s->vocab - 1,
		.gen_temperature = NAN,
		.gen_top_p = NAN,
		.gen_min_p = NAN,
		.gen_repetition = NAN,
		.gen_top_k = -1,
		.gen_max_new_tokens = -1,
	};
	snprintf(c->arch_name, sizeof c->arch_name, "%s", c->family->arch);
}

int flat_check(const char *path, const struct flat_sizes *s, int head_dim, bool tied,
	       const struct model_config *c, struct why *why)
{
	if (s->dim == c->hidden && s->hidden == c->intermediate && s->layers == c->n_layers &&
	    s->heads == c->n_heads && s->kv_heads == c->n_kv_heads && s->vocab == c->n_vocab &&
	    head_dim == c->head_dim && tied == c->tied)
		return 0;
	return err_why(why, -EINVAL,
		       "%s: its header has other sizes than the configuration: was it "
		       "replaced meanwhile?",
		       path);
}

/* ---- 8-bit codes ---- */

int flat_take_q8(struct flat *f, int n, int k, int group, struct flat_q8 *out, const char *name)
{
	const int64_t groups = ((int64_t)n * k + group - 1) / group;
	out->q = flat_take(f, "I8", 1, n, k, "%s.weight", name);
	out->scale = flat_take(f, "F32", 4, 0, groups, "%s.scales", name);
	return out->q && out->scale ? 0 : -EINVAL;
}

/* from: values, scales.  Codes are stored as signed bytes, so the zero is 128. */
static void read_q8(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c);
	const size_t k = (size_t)c->k;
	for (int n = n0; n < n1; n++) {
		const size_t row = (size_t)(n - n0);
		const unsigned char *q = (const unsigned char *)c->from[0] + (size_t)n * k;
		const unsigned char *s = (const unsigned char *)c->from[1] + (size_t)n * (size_t)groups * 4;
		for (size_t i = 0; i < k; i++)
			out->code[row * k + i] = q[i] ^ 0x80;
		for (int g = 0; g < groups; g++) {
			out->scale[row * (size_t)groups + (size_t)g] = 1;
			out->offset[row * (size_t)groups + (size_t)g] = 128;
		}
		memcpy(out->d + row * (size_t)groups, s, (size_t)groups * 4);
	}
}

float *flat_floats_q8(struct weights *w, const struct flat_q8 *q, int n, int k, int group)
{
	const size_t count = (size_t)n * (size_t)k;
	float *to = weights_own(w, xmalloc(count * sizeof *to));
	const int8_t *from = q->q;
	for (size_t i = 0; i < count;) {
		float scale;
		memcpy(&scale, (const unsigned char *)q->scale + i / (size_t)group * 4, 4);
		const size_t end = i + (size_t)group < count ? i + (size_t)group : count;
		for (; i < end; i++)
			to[i] = (float)from[i] * scale;
	}
	return to;
}

void flat_linear_q8(struct weights *w, struct weights_linear *l, const struct flat_q8 *q, int n, int k,
		    int group, const char *name)
{
	*l = (struct weights_linear){.n = n, .k = k, .dtype = CONFIG_F32};
	snprintf(l->name, sizeof l->name, "%s", name);
	if (k % group) {
		l->kind = WEIGHTS_DENSE;
		l->w = flat_floats_q8(w, q, n, k, group);
		return;
	}
	l->kind = WEIGHTS_CODES;
	l->w = q->q;
	l->bytes = (size_t)n * (size_t)k + (size_t)n * (size_t)(k / group) * 4;
	l->codes = (struct codes){.n = n,
				  .k = k,
				  .bits = 8,
				  .group = group,
				  .super = group,
				  .zero = 128,
				  .d_type = CODES_F32,
				  .read = read_q8,
				  .from = {q->q, q->scale}};
}
