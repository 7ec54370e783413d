/* gguf_make.h - write GGUF files for tests value by value, so that any value can be invalid. */
#ifndef QUERN_TESTS_GGUF_MAKE_H
#define QUERN_TESTS_GGUF_MAKE_H

#include "base/buf.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline void gg_u32(struct buf *b, uint32_t v)
{
	buf_put(b, (const char *)&v, 4);
}

static inline void gg_u64(struct buf *b, uint64_t v)
{
	buf_put(b, (const char *)&v, 8);
}

static inline void gg_text(struct buf *b, const char *s)
{
	gg_u64(b, strlen(s));
	buf_puts(b, s);
}

static inline void gg_head(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
	buf_puts(b, "GGUF");
	gg_u32(b, version);
	gg_u64(b, n_tensors);
	gg_u64(b, n_keys);
}

static inline void gg_key_u32(struct buf *b, const char *key, uint32_t v)
{
	gg_text(b, key);
	gg_u32(b, 4);
	gg_u32(b, v);
}

static inline void gg_key_f32(struct buf *b, const char *key, float v)
{
	gg_text(b, key);
	gg_u32(b, 6);
	buf_put(b, (const char *)&v, 4);
}

static inline void gg_key_text(struct buf *b, const char *key, const char *v)
{
	gg_text(b, key);
	gg_u32(b, 8);
	gg_text(b, v);
}

/* Add a tensor of n matrices; n 0: a tensor with two dimensions. */
static inline void gg_stack(struct buf *b, const char *name, uint64_t columns, uint64_t rows, uint64_t n,
			    uint32_t type, uint64_t offset)
{
	gg_text(b, name);
	gg_u32(b, n ? 3 : 2);
	gg_u64(b, columns);
	gg_u64(b, rows);
	if (n)
		gg_u64(b, n);
	gg_u32(b, type);
	gg_u64(b, offset);
}

static inline void gg_tensor(struct buf *b, const char *name, uint64_t columns, uint64_t rows, uint32_t type,
			     uint64_t offset)
{
	gg_stack(b, name, columns, rows, 0, type, offset);
}

/* Pad with zeros to a multiple of 32, then add n zero bytes. */
static inline void gg_data(struct buf *b, size_t n)
{
	for (n += (32 - b->len % 32) % 32; n; n--)
		buf_put(b, "", 1);
}

static inline void gg_write(const char *path, const char *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	cr_assert(f);
	cr_assert_eq(fwrite(p, 1, n, f), n);
	cr_assert_eq(fclose(f), 0);
}

#endif
