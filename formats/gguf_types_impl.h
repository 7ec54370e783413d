/* gguf_types_impl.h - shared by the readers of GGUF's block types: gguf_types.c, gguf_types_iq.c. */
#ifndef QUERN_FORMATS_GGUF_TYPES_IMPL_H
#define QUERN_FORMATS_GGUF_TYPES_IMPL_H

#include <stdint.h>

/* Output pointers for the values of one block. */
struct block {
	uint8_t *code;
	int16_t *scale, *offset;
	float *d, *dmin;
};

/* Convert the F16 value at p, little-endian, to F32 exactly. */
float gguf_f16_at(const unsigned char *p);

/* Readers of one block.  Codes are 128 plus a signed value. */
void gguf_read_iq1_s(const unsigned char *p, const struct block *to);
void gguf_read_iq1_m(const unsigned char *p, const struct block *to);
void gguf_read_iq2_xxs(const unsigned char *p, const struct block *to);
void gguf_read_iq2_xs(const unsigned char *p, const struct block *to);
void gguf_read_iq2_s(const unsigned char *p, const struct block *to);
void gguf_read_iq3_xxs(const unsigned char *p, const struct block *to);
void gguf_read_iq3_s(const unsigned char *p, const struct block *to);

#endif
