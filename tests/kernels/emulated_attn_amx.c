/* emulated_attn_amx.c - kernels/cpu/attention/int_avx512amx.c with AMX tiles emulated in memory. Each thread
 * has its own tiles, valid only while configured. An assertion fails if a kernel reads a tile that is
 * released or not yet loaded. */
#include "tests/kernels/emulate_attention.h"
#include "tests/kernels/emulated_attention.h"

#include <assert.h>

#define INT_EMULATED emulated_ints_amx

static _Thread_local struct {
	bool on;
	bool loaded[8];
	uint8_t t[8][16][64];
} amx;

static inline void amx_configure(void)
{
	memset(&amx, 0, sizeof amx);
	amx.on = true;
}

static inline void amx_load(int t, const void *p, size_t stride)
{
	assert(amx.on);
	amx.loaded[t] = true;
	for (int r = 0; r < 16; r++)
		memcpy(amx.t[t][r], (const char *)p + (size_t)r * stride, 64);
}

static inline void amx_store(int t, void *p, size_t stride)
{
	assert(amx.on && amx.loaded[t]);
	for (int r = 0; r < 16; r++)
		memcpy((char *)p + (size_t)r * stride, amx.t[t][r], 64);
}

static inline void amx_zero(int t)
{
	assert(amx.on);
	amx.loaded[t] = true;
	memset(amx.t[t], 0, sizeof amx.t[t]);
}

/* TDPBSSD, TDPBUSD: c[m][n] += sum of a[m][4 k + i] (signed or not) * b[k][4 n + i] (signed) */
static inline void amx_dot(int c, int a, int b, bool is_signed)
{
	assert(amx.on && amx.loaded[a] && amx.loaded[b] && amx.loaded[c]);
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < 16; n++) {
			uint32_t sum;
			memcpy(&sum, &amx.t[c][m][4 * n], 4);
			for (int k = 0; k < 64; k++) {
				const uint8_t x = amx.t[a][m][k];
				sum += (uint32_t)((is_signed ? (int8_t)x : (int)x) *
						  (int8_t)amx.t[b][k / 4][4 * n + k % 4]);
			}
			memcpy(&amx.t[c][m][4 * n], &sum, 4);
		}
}

#define AMX_LOAD(t, p, stride)  amx_load(t, p, stride)
#define AMX_STORE(t, p, stride) amx_store(t, p, stride)
#define AMX_ZERO(t)             amx_zero(t)
#define AMX_SIGNED(c, a, b)     amx_dot(c, a, b, true)
#define AMX_UNSIGNED(c, a, b)   amx_dot(c, a, b, false)
#define AMX_RELEASE()           (amx.on = false)

#include "kernels/cpu/attention/int_avx512amx.c"
