/* kv_peek.h - where the paged cache of the CUDA table lies. */
#ifndef QUERN_TESTS_CUDASIM_KV_PEEK_H
#define QUERN_TESTS_CUDASIM_KV_PEEK_H

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The pool, on the device; the null block stands behind the others. */
struct kv_peek {
	unsigned char *pool;
	size_t block_bytes, layer_bytes, head_bytes;
	int n_blocks; /* without the null block */
};
struct kv_peek kv_peek_at(const struct kern_kv *kv);

#ifdef __cplusplus
}
#endif

#endif
