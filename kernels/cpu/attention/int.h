/* int.h - attention on keys and values of one or two bytes, in exact integers.
 *
 * K and V of a token and head are codes, each with its own scale, computed from that token alone.
 *
 *     codes   INT8    -127 .. 127                one plane
 *             INT16   -32512 .. 32512            two: code = 256 high + low, each a signed byte
 *     query   of a row and head: as INT16        q = 256 qh + ql
 *     weights of a query and chunk, 0 .. 65535   w = 256 wh + wl, unsigned bytes
 *
 *     S     = sum over d of  q k   =  256 sum qh kh  +  sum (ql kh + qh kl)          an int32
 *     score = fma(S * key scale, query scale, log of the value scale)                 F32
 *     e     = 65535 exp(score - max), w = e rounded; sum += e / value scale           F32, ascending
 *     O     = sum over t of  w v   =  256 sum wh vh  +  sum (wl vh + wh vl)           an int32
 *
 * The scale of a key or value is that of its high byte: largest |x| / 127.  With one plane the low bytes of k
 * and v are 0.  With two planes the products of two low bytes are left out: they are below 2^-16 of the
 * largest product, like the rounding of a code.  O / sum is the result.  The scale of a value is part of its
 * weight, so that the weights of a chunk are rounded relative to the largest of them.
 *
 * Exact sums have no order: every instruction set and every shape of a kernel gives the same bits.
 *     |S| <= D (32512 * 127 + 127 * 128) < 2^31 for D <= 512;   |O| <= 256 (65535 * 127 + 255 * 128) < 2^31
 *
 * INT8 rotates q and K by a Hadamard matrix (of the largest power of two that divides D, block by block).
 * Without it a few large channels, which K often has, would take most of the code range from the others.  The
 * rotation does not change products of q and K.
 *
 * A head in a tile of 16 tokens (kvtype.h), lines of 64 signed bytes:
 *     K   [D / 4][planes][16 tokens][4 d]  | key scales F32 [16] | log2 of value scales F32 [16]
 *     V   [D / 16][4][planes][16 d][4 tokens]
 * These are the operands of vpdpbusd and, for 64 d or 64 tokens, of tdpbssd. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_INT_H
#define QUERN_KERNELS_CPU_ATTENTION_INT_H

#include "kernels/cpu/attention/kvtype.h"

enum { KV_INT_DIM_MAX = 512 }; /* largest head size: larger sums would not fit an int32 */

/* The two types for one instruction set; all instruction sets give the same bits. */
struct cpu_kv_ints {
	struct cpu_kv_type int8, int16;
};

/* Return the best table of this machine within an instruction set of isa.h ("avx512": also AMX). */
const struct cpu_kv_ints *cpu_kv_ints(const struct cpu_isa *isa);

/* NULL if not built, or not supported by this CPU. */
const struct cpu_kv_ints *cpu_kv_ints_plain(void);
const struct cpu_kv_ints *cpu_kv_ints_avx2(void);
const struct cpu_kv_ints *cpu_kv_ints_avxvnni(void);
const struct cpu_kv_ints *cpu_kv_ints_avx512vnni(void);
const struct cpu_kv_ints *cpu_kv_ints_amx(void);

#endif
