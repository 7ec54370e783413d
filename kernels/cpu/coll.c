/* coll.c - collectives between processes of one host, through shared memory.
 *
 *   head | rank 0: slot, slot | rank 1: slot, slot | ...
 *
 * Operation number n uses slot n % 2 of every rank.  A rank writes its data into its own slot, publishes it
 * (arrived counts the operation), waits until all other ranks have arrived, and reads their slots.  No slot
 * is written while it is read: a rank that writes for operation n + 2 has seen all ranks arrive at n + 1, so
 * they have finished n.  Longer messages are sent in chunks, one operation each.
 *
 * A wait spins for a moment, then sleeps on the peer's word (futex), since there may be fewer cores than
 * ranks.  Every 20 ms the waiter checks whether the group still exists. */
#include "kernels/cpu/coll.h"

#include <assert.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/shm.h"

enum {
	SLOT_BYTES = 1 << 20,
	SPIN_US = 50, /* about the distance in time between two ranks with equal work */
	LOOK_MS = 20,
};

/* Operation numbers start shortly before they wrap, so that an error in wrapping shows at once. */
static const uint32_t FIRST_OP = UINT32_MAX - 99;

enum kind { SUM = 1, COLS, TOKENS, GATHER, BROADCAST, BARRIER };

/* State of one rank, in cache lines of its own. */
struct shm_rank {
	_Alignas(128) _Atomic uint32_t arrived; /* operations since FIRST_OP at which the rank has arrived;
						   futex */
	_Atomic uint32_t sleepers;              /* ranks asleep on `arrived` */
	_Atomic uint64_t what[2];               /* kind and size of the operation in each slot */
};

struct shm_head {
	_Alignas(128) _Atomic uint32_t broken; /* the group has ended */
	struct shm_rank ranks[COLL_RANKS_MAX];
};

struct coll {
	struct shm_joined shm;
	struct shm_head *head;
	int rank, n_ranks;
	uint32_t op; /* number of the next operation; wraps */
	int timeout_ms;
	bool (*cancelled)(void *arg);
	void *cancelled_arg;
	int rc; /* 0 while the group is complete */
	struct why why;
};

static unsigned char *slot(const struct coll *c, int rank)
{
	return (unsigned char *)c->shm.base + sizeof(struct shm_head) +
	       ((size_t)rank * 2 + (c->op & 1)) * SLOT_BYTES;
}

/* ---- waiting ---- */

static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int broke(struct coll *c, int rc, const char *fmt, int rank)
{
	c->rc = err_why(&c->why, rc, fmt, rank);
	return rc;
}

/* Mark the group as broken, and wake the other ranks. */
static void report_broken(struct coll *c)
{
	atomic_store(&c->head->broken, 1);
	for (int r = 0; r < c->n_ranks; r++)
		wake(&c->head->ranks[r].arrived);
}

/* Check whether to go on waiting for rank p, since t0.  0, or the error that ends the group. */
static int look(struct coll *c, int p, int64_t t0)
{
	if (c->cancelled && c->cancelled(c->cancelled_arg))
		return broke(c, -ECANCELED, "waiting for rank %d was cut short", p);
	for (int r = 0; r < c->n_ranks; r++)
		if (c->shm.fd[r] >= 0 && shm_hung_up(c->shm.fd[r]))
			return broke(c, -ECONNRESET, "rank %d has ended", r);
	if (atomic_load(&c->head->broken))
		return broke(c, -ECONNRESET, "a rank left the group during a wait for rank %d", p);
	if (clock_us() - t0 > (int64_t)c->timeout_ms * 1000)
		return broke(c, -ECONNRESET, "rank %d did not arrive in time", p);
	return 0;
}

/* Return true if `arrived`, the count of a rank, includes this operation. */
static bool includes(const struct coll *c, uint32_t arrived)
{
	return (int32_t)(FIRST_OP + arrived - (c->op + 1)) >= 0;
}

static bool is_here(const struct coll *c, int p)
{
	return includes(c, atomic_load(&c->head->ranks[p].arrived));
}

static void sleep_on(struct coll *c, int p)
{
	const struct timespec ts = {.tv_nsec = LOOK_MS * 1000000};
	struct shm_rank *r = &c->head->ranks[p];
	atomic_fetch_add(&r->sleepers, 1);
	uint32_t seen = atomic_load(&r->arrived);
	if (!includes(c, seen))
		syscall(SYS_futex, &r->arrived, FUTEX_WAIT, seen, &ts, NULL, 0);
	atomic_fetch_sub(&r->sleepers, 1);
}

static int wait_for(struct coll *c, int p)
{
	if (is_here(c, p))
		return 0;
	const int64_t t0 = clock_us();
	while (clock_us() - t0 < SPIN_US)
		for (int i = 0; i < 32; i++) {
			if (is_here(c, p))
				return 0;
			cpu_pause();
		}
	while (!is_here(c, p)) {
		if (look(c, p, t0)) {
			/* The rank may have arrived, finished and left since: its data is then complete. */
			if (is_here(c, p)) {
				c->rc = 0;
				return 0;
			}
			report_broken(c);
			return c->rc;
		}
		sleep_on(c, p);
	}
	return 0;
}

/* ---- one operation ---- */

static uint64_t tag(enum kind kind, size_t bytes)
{
	return (uint64_t)kind << 56 | bytes;
}

/* Publish this rank's slot, and wait for the others'. The caller reads the slots, then calls finish(). */
static int exchange(struct coll *c, uint64_t what)
{
	struct shm_rank *me = &c->head->ranks[c->rank];
	if (c->rc)
		return c->rc;
	atomic_store(&me->what[c->op & 1], what);
	atomic_store(&me->arrived, c->op + 1 - FIRST_OP);
	if (atomic_load(&me->sleepers))
		wake(&me->arrived);
	for (int p = 0; p < c->n_ranks; p++) {
		if (p == c->rank)
			continue;
		int rc = wait_for(c, p);
		if (rc)
			return rc;
		if (atomic_load(&c->head->ranks[p].what[c->op & 1]) != what) {
			broke(c, -EPROTO, "rank %d runs another operation than this rank", p);
			report_broken(c);
			return c->rc;
		}
	}
	return 0;
}

static void finish(struct coll *c)
{
	c->op++;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- operations ---- */

static void sum_slots(const struct coll *c, float *x, size_t n)
{
	memcpy(x, slot(c, 0), n * sizeof *x);
	for (int r = 1; r < c->n_ranks; r++) {
		const float *part = (const float *)(const void *)slot(c, r);
		for (size_t i = 0; i < n; i++)
			x[i] += part[i];
	}
}

static int shm_sum_rows(struct coll *c, struct kern_stream *s, void *x, int n_rows, int width)
{
	const size_t n = (size_t)n_rows * (size_t)width, most = SLOT_BYTES / sizeof(float);
	(void)s;
	for (size_t at = 0, part; at < n; at += part) {
		float *here = (float *)x + at;
		part = least(n - at, most);
		memcpy(slot(c, c->rank), here, part * sizeof *here);
		int rc = exchange(c, tag(SUM, n * sizeof *here));
		if (rc)
			return rc;
		sum_slots(c, here, part);
		finish(c);
	}
	return c->rc;
}

/* Copy values at .. at + n of a matrix of `width` columns to rows of `stride` columns. */
static void place_cols(float *out, size_t stride, const float *part, size_t width, size_t at, size_t n)
{
	while (n) {
		size_t row = at / width, col = at % width, k = least(width - col, n);
		memcpy(out + row * stride + col, part, k * sizeof *out);
		part += k;
		at += k;
		n -= k;
	}
}

static int shm_gather_cols(struct coll *c, struct kern_stream *s, void *out, const void *in, int n_rows,
			   const int *widths)
{
	const size_t most = SLOT_BYTES / sizeof(float), rows = (size_t)n_rows;
	size_t stride = 0, widest = 0;
	(void)s;
	for (int r = 0; r < c->n_ranks; r++) {
		stride += (size_t)widths[r];
		widest = (size_t)widths[r] > widest ? (size_t)widths[r] : widest;
	}
	const size_t mine = rows * (size_t)widths[c->rank];
	for (size_t at = 0; at < rows * widest; at += most) {
		if (at < mine)
			memcpy(slot(c, c->rank), (const float *)in + at,
			       least(mine - at, most) * sizeof(float));
		int rc = exchange(c, tag(COLS, rows * stride));
		if (rc)
			return rc;
		for (int r = 0, col = 0; out && r < c->n_ranks; col += widths[r++]) {
			const size_t all = rows * (size_t)widths[r];
			if (at < all)
				place_cols((float *)out + col, stride,
					   (const float *)(const void *)slot(c, r), (size_t)widths[r], at,
					   least(all - at, most));
		}
		finish(c);
	}
	return c->rc;
}

static int shm_share_tokens(struct coll *c, struct kern_stream *s, int32_t *tokens, const int32_t *at, int n)
{
	const int most = SLOT_BYTES / (int)sizeof *tokens;
	int32_t *from_0;
	(void)s;
	for (int first = 0, part; first < n; first += part) {
		part = n - first < most ? n - first : most;
		from_0 = (int32_t *)(void *)slot(c, 0);
		for (int i = 0; c->rank == 0 && i < part; i++)
			from_0[i] = tokens[at[first + i]];
		int rc = exchange(c, tag(TOKENS, (size_t)n * sizeof *tokens));
		if (rc)
			return rc;
		for (int i = 0; c->rank && i < part; i++)
			tokens[at[first + i]] = from_0[i];
		finish(c);
	}
	return c->rc;
}

static int shm_gather(struct coll *c, void *all, const void *mine, size_t bytes)
{
	for (size_t at = 0, part; at < bytes; at += part) {
		part = least(bytes - at, SLOT_BYTES);
		memcpy(slot(c, c->rank), (const char *)mine + at, part);
		int rc = exchange(c, tag(GATHER, bytes));
		if (rc)
			return rc;
		for (int r = 0; r < c->n_ranks; r++)
			memcpy((char *)all + (size_t)r * bytes + at, slot(c, r), part);
		finish(c);
	}
	return c->rc;
}

static int shm_broadcast(struct coll *c, void *bytes_of_rank_0, size_t bytes)
{
	for (size_t at = 0, part; at < bytes; at += part) {
		part = least(bytes - at, SLOT_BYTES);
		if (c->rank == 0)
			memcpy(slot(c, 0), (char *)bytes_of_rank_0 + at, part);
		int rc = exchange(c, tag(BROADCAST, bytes));
		if (rc)
			return rc;
		if (c->rank)
			memcpy((char *)bytes_of_rank_0 + at, slot(c, 0), part);
		finish(c);
	}
	return c->rc;
}

static int shm_barrier(struct coll *c)
{
	int rc = exchange(c, tag(BARRIER, 0));
	if (!rc)
		finish(c);
	return rc;
}

/* All work is done when a call returns. */
static int shm_sync(struct coll *c, struct kern_stream *s)
{
	(void)s;
	return c->rc;
}

static int shm_look(struct coll *c, int64_t since_us)
{
	(void)since_us;
	return c->rc;
}

/* ---- joining ---- */

static int shm_open_coll(struct coll **out, const struct coll_args *a, struct why *why)
{
	const size_t bytes = sizeof(struct shm_head) + (size_t)a->n_ranks * 2 * SLOT_BYTES;
	if (a->n_ranks < 2 || a->n_ranks > COLL_RANKS_MAX || a->rank < 0 || a->rank >= a->n_ranks)
		return err_why(why, -EINVAL, "rank %d of %d: a group has 2 to %d ranks", a->rank, a->n_ranks,
			       COLL_RANKS_MAX);
	struct coll *c = xcalloc(1, sizeof *c);
	*c = (struct coll){.rank = a->rank,
			   .n_ranks = a->n_ranks,
			   .op = FIRST_OP,
			   .timeout_ms = a->timeout_ms,
			   .cancelled = a->cancelled,
			   .cancelled_arg = a->cancelled_arg};
	int rc = shm_join(&c->shm, a, bytes, why);
	if (rc) {
		free(c);
		return rc;
	}
	c->head = c->shm.base;
	*out = c;
	return 0;
}

static void shm_close_coll(struct coll *c)
{
	if (!c)
		return;
	report_broken(c);
	shm_leave(&c->shm);
	free(c);
}

/* No operation takes longer the first time. */
static void shm_warmed_up(struct coll *c)
{
	(void)c;
}

static const char *shm_why(const struct coll *c)
{
	return c->why.text;
}

const struct coll_ops coll_shm_ops = {
	.abi = COLL_ABI,
	.name = "shared memory",
	.rendezvous_new = shm_rendezvous_new,
	.rendezvous_free = shm_rendezvous_free,
	.join = shm_open_coll,
	.leave = shm_close_coll,
	.why = shm_why,
	.warmed_up = shm_warmed_up,
	.sum_rows = shm_sum_rows,
	.gather_cols = shm_gather_cols,
	.share_tokens = shm_share_tokens,
	.sync = shm_sync,
	.look = shm_look,
	.gather = shm_gather,
	.broadcast = shm_broadcast,
	.barrier = shm_barrier,
};
