/* shm.h - how processes of one host come to share memory.
 * Used by coll.c and shm.c, and by kernels/cuda/nccl.cu, which meets in the same way.
 *
 * Rank 0 listens at a socket in Linux's abstract namespace.  Its name ends with the process, so that a killed
 * process leaves nothing behind.  The other ranks connect and send their identity.  When all have connected,
 * each rank receives the descriptor of an anonymous memory file, sealed so that it cannot be truncated.  Both
 * ends check the other's user id, since every process on the host can see the name.  The connections stay
 * open: a process that ends hangs up. */
#ifndef QUERN_KERNELS_CPU_SHM_H
#define QUERN_KERNELS_CPU_SHM_H

#include "base/err.h"
#include "kernels/coll.h"

struct shm_joined {
	void *base; /* the shared bytes, zeroed at the start */
	size_t bytes;
	int fd[COLL_RANKS_MAX];      /* connections; rank 0: to each other rank; other ranks: only [0]; -1:
					none */
	int64_t pid[COLL_RANKS_MAX]; /* the peers' process ids, as seen here */
};

int shm_rendezvous_new(struct coll_rendezvous **out, char *text, struct why *why);
void shm_rendezvous_free(struct coll_rendezvous *m);

/* Errors as in coll_ops.join. */
int shm_join(struct shm_joined *out, const struct coll_args *a, size_t bytes, struct why *why);
void shm_leave(struct shm_joined *j); /* a zeroed struct with fd all -1 is fine */

/* Return true if the process at the other end has ended. */
bool shm_hung_up(int fd);

#endif
