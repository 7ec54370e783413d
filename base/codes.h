/* codes.h - quantized weights in one common format, to which every stored type is converted: a code of 2 to
 * 8 bits per weight, an integer scale and offset per group of inputs, and a float per super-group of inputs.
 *
 *     zeros:     w[n][i] = d[n][S] * scale[n][g] * (code[n][i] - offset[n][g])         g = i / group
 *     minimums:  w[n][i] = d[n][S] * scale[n][g] * code[n][i] - dmin[n][S] * offset[n][g]   S = i / super
 *
 * If a super-group has several groups, scales are -128 to 127 and minimums 0 to 255.  Otherwise the type
 * stores floats only, and scales are 1.  If there is a table, table[code] takes the place of the code.
 * Weights are read by ranges of outputs, so that memory never holds a second copy of a matrix.  A kernel
 * table repacks the weights without widening the scales. */
#ifndef QUERN_BASE_CODES_H
#define QUERN_BASE_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum codes_float { CODES_F32, CODES_F16, CODES_BF16 };

struct code_rows {       /* outputs n0 .. n1 - 1, filled in by read(); the caller owns the memory */
	uint8_t *code;   /* [n1 - n0][k] */
	int16_t *scale;  /* [n1 - n0][ceil(k / group)]; all 1 if the type has no integer scales, only d */
	int16_t *offset; /* [n1 - n0][ceil(k / group)] */
	float *d;        /* [n1 - n0][ceil(k / super)] */
	float *dmin;     /* [n1 - n0][ceil(k / super)]; only with minimums */
};

struct codes {
	int n, k;                /* outputs, inputs */
	int bits;                /* bits per code */
	int group, super;        /* inputs; super is a multiple of group; both at most k */
	bool minimums;           /* offsets are minimums, not zeros */
	int zero;                /* zero point of all groups, if none are stored; -1: offset[] has them */
	enum codes_float d_type; /* d and dmin are exact in this type */
	const char *type;        /* static: name of the stored type, for people; NULL: the bits say enough */
	const float *table;      /* [16] or [256], for codes of 4 or 8 bits; or NULL */
	const int32_t *perm;     /* [k] column i of the codes is the layer's input perm[i]; or NULL */
	void (*read)(const struct codes *c, int n0, int n1, const struct code_rows *out);
	/* Bytes of a stored super-group, if a row is its super-groups one after another, in fewer bits than
	 * its codes take: a kernel may then keep a copy of the rows and read() them when it needs them
	 * (codes_copied()).  from[0] has the rows.  Else 0. */
	int super_bytes;
	const void *from[3]; /* for read(): the stored weights */
	int n0, k0;          /* for read(): where a cut begins */
};

int codes_groups(const struct codes *c); /* number of groups in a row */
int codes_supers(const struct codes *c);

/* Allocate rows for n outputs of c. */
void codes_rows_new(struct code_rows *r, const struct codes *c, int n);
void codes_rows_free(struct code_rows *r);

/* Return whether inputs k0 .. k0 + k - 1 can be cut out.  They must begin and end at borders of groups and
 * super-groups, and must not be permuted.  A cut of whole rows is always possible. */
bool codes_can_cut(const struct codes *c, int k0, int k);

/* Make *out a cut of `whole`: its outputs n0 .. n0 + n - 1 and inputs k0 .. k0 + k - 1.  `whole` must outlive
 * out. */
void codes_cut(struct codes *out, const struct codes *whole, int n0, int n, int k0, int k);

/* Return the stored codes that c was cut from, or c itself if it is not a cut. */
const struct codes *codes_whole(const struct codes *c);

/* Return the bytes of a row as stored, for c with super_bytes; c may be cut. */
size_t codes_row_bytes(const struct codes *c);
/* Copy rows n0 .. n1 - 1 as stored: codes_row_bytes() each. */
void codes_copy_rows(const struct codes *c, int n0, int n1, void *out);
/* Make *out the codes of n rows that codes_copy_rows() copied. */
void codes_copied(struct codes *out, const struct codes *c, const void *rows, int n);

/* Nibble of AWQ's words that holds column c of eight: 0 4 1 5 2 6 3 7. */
static inline int codes_awq_nibble(int c)
{
	return (c & 1) * 4 + (c >> 1);
}

/* Twice the values of E2M1, and half the value of an E8M0 exponent, 2^(e - 128), as MXFP4 has them (OCP
 * Microscaling Formats 1.0): the product of both is exact. */
extern const float codes_e2m1[16];
float codes_e8m0_half(uint8_t e);

/* Conversion of a group's codes to floats: by * (v - zero) - min, where v is the code or its table value.
 * Each operation is rounded separately, so that all functions of this type give the same bits. */
struct codes_group {
	const float *table;  /* or NULL */
	float by, zero, min; /* by: super-group's float times the group's scale; min: 0 changes no bit */
};
typedef void codes_group_fn(const struct codes_group *g, const uint8_t *code, int n, float *out);
codes_group_fn codes_group_floats;

/* Convert row n of r, which c has read, to floats in the order of the codes: out [k]. */
void codes_row_floats(const struct codes *c, const struct code_rows *r, int n, codes_group_fn *floats,
		      float *out);

/* Convert outputs n0 .. n1 - 1 to floats, with inputs in the layer's order: out [n1 - n0][k]. */
void codes_floats(const struct codes *c, int n0, int n1, float *out);

#endif
