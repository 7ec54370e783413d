/* codes.h - quantized weights in the one form that every stored type is brought to: a code of 2 to 8 bits
 * per weight; per group of inputs an integer scale and an integer offset; per super-group of inputs a float.
 *
 *     zeros:     w[n][i] = d[n][S] * scale[n][g] * (code[n][i] - offset[n][g])         g = i / group
 *     minimums:  w[n][i] = d[n][S] * scale[n][g] * code[n][i] - dmin[n][S] * offset[n][g]   S = i / super
 *
 * Where a super-group is of several groups, scales are -128 to 127 and minimums 0 to 255; else what a type
 * has is floats, and scales are 1. With table[code] in place of the code where there is a table.  Read by
 * ranges of outputs, so that no second copy of a matrix is ever in memory; a table of kernels repacks it
 * without widening the scales. */
#ifndef QUERN_BASE_CODES_H
#define QUERN_BASE_CODES_H

#include <stdbool.h>
#include <stdint.h>

enum codes_float { CODES_F32, CODES_F16, CODES_BF16 };

struct code_rows {       /* of outputs n0 .. n1 - 1, filled in by read(); the memory is the caller's */
	uint8_t *code;   /* [n1 - n0][k] */
	int16_t *scale;  /* [n1 - n0][ceil(k / group)]; 1 where a type has floats only */
	int16_t *offset; /* likewise */
	float *d;        /* [n1 - n0][ceil(k / super)] */
	float *dmin;     /* likewise; with minimums only */
};

struct codes {
	int n, k;                /* outputs, inputs */
	int bits;                /* of a code */
	int group, super;        /* inputs; super is a multiple of group; both at most k */
	bool minimums;           /* offsets are minimums, not zeros */
	int zero;                /* the zero of all groups, where none are stored; -1: offset[] has them */
	enum codes_float d_type; /* d and dmin are exact in it */
	const float *table;      /* [16] or [256], for codes of 4 or 8 bits; or NULL */
	const int32_t *perm;     /* [k] column i of the codes belongs to the layer's input perm[i]; or NULL */
	void (*read)(const struct codes *c, int n0, int n1, const struct code_rows *out);
	const void *from[3]; /* of read(): where the stored weights are */
	int n0, k0;          /* of read(): of a cut, where it begins */
};

int codes_groups(const struct codes *c); /* of a row */
int codes_supers(const struct codes *c);

/* Rows of c, owned: room for n outputs. */
void codes_rows_new(struct code_rows *r, const struct codes *c, int n);
void codes_rows_free(struct code_rows *r);

/* Whether inputs k0 .. k0 + k - 1 can be cut out: at borders of groups and of super-groups (of whole rows:
 * anywhere), and not of permuted inputs. */
bool codes_can_cut(const struct codes *c, int k0, int k);

/* Outputs n0 .. n0 + n - 1 and inputs k0 .. k0 + k - 1 of `whole`, which is borrowed for out's life. */
void codes_cut(struct codes *out, const struct codes *whole, int n0, int n, int k0, int k);

/* The codes that a cut is of, as they are stored; c itself where it is none. */
const struct codes *codes_whole(const struct codes *c);

/* What a group's codes become: by * (v - zero) - min, v the code or its value in the table.  Every operation
 * is rounded by itself, so that all functions of this type give the same bits. */
struct codes_group {
	const float *table; /* or NULL */
	float by, zero,
		min; /* by: the float of the super-group times the group's scale; min: 0 changes no bit */
};
typedef void codes_group_fn(const struct codes_group *g, const uint8_t *code, int n, float *out);
codes_group_fn codes_group_floats;

/* Row n of r, which c has read, as floats in the order of the codes: out [k]. */
void codes_row_floats(const struct codes *c, const struct code_rows *r, int n, codes_group_fn *floats,
		      float *out);

/* Outputs n0 .. n1 - 1 as floats, inputs in the layer's order: out [n1 - n0][k]. */
void codes_floats(const struct codes *c, int n0, int n1, float *out);

#endif
