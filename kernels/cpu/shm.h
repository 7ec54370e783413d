/* shm.h - how processes of one host come to share a piece of memory: inside of coll.c, shm.c, and of
 * kernels/cuda/nccl.cu, which meets in the same way.
 *
 * Rank 0 listens at a socket without a name in the file system (Linux's abstract names), which
 * ends with the process, so that a killed one leaves nothing behind.  The others connect and say
 * their identity; when all are there, each gets the descriptor of an anonymous memory file, sealed
 * so that it cannot be truncated.  Both ends look at the other's user id, since every process on the host
 * can see the name.  The connections stay: a process that ends hangs up. */
#ifndef QUERN_KERNELS_CPU_SHM_H
#define QUERN_KERNELS_CPU_SHM_H

#include "kernels/coll.h"

struct shm_joined {
	void *base; /* the shared bytes, zeroed at first */
	size_t bytes;
	int fd[COLL_RANKS_MAX];      /* connections; of rank 0: to each other rank; else only [0]; -1: none */
	int64_t pid[COLL_RANKS_MAX]; /* likewise, as this process sees them */
};

int shm_meet_new(struct coll_meet **out, char *text, char *why, size_t why_n);
void shm_meet_free(struct coll_meet *m);

/* Errors as coll_ops.join. */
int shm_join(struct shm_joined *out, const struct coll_args *a, size_t bytes, char *why, size_t why_n);
void shm_leave(struct shm_joined *j); /* a zeroed one with fd all -1 is fine */

/* Has the process at the other end of that connection ended? */
bool shm_hung_up(int fd);

#endif
