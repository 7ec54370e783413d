/* block_types.h - the tensor types of GGUF files: one row per type, from which each reader makes its table.
 *
 * A new block type is a row here and its decoder in formats/gguf_types.c.  A type that `quern quantize`
 * writes has a WRITE row, and an encoder in quant/round/gguf_encode.c.  The CPU's kernels compute all codes.
 * A GPU unpacks codes when it loads them, except the kinds of LIN_CODE_KINDS (kernels/cuda/linear.cuh).
 *
 *     PLAIN(number, NAME, values, bytes)     floats, integers, and types of which only the size is known
 *     READ(number, NAME, name, values, bytes, bits, group, zero, d, table, at d, at dmin)
 *     WRITE(the columns of READ, head, file type)
 *
 *     number         in files
 *     name           of options, of the decoder and of the encoder
 *     values, bytes  of a block
 *     bits, group, zero, d, table
 *                    as in struct codes (base/codes.h); zero -1: a block has minimums
 *     at d, at dmin  offsets of a block's F16 scales; -1: none
 *     head           name of the type that `quern quantize` gives to the head
 *     file type      llama.cpp's number of a file of this type (general.file_type) */
#ifndef QUERN_BASE_BLOCK_TYPES_H
#define QUERN_BASE_BLOCK_TYPES_H

/* clang-format off */
#define PLAIN_TYPES(PLAIN) \
	PLAIN(0, F32, 1, 4) \
	PLAIN(1, F16, 1, 2) \
	PLAIN(9, Q8_1, 32, 36) \
	PLAIN(15, Q8_K, 256, 292) \
	PLAIN(24, I8, 1, 1) \
	PLAIN(25, I16, 1, 2) \
	PLAIN(26, I32, 1, 4) \
	PLAIN(27, I64, 1, 8) \
	PLAIN(28, F64, 1, 8) \
	PLAIN(30, BF16, 1, 2) \
	PLAIN(34, TQ1_0, 256, 54) \
	PLAIN(35, TQ2_0, 256, 66) \
	PLAIN(40, NVFP4, 64, 36) \
	PLAIN(41, Q1_0, 128, 18)

/* Help texts and messages list the types in this order. */
#define BLOCK_TYPES(READ, WRITE) \
	/*                        values bytes bits group zero  d    table     at d dmin  head  file */ \
	WRITE(8, Q8_0, q8_0,          32,  34, 8, 32, 128, F16,  NULL,         0,  -1,   q8_0,  7) \
	WRITE(2, Q4_0, q4_0,          32,  18, 4, 32,   8, F16,  NULL,         0,  -1,   q6_k,  2) \
	READ(3, Q4_1, q4_1,           32,  20, 4, 32,  -1, F16,  NULL,         0,   2) \
	READ(6, Q5_0, q5_0,           32,  22, 5, 32,  16, F16,  NULL,         0,  -1) \
	READ(7, Q5_1, q5_1,           32,  24, 5, 32,  -1, F16,  NULL,         0,   2) \
	READ(10, Q2_K, q2_k,         256,  84, 2, 16,  -1, F16,  NULL,        80,  82) \
	READ(11, Q3_K, q3_k,         256, 110, 3, 16,   4, F16,  NULL,       108,  -1) \
	WRITE(12, Q4_K, q4_k,        256, 144, 4, 32,  -1, F16,  NULL,         0,   2,   q6_k, 14) \
	WRITE(13, Q5_K, q5_k,        256, 176, 5, 32,  -1, F16,  NULL,         0,   2,   q6_k, 16) \
	WRITE(14, Q6_K, q6_k,        256, 210, 6, 16,  32, F16,  NULL,       208,  -1,   q6_k, 18) \
	READ(19, IQ1_S, iq1_s,       256,  50, 8, 32, 128, F32,  NULL,         0,  -1) \
	READ(29, IQ1_M, iq1_m,       256,  56, 8, 16, 128, F32,  NULL,        -1,  -1) \
	READ(16, IQ2_XXS, iq2_xxs,   256,  66, 8, 32, 128, F32,  NULL,         0,  -1) \
	READ(17, IQ2_XS, iq2_xs,     256,  74, 8, 16, 128, F32,  NULL,         0,  -1) \
	READ(22, IQ2_S, iq2_s,       256,  82, 8, 16, 128, F32,  NULL,         0,  -1) \
	READ(18, IQ3_XXS, iq3_xxs,   256,  98, 8, 32, 128, F32,  NULL,         0,  -1) \
	READ(21, IQ3_S, iq3_s,       256, 110, 8, 32, 128, F32,  NULL,         0,  -1) \
	READ(20, IQ4_NL, iq4_nl,      32,  18, 4, 32,   0, F16,  gguf_iq4,     0,  -1) \
	WRITE(23, IQ4_XS, iq4_xs,    256, 136, 4, 32,   0, F16,  gguf_iq4,     0,  -1,   q6_k, 30) \
	READ(39, MXFP4, mxfp4,        32,  17, 4, 32,   0, BF16, codes_e2m1,  -1,  -1)
/* clang-format on */

#define BLOCK_NONE(...)
/* Strings for help texts: the names of all block types, each followed by a comma; of those that are written,
 * by a comma, or by a space. */
#define BLOCK_NAME_COMMA(number, NAME, name, ...) #name ", "
#define BLOCK_NAME_SPACE(number, NAME, name, ...) #name " "
#define BLOCK_NAMES                               BLOCK_TYPES(BLOCK_NAME_COMMA, BLOCK_NAME_COMMA)
#define BLOCK_NAMES_WRITTEN                       BLOCK_TYPES(BLOCK_NONE, BLOCK_NAME_COMMA)
#define BLOCK_WORDS_WRITTEN                       BLOCK_TYPES(BLOCK_NONE, BLOCK_NAME_SPACE)

#endif
