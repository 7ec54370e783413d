/* emulated_amx.c - kernels/cpu/dot/avx512amx.c with AMX tiles emulated in memory. Each thread has its own
 * tiles, valid only while configured. An assertion fails if a kernel reads a tile that is released or not yet
 * loaded. */
#include "tests/kernels/emulate_avx512.h"
#include "tests/kernels/emulated.h"

#include <assert.h>

#define DOT_EMULATED emulated_amx

static _Thread_local struct {
	bool on;
	bool loaded[8];
	int rows[8];
	uint8_t t[8][16][64];
} amx;

/* Set the rows per tile: 16 for tiles 2 and 3, n1 for tiles 1, 6 and 7, n0 for the rest. */
static inline void amx_configure(int n0, int n1)
{
	memset(&amx, 0, sizeof amx);
	amx.on = true;
	assert(n0 >= 1 && n0 <= 16 && n1 >= 1 && n1 <= 16);
	for (int t = 0; t < 8; t++)
		amx.rows[t] = t == 2 || t == 3 ? 16 : t == 1 || t > 5 ? n1 : n0;
}

static inline void amx_load(int t, const void *p, size_t stride)
{
	assert(amx.on);
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
	assert(amx.on);
	amx.loaded[t] = true;
	memset(amx.t[t], 0, sizeof amx.t[t]);
}

/* TDPBSSD: c[m][n] += sum of a[m][4 k + i] * b[k][4 n + i], both signed */
static inline void amx_dot(int c, int a, int b)
{
	assert(amx.on && amx.loaded[a] && amx.loaded[b] && amx.loaded[c] && amx.rows[a] == amx.rows[c]);
	for (int m = 0; m < amx.rows[c]; m++)
		for (int n = 0; n < 16; n++) {
			uint32_t sum;
			memcpy(&sum, &amx.t[c][m][4 * n], 4);
			for (int k = 0; k < 64; k++)
				sum += (uint32_t)((int8_t)amx.t[a][m][k] *
						  (int8_t)amx.t[b][k / 4][4 * n + k % 4]);
			memcpy(&amx.t[c][m][4 * n], &sum, 4);
		}
}

#define AMX_LOAD(t, p, stride)      amx_load(t, p, stride)
#define AMX_LOAD_ONCE(t, p, stride) amx_load(t, p, stride)
#define AMX_STORE(t, p, stride)     amx_store(t, p, stride)
#define AMX_ZERO(t)                 amx_zero(t)
#define AMX_DOT(c, a, b)            amx_dot(c, a, b)
#define AMX_RELEASE()               (amx.on = false)

#include "kernels/cpu/dot/avx512amx.c"
