/* kv_peek.cc - see kv_peek.h. */
#include "tests/cudasim/kv_peek.h"
#include "kernels/cuda/cuda.cuh"

struct kv_peek kv_peek_at(const struct kern_kv *kv)
{
	return (struct kv_peek){kv->pool, kv->block_bytes, kv->layer_bytes, kv->head_bytes, kv->n_blocks};
}
