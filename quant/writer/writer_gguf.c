/* writer_gguf.c - GGUF files, version 3 (layout: formats/gguf.h); and ak48 files, which have another header
 * before the tensors. */
#include "quant/writer/writer_impl.h"

#include "base/alloc.h"
#include "formats/gguf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ALIGN = 32 };

static bool type_of(const char *name, const char **own, uint32_t *code, int *values, int *bytes)
{
	enum gguf_type t;
	if (!gguf_type_of(name, &t, values, bytes))
		return false;
	*own = gguf_type_name(t);
	*code = (uint32_t)t;
	return true;
}

/* ---- keys ---- */

static void put_u32(struct buf *b, uint32_t v)
{
	buf_put(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
	buf_put(b, &v, sizeof v);
}

static void put_string(struct buf *b, const char *s, size_t n)
{
	put_u64(b, n);
	buf_put(b, s, n);
}

static void put_named(struct writer *w, const char *key, size_t n, enum gguf_value type)
{
	assert(!w->begun);
	put_string(&w->meta, key, n);
	put_u32(&w->meta, (uint32_t)type);
	w->n_meta++;
}

static void put_key(struct writer *w, const char *key, enum gguf_value type)
{
	put_named(w, key, strlen(key), type);
}

void writer_meta_key(struct writer *w, const struct gguf_key *key)
{
	put_named(w, key->name.p, key->name.n, key->type);
	buf_put(&w->meta, key->at, key->bytes);
}

void writer_meta_string(struct writer *w, const char *key, const char *s, size_t n)
{
	put_key(w, key, GGUF_STRING);
	put_string(&w->meta, s, n);
}

void writer_meta_str(struct writer *w, const char *key, const char *s)
{
	writer_meta_string(w, key, s, strlen(s));
}

void writer_meta_u32(struct writer *w, const char *key, uint32_t v)
{
	put_key(w, key, GGUF_U32);
	put_u32(&w->meta, v);
}

void writer_meta_f32(struct writer *w, const char *key, float v)
{
	put_key(w, key, GGUF_F32);
	buf_put(&w->meta, &v, sizeof v);
}

void writer_meta_bool(struct writer *w, const char *key, bool v)
{
	put_key(w, key, GGUF_BOOL);
	buf_putc(&w->meta, v);
}

static void put_array(struct writer *w, const char *key, enum gguf_value type, size_t n)
{
	put_key(w, key, GGUF_ARRAY);
	put_u32(&w->meta, (uint32_t)type);
	put_u64(&w->meta, n);
}

void writer_meta_u8s(struct writer *w, const char *key, const void *v, size_t n)
{
	put_array(w, key, GGUF_U8, n);
	buf_put(&w->meta, v, n);
}

void writer_meta_i32s(struct writer *w, const char *key, const int32_t *v, size_t n)
{
	put_array(w, key, GGUF_I32, n);
	buf_put(&w->meta, v, n * sizeof *v);
}

void writer_meta_f32s(struct writer *w, const char *key, const float *v, size_t n)
{
	put_array(w, key, GGUF_F32, n);
	buf_put(&w->meta, v, n * sizeof *v);
}

void writer_meta_bools(struct writer *w, const char *key, const bool *v, size_t n)
{
	put_array(w, key, GGUF_BOOL, n);
	for (size_t i = 0; i < n; i++)
		buf_putc(&w->meta, v[i]);
}

void writer_meta_strings(struct writer *w, const char *key, size_t n)
{
	put_array(w, key, GGUF_STRING, n);
}

void writer_meta_item(struct writer *w, const char *s, size_t n)
{
	put_string(&w->meta, s, n);
}

/* ---- the file ---- */

static int lay_out_gguf(struct writer *w, struct why *why)
{
	(void)why;

	const int f = writer_out_new(w, "model.gguf");
	struct writer_out *o = &w->outs[f];
	struct buf *b = &o->head;
	uint64_t at = 0;
	buf_puts(b, "GGUF");
	put_u32(b, VERSION);
	put_u64(b, w->n_slots);
	put_u64(b, w->n_meta);
	buf_put(b, w->meta.p, w->meta.len);
	for (size_t i = 0; i < w->n_slots; i++) {
		struct writer_slot *s = &w->slots[i];
		put_string(b, s->name, strlen(s->name));
		put_u32(b, (uint32_t)s->n_dims);
		for (int d = s->n_dims - 1; d >= 0; d--)
			put_u64(b, (uint64_t)s->shape[d]);
		put_u32(b, s->code);
		put_u64(b, at);
		s->file = f;
		s->at = at;
		at += (uint64_t)s->n_rows * s->row_bytes;
		at = (at + ALIGN - 1) / ALIGN * ALIGN;
	}
	while (b->len % ALIGN)
		buf_putc(b, 0);
	for (size_t i = 0; i < w->n_slots; i++)
		w->slots[i].at += b->len;
	o->bytes = b->len + at;
	return 0;
}

const struct writer_backend writer_gguf = {
	.name = "gguf", .single = true, .type = type_of, .lay_out = lay_out_gguf};

/* ---- ak48 ---- */

void writer_header(struct writer *w, const void *head, size_t n)
{
	assert(!w->begun && w->backend == &writer_ak48);
	buf_clear(&w->meta);
	buf_put(&w->meta, head, n);
}

static bool type_of_ak48(const char *name, const char **own, uint32_t *code, int *values, int *bytes)
{
	const bool half = strcmp(name, "F16") == 0;
	if (!half && strcmp(name, "I32") != 0)
		return false;
	*own = half ? "F16" : "I32";
	*code = 0;
	*values = 1;
	*bytes = half ? 2 : 4;
	return true;
}

static int lay_out_ak48(struct writer *w, struct why *why)
{
	(void)why;

	const int f = writer_out_new(w, "model.ak48");
	struct writer_out *o = &w->outs[f];
	buf_put(&o->head, w->meta.p, w->meta.len);
	o->bytes = o->head.len;
	for (size_t i = 0; i < w->n_slots; i++) {
		w->slots[i].file = f;
		w->slots[i].at = o->bytes;
		o->bytes += (uint64_t)w->slots[i].n_rows * w->slots[i].row_bytes;
	}
	return 0;
}

const struct writer_backend writer_ak48 = {.name = "ak48", .type = type_of_ak48, .lay_out = lay_out_ak48};
