/* kv_peek.cc - see kv_peek.h. */
#include "tests/cudasim/kv_peek.h"
#include "kernels/cuda/attn.cuh"

struct kv_peek kv_peek_at(const struct kern_kv *kv)
{
	return (struct kv_peek){kv->pool, kv->block_bytes, kv->layer_bytes, kv->head_bytes, kv->n_blocks};
}

void kv_peek_set_smem(struct kern_dev *d, int bytes)
{
	d->smem_max = bytes;
}

int kv_peek_attn_smem(int dim, bool split, int stages)
{
	return dim == 128 ? smem_of_dim<128>(split, stages) : smem_of_dim<256>(split, stages);
}

struct batch_peek batch_peek_at(const struct kern_dev *dev)
{
	const struct kern_open_args *a = &dev->args;
	return (struct batch_peek){dev->batch.tables, dev->batch.row_table,
				   (a->max_tables ? a->max_tables : a->max_seqs) + 1,
				   dev->batch.table_stride};
}

static __global__ void nothing_kernel(void)
{
}

void batch_peek_fail(void)
{
	cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, -1);
}
