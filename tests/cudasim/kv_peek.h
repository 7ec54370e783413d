/* kv_peek.h - access to the CUDA table's paged cache and block tables, and to attention's shared memory. */
#ifndef QUERN_TESTS_CUDASIM_KV_PEEK_H
#define QUERN_TESTS_CUDASIM_KV_PEEK_H

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The pool on the device.  The null block follows the others. */
struct kv_peek {
	unsigned char *pool;
	size_t block_bytes, layer_bytes, head_bytes;
	int n_blocks; /* without the null block */
};
struct kv_peek kv_peek_at(const struct kern_kv *kv);

/* Set a block's limit of shared memory, to emulate a smaller device. */
void kv_peek_set_smem(struct kern_dev *d, int bytes);
/* Return the shared memory of an attention block: head size 128 or 256; split: the kernel for few rows. */
int kv_peek_attn_smem(int dim, bool split, int stages);

/* Device arrays: tables [n_tables][stride], with the null rows' table last, and each row's table index. */
struct batch_peek {
	int32_t *tables, *row_table;
	int n_tables, stride;
};
struct batch_peek batch_peek_at(const struct kern_dev *dev);
/* Make the table's next launch report a failure. */
void batch_peek_fail(void);

#ifdef __cplusplus
}
#endif

#endif
