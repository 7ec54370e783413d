/* coll.h - the collectives of ranks that are processes of one host, in shared memory (coll.c). */
#ifndef QUERN_KERNELS_CPU_COLL_H
#define QUERN_KERNELS_CPU_COLL_H

#include "kernels/coll.h"

extern const struct coll_ops coll_shm_ops;

#endif
