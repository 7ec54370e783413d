/* emulate_bf16_amx.h - BF16 AMX tiles emulated in memory. Each thread has its own tiles, valid only while
 * configured. An assertion fails if a kernel reads a tile before it is loaded. */
#ifndef QUERN_TESTS_KERNELS_EMULATE_BF16_AMX_H
#define QUERN_TESTS_KERNELS_EMULATE_BF16_AMX_H

#include "tests/kernels/emulate_bf16.h"

#include <assert.h>
#include <stdbool.h>

static _Thread_local struct {
	bool on;
	bool loaded[8];
	uint8_t rows[8];
	uint8_t t[8][16][64];
} amx;

static inline void amx_begin_rows(const uint8_t rows[8])
{
	memset(&amx, 0, sizeof amx);
	memcpy(amx.rows, rows, 8);
	amx.on = true;
}

static inline void amx_load(int t, const void *p, size_t stride)
{
	assert(amx.on && amx.rows[t]);
	amx.loaded[t] = true;
	for (int r = 0; r < amx.rows[t]; r++)
		memcpy(amx.t[t][r], (const char *)p + (size_t)r * stride, 64);
}

static inline void amx_store(int t, void *p, size_t stride)
{
	assert(amx.on && amx.loaded[t]);
	for (int r = 0; r < amx.rows[t]; r++)
		memcpy((char *)p + (size_t)r * stride, amx.t[t][r], 64);
}

static inline void amx_zero(int t)
{
	assert(amx.on && amx.rows[t]);
	amx.loaded[t] = true;
	memset(amx.t[t], 0, sizeof amx.t[t]);
}

static inline void amx_dot(int c, int a, int b)
{
	float sums[16][16];
	uint16_t x[16][32], w[16][32];
	assert(amx.on && amx.loaded[a] && amx.loaded[b] && amx.loaded[c]);
	assert(amx.rows[b] == 16 && amx.rows[a] == amx.rows[c]);
	memcpy(sums, amx.t[c], sizeof sums);
	memcpy(x, amx.t[a], sizeof x);
	memcpy(w, amx.t[b], sizeof w);
	em_tdpbf16ps(amx.rows[a], sums, (const uint16_t(*)[32])x, (const uint16_t(*)[32])w);
	memcpy(amx.t[c], sums, sizeof sums);
}

#define AMX_LOAD(t, p, stride)  amx_load(t, p, stride)
#define AMX_STORE(t, p, stride) amx_store(t, p, stride)
#define AMX_ZERO(t)             amx_zero(t)
#define AMX_DOT(c, a, b)        amx_dot(c, a, b)
#define AMX_RELEASE()           (amx.on = false)

#endif
