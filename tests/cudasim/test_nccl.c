/* Collectives between CUDA ranks, one process per rank: quern's use of NCCL.  On the emulated device a
 * stand-in (nccl.cc) moves the bytes; on GPUs, NCCL itself, with as many ranks as there are GPUs. */
#include "kernels/coll.h"
#include "tests/cudasim/cuda_test.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct coll_ops coll_nccl_ops;
static const struct coll_ops *ops = &coll_nccl_ops;

enum { RANKS = 8, VALUES = 2200000, LATE_MS = 600000 /* longer than a test may take */ };

struct common {
	_Atomic int met;
	char text[COLL_RENDEZVOUS_SIZE];
	_Atomic int passed[RANKS];
	_Atomic int done;
};

static struct common *common;
static pid_t pids[RANKS];
static struct why why;

#define CHECK(ok)                                                                                            \
	do {                                                                                                 \
		if (!(ok)) {                                                                                 \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #ok, why.text);              \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

typedef void rank_fn(struct coll *c, struct kt *t, int rank, int n);

static void set_up(void)
{
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(common, MAP_FAILED);
}

TestSuite(nccl, .init = set_up, .timeout = 300);

/* Open the rank's GPU.  Each process has one emulated GPU. */
static void open_device(struct kt *t, int rank)
{
#ifdef QUERN_CUDASIM
	rank = 0;
#endif
	const struct kern_open_args a = {.index = rank,
					 .max_rows = 4,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 16,
					 .max_blocks_per_seq = 1};
	*t = (struct kt){.ops = &kern_cuda_ops};
	CHECK(t->ops->open(&t->dev, &a, &why) == 0);
	t->s = t->ops->stream_new(t->dev);
	CHECK(t->s != NULL);
}

static int late_ms = LATE_MS;
static bool call_away;

static bool called_away(void *arg)
{
	(void)arg;
	return call_away;
}

/* Graphs that hold operations of the group. */
static struct kern_graph *graphs[2];
static int n_freed;

static void free_graphs(void *arg)
{
	struct kt *t = arg;
	for (int i = 0; i < 2; i++) {
		n_freed += graphs[i] != NULL;
		t->ops->graph_free(graphs[i]);
		graphs[i] = NULL;
	}
}

static void start(int rank, int n, rank_fn *fn)
{
	pids[rank] = fork();
	cr_assert_geq(pids[rank], 0);
	if (pids[rank])
		return;
	struct coll_rendezvous *mine = NULL;
	struct coll *c;
	struct kt t;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* no process outlives a failed test */
	open_device(&t, rank);
	if (rank == 0) {
		CHECK(ops->rendezvous_new(&mine, common->text, &why) == 0);
		atomic_store(&common->met, 1);
	}
	while (!atomic_load(&common->met))
		usleep(1000);
	const struct coll_args a = {.rank = rank,
				    .n_ranks = n,
				    .rendezvous = common->text,
				    .mine = rank ? NULL : &mine,
				    .dev = t.dev,
				    .max_cols = 1100000,
				    .timeout_ms = late_ms,
				    .cancelled = called_away,
				    .over = free_graphs,
				    .over_arg = &t};
	CHECK(ops->join(&c, &a, &why) == 0);
	CHECK(mine == NULL);
	fn(c, &t, rank, n);
	/* A rank that leaves ends the group, also for ranks that have not finished. */
	atomic_fetch_add(&common->done, 1);
	while (atomic_load(&common->done) < n)
		usleep(1000);
	ops->leave(c);
	kt_close(&t);
	_exit(0);
}

static int status_of(int rank)
{
	int s;
	cr_assert_eq(waitpid(pids[rank], &s, 0), pids[rank]);
	return WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
}

/* Return how many ranks this machine can have, determined in a child process, which may open devices. */
static int gpus(void)
{
#ifdef QUERN_CUDASIM
	return RANKS;
#else
	int s;
	pid_t pid = fork();
	if (pid == 0) {
		int n = 0;
		struct kern_open_args a = {.max_rows = 1,
					   .max_seqs = 1,
					   .max_logits = 1,
					   .max_context = 16,
					   .max_blocks_per_seq = 1};
		for (struct kern_dev *d; n < RANKS && kern_cuda_ops.open(&d, &a, NULL) == 0; a.index = ++n)
			kern_cuda_ops.close(d);
		_exit(n);
	}
	waitpid(pid, &s, 0);
	return WIFEXITED(s) ? WEXITSTATUS(s) : 0;
#endif
}

static void run(int n, rank_fn *fn)
{
	const int most = gpus();
	if (n > 1 && most < 2)
		cr_skip_test("2 GPUs are needed");
	n = n < most ? n : most;
	atomic_store(&common->met, 0);
	atomic_store(&common->done, 0);
	for (int r = 0; r < n; r++)
		start(r, n, fn);
	for (int r = 0; r < n; r++)
		cr_expect_eq(status_of(r), 0, "rank %d of %d", r, n);
}

static float value(int rank, size_t i)
{
	return (float)((int)(i * 2654435761u >> 7) % 1000) * (rank % 2 ? 1e-4f : 37.7f) + (float)rank * 0.3f;
}

/* Return the sum of the ranks' values, in rank order. */
static float value_sum(int n, size_t i)
{
	float sum = value(0, i);
	for (int r = 1; r < n; r++)
		sum += value(r, i);
	return sum;
}

/* ---- results ---- */

static void sums(struct coll *c, struct kt *t, int rank, int n)
{
	const int shapes[][2] = {{1, 1}, {3, 70}, {2, 524300}, {5, 256}};
	static float x[VALUES];
	for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
		const size_t all = (size_t)shapes[k][0] * (size_t)shapes[k][1];
		for (size_t i = 0; i < all; i++)
			x[i] = value(rank, i + k);
		void *dx = kt_put(t, x, all * 4);
		CHECK(ops->sum_rows(c, t->s, dx, shapes[k][0], shapes[k][1]) == 0);
		CHECK(ops->sync(c, t->s) == 0);
		kt_get(t, x, dx, all * 4);
		for (size_t i = 0; i < all; i++) {
			const float want = value_sum(n, i + k);
			CHECK(memcmp(&want, &x[i], sizeof want) == 0);
		}
		kt_del(t, dx);
	}
}

Test(nccl, sums_are_made_in_the_order_of_the_ranks)
{
	run(3, sums);
}

/* Compute a sum in one call and row by row: large and small messages are added in different ways. */
static void whole_and_by_rows(struct coll *c, struct kt *t, int rank, int n)
{
	enum { ROWS = 128, WIDTH = 4104, ALL = ROWS * WIDTH };
	static float x[ALL], whole[ALL], rows[ALL];
	for (size_t i = 0; i < ALL; i++)
		x[i] = value(rank, i);
	void *dx = kt_put(t, x, sizeof x);
	CHECK(ops->sum_rows(c, t->s, dx, ROWS, WIDTH) == 0 && ops->sync(c, t->s) == 0);
	kt_get(t, whole, dx, sizeof whole);
	kt_set(t, dx, x, sizeof x);
	for (int i = 0; i < ROWS; i++)
		CHECK(ops->sum_rows(c, t->s, (float *)dx + (size_t)i * WIDTH, 1, WIDTH) == 0);
	CHECK(ops->sync(c, t->s) == 0);
	kt_get(t, rows, dx, sizeof rows);
	CHECK(memcmp(whole, rows, sizeof whole) == 0);
	for (size_t i = 0; i < ALL; i += 101) {
		const float want = value_sum(n, i);
		CHECK(memcmp(&want, &whole[i], sizeof want) == 0);
	}
	kt_del(t, dx);
}

Test(nccl, a_sum_has_the_same_bits_in_messages_of_any_size)
{
	run(3, whole_and_by_rows);
	run(4, whole_and_by_rows);
}

/* One rank is a group too: a test of NCCL for a machine with one GPU. */
Test(nccl, one_rank_adds_nothing)
{
	run(1, sums);
}

static void cols(struct coll *c, struct kt *t, int rank, int n)
{
	const int widths[][3] = {{83, 80, 88}, {5, 1, 9}, {600000, 599992, 1}};
	const int rows[] = {4, 7, 2};
	static float in[VALUES], out[2 * VALUES];
	for (size_t k = 0; k < 3; k++) {
		const int *w = widths[k];
		const size_t mine = (size_t)rows[k] * (size_t)w[rank];
		size_t stride = 0, at = 0;
		for (int r = 0; r < n; r++)
			stride += (size_t)w[r];
		for (size_t i = 0; i < mine; i++)
			in[i] = value(rank, i);
		const size_t all = (size_t)rows[k] * stride * 4;
		void *din = kt_put(t, in, mine * 4), *dout = rank ? NULL : kt_new(t, all);
		CHECK(ops->gather_cols(c, t->s, dout, din, rows[k], w) == 0);
		CHECK(ops->sync(c, t->s) == 0);
		if (rank)
			continue;
		kt_get(t, out, dout, all);
		for (int r = 0; r < n; at += (size_t)w[r++])
			for (size_t i = 0; i < (size_t)rows[k]; i++)
				for (size_t j = 0; j < (size_t)w[r]; j++)
					CHECK(out[i * stride + at + j] == value(r, i * (size_t)w[r] + j));
	}
}

Test(nccl, columns_come_side_by_side)
{
	run(3, cols);
}

static void bytes(struct coll *c, struct kt *t, int rank, int n)
{
	static unsigned char mine[70000], all[RANKS * 70000];
	const size_t sizes[] = {1, 13, 70000};
	(void)t;
	for (size_t k = 0; k < 3; k++) {
		for (size_t i = 0; i < sizes[k]; i++)
			mine[i] = (unsigned char)(i * 7 + (size_t)rank);
		CHECK(ops->gather(c, all, mine, sizes[k]) == 0);
		for (int r = 0; r < n; r++)
			for (size_t i = 0; i < sizes[k]; i++)
				CHECK(all[(size_t)r * sizes[k] + i] == (unsigned char)(i * 7 + (size_t)r));
		CHECK(ops->broadcast(c, mine, sizes[k]) == 0);
		for (size_t i = 0; i < sizes[k]; i++)
			CHECK(mine[i] == (unsigned char)(i * 7));
		CHECK(ops->barrier(c) == 0);
	}
}

Test(nccl, bytes_are_gathered_and_broadcast)
{
	run(3, bytes);
}

/* More tokens than fit one message, in no order; the tokens in between keep their values. */
static void share_tokens(struct coll *c, struct kt *t, int rank, int n)
{
	enum { TOKENS = 1300, ROOM = 4096 };
	static int32_t tokens[ROOM], at[TOKENS];
	const int counts[] = {1, 512, TOKENS};
	(void)n;
	for (size_t k = 0; k < 3; k++) {
		for (int i = 0; i < ROOM; i++)
			tokens[i] = i * 10 + rank;
		for (int i = 0; i < counts[k]; i++)
			at[i] = (i * 1003 + (int)k) % ROOM;
		void *dev = kt_put(t, tokens, sizeof tokens);
		CHECK(ops->share_tokens(c, t->s, dev, at, counts[k]) == 0);
		memset(at, 0xff, sizeof at); /* only borrowed for the call */
		CHECK(ops->sync(c, t->s) == 0);
		kt_get(t, tokens, dev, sizeof tokens);
		for (int i = 0; i < counts[k]; i++) {
			const int p = (i * 1003 + (int)k) % ROOM;
			CHECK(tokens[p] == p * 10);
			tokens[p] += rank;
		}
		for (int i = 0; i < ROOM; i++)
			CHECK(tokens[i] == i * 10 + rank);
		kt_del(t, dev);
	}
}

Test(nccl, tokens_of_rank_0_come_to_all_places)
{
	run(3, share_tokens);
}

/* Like a step of many layers.  The emulated driver takes no more launches after the first operation than a
 * real driver, which would then wait for ranks that may be gone. */
static void a_long_step(struct coll *c, struct kt *t, int rank, int n)
{
	(void)rank, (void)n;
	void *x = kt_new(t, 4096);
	for (int i = 0; i < 700; i++)
		CHECK(ops->sum_rows(c, t->s, x, 4, 256) == 0);
	CHECK(ops->sync(c, t->s) == 0);
	kt_del(t, x);
}

Test(nccl, no_more_is_queued_than_the_driver_takes_without_waiting)
{
	run(2, a_long_step);
}

/* ---- in graphs ---- */

enum { GRAPH_ROWS = 4, GRAPH_WIDTH = 256, GRAPH_SUMS = 40 /* more than pace() lets pass twice */ };

/* Replace x by the sum over the ranks, several times, as a step of padded batches does. */
static int add_up(struct coll *c, struct kt *t, void *x)
{
	int rc = 0;
	for (int i = 0; !rc && i < GRAPH_SUMS; i++)
		rc = ops->sum_rows(c, t->s, x, GRAPH_ROWS, GRAPH_WIDTH);
	return rc;
}

static void set_padded(struct kt *t)
{
	int32_t none[1] = {0};
	const struct kern_batch b = {.row0 = none, .pad_to = 1};
	CHECK(t->ops->batch_set(t->s, &b) == 0);
}

static int capture_sums(struct coll *c, struct kt *t, void *x, struct kern_graph **out)
{
	set_padded(t);
	CHECK(add_up(c, t, x) == 0 && ops->sync(c, t->s) == 0);
	CHECK(t->ops->graph_begin(t->s) == 0);
	const int rc = add_up(c, t, x), end = t->ops->graph_end(t->s, out);
	return rc ? rc : end;
}

static void replayed_sums(struct coll *c, struct kt *t, int rank, int n)
{
	enum { ALL = GRAPH_ROWS * GRAPH_WIDTH, TIMES = 4 };
	static float x[ALL], was[ALL], again[ALL];
	void *dx = kt_new(t, sizeof x);
	(void)n;
	CHECK(capture_sums(c, t, dx, &graphs[0]) == 0);
	for (int k = 0; k < TIMES; k++) { /* new values each time, then the same sum without the graph */
		for (size_t i = 0; i < ALL; i++)
			x[i] = value(rank, i + (size_t)k);
		kt_set(t, dx, x, sizeof x);
		CHECK(t->ops->graph_launch(t->s, graphs[0]) == 0);
		CHECK(ops->sync(c, t->s) == 0);
		kt_get(t, was, dx, sizeof was);
		kt_set(t, dx, x, sizeof x);
		CHECK(add_up(c, t, dx) == 0 && ops->sync(c, t->s) == 0);
		kt_get(t, again, dx, sizeof again);
		CHECK(memcmp(was, again, sizeof was) == 0);
	}
	free_graphs(t);
	kt_del(t, dx);
}

Test(nccl, sums_in_a_graph_have_the_same_bits)
{
	run(3, replayed_sums);
}

/* Large enough to be added by shares, and one value short of an even division. */
static void replayed_large_sum(struct coll *c, struct kt *t, int rank, int n)
{
	enum { ALL = 524287 };
	static float x[ALL];
	void *dx = kt_new(t, sizeof x);
	set_padded(t);
	CHECK(ops->sum_rows(c, t->s, dx, 1, ALL) == 0 && ops->sync(c, t->s) == 0);
	CHECK(t->ops->graph_begin(t->s) == 0);
	CHECK(ops->sum_rows(c, t->s, dx, 1, ALL) == 0);
	CHECK(t->ops->graph_end(t->s, &graphs[0]) == 0);
	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < ALL; i++)
			x[i] = value(rank, i + k);
		kt_set(t, dx, x, sizeof x);
		CHECK(t->ops->graph_launch(t->s, graphs[0]) == 0 && ops->sync(c, t->s) == 0);
		kt_get(t, x, dx, sizeof x);
		for (size_t i = 0; i < ALL; i++) {
			const float want = value_sum(n, i + k);
			CHECK(memcmp(&want, &x[i], sizeof want) == 0);
		}
	}
	free_graphs(t);
	kt_del(t, dx);
}

Test(nccl, a_large_sum_in_a_graph_has_the_same_bits)
{
	run(3, replayed_large_sum);
}

/* ---- failures ---- */

static int lost_width = 256;

static void until_lost(struct coll *c, struct kt *t, int rank, int n)
{
	int rc = 0;
	(void)n;
	void *x = kt_new(t, (size_t)lost_width * 4 * 4);
	while (!rc) {
		rc = ops->sum_rows(c, t->s, x, 4, lost_width);
		if (!rc)
			rc = ops->sync(c, t->s);
		atomic_fetch_add(&common->passed[rank], 1);
	}
	CHECK(rc == -ECONNRESET && ops->why(c)[0]);
	CHECK(ops->barrier(c) == -ECONNRESET && ops->sync(c, t->s) == -ECONNRESET);
	CHECK(ops->sum_rows(c, t->s, x, 4, lost_width) == -ECONNRESET);
	ops->leave(c);
	_exit(42);
}

Test(nccl, a_killed_rank_ends_the_group)
{
	if (gpus() < 2)
		cr_skip_test("2 GPUs are needed");
	for (int r = 0; r < 2; r++)
		start(r, 2, until_lost);
	while (atomic_load(&common->passed[1]) < 5)
		usleep(1000);
	kill(pids[1], SIGKILL);
	cr_expect_eq(status_of(0), 42);
	cr_expect_eq(status_of(1), 128 + SIGKILL);
}

/* The rank is killed while each rank has a share to send to each other rank. */
Test(nccl, a_rank_killed_within_a_large_sum_ends_the_group)
{
	if (gpus() < 3)
		cr_skip_test("3 GPUs are needed");
	lost_width = 150000;
	for (int r = 0; r < 3; r++)
		start(r, 3, until_lost);
	while (atomic_load(&common->passed[2]) < 3)
		usleep(1000);
	kill(pids[2], SIGKILL);
	cr_expect_eq(status_of(0), 42);
	cr_expect_eq(status_of(1), 42);
	cr_expect_eq(status_of(2), 128 + SIGKILL);
}

static void launch_until_lost(struct coll *c, struct kt *t, int rank, int n)
{
	int rc = 0;
	(void)n;
	void *x = kt_new(t, GRAPH_ROWS * GRAPH_WIDTH * 4);
	CHECK(capture_sums(c, t, x, &graphs[0]) == 0 && capture_sums(c, t, x, &graphs[1]) == 0);
	for (int i = 0; !rc; i++) {
		CHECK(t->ops->graph_launch(t->s, graphs[i % 2]) == 0);
		rc = ops->sync(c, t->s);
		atomic_fetch_add(&common->passed[rank], 1);
	}
	CHECK(rc == -ECONNRESET && ops->why(c)[0]);
	CHECK(n_freed == 2); /* freed before the communicator, which waits for the graphs */
	CHECK(ops->sum_rows(c, t->s, x, GRAPH_ROWS, GRAPH_WIDTH) == -ECONNRESET);
	ops->leave(c);
	_exit(42);
}

Test(nccl, a_rank_killed_while_graphs_run_ends_the_group)
{
	if (gpus() < 2)
		cr_skip_test("2 GPUs are needed");
	for (int r = 0; r < 2; r++)
		start(r, 2, launch_until_lost);
	while (atomic_load(&common->passed[1]) < 5)
		usleep(1000);
	kill(pids[1], SIGKILL);
	cr_expect_eq(status_of(0), 42);
	cr_expect_eq(status_of(1), 128 + SIGKILL);
}

/* During a capture nothing runs: the communicator ends after the capture. */
static void called_away_in_a_capture(struct coll *c, struct kt *t, int rank, int n)
{
	(void)rank, (void)n;
	void *x = kt_new(t, GRAPH_ROWS * GRAPH_WIDTH * 4);
	CHECK(capture_sums(c, t, x, &graphs[0]) == 0);
	CHECK(t->ops->graph_begin(t->s) == 0);
#ifdef QUERN_CUDASIM
	cudasim_nccl_slow(-1);
#endif
	call_away = true;
	const int rc = ops->sum_rows(c, t->s, x, GRAPH_ROWS, GRAPH_WIDTH);
	CHECK(n_freed == 0);
	t->ops->graph_end(t->s, &graphs[1]);
#ifdef QUERN_CUDASIM
	CHECK(rc == -ECANCELED);
#endif
	/* NCCL may have been done before it was queried; the wait then ends the group, or has nothing to wait
	 * for. */
	const int e = ops->sync(c, t->s);
	CHECK(e == rc || (!rc && e == -ECANCELED));
	CHECK(!e || n_freed >= 1);
}

Test(nccl, a_group_that_ends_within_a_capture_ends_after_it)
{
	run(1, called_away_in_a_capture);
}

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

static int try_join(struct kt *t, int rank, int n, const char *text, struct coll_rendezvous **mine)
{
	struct coll *c;
	const struct coll_args a = {.rank = rank,
				    .n_ranks = n,
				    .rendezvous = text,
				    .mine = mine,
				    .dev = t->dev,
				    .timeout_ms = 60000,
				    .cancelled = at_once};
	return ops->join(&c, &a, &why);
}

Test(nccl, meeting_can_be_cut_short_and_hostile_places_are_refused)
{
	struct coll_rendezvous *mine, *other;
	char text[COLL_RENDEZVOUS_SIZE], bad[COLL_RENDEZVOUS_SIZE];
	struct kt t;
	ct_open(&t, false, (struct kt_size){.rows = 4});
	cr_assert_eq(ops->rendezvous_new(&mine, text, &why), 0, "%s", why.text);
	cr_assert_eq(ops->rendezvous_new(&other, bad, &why), 0);
	cr_expect_str_neq(text, bad);
	cr_expect_eq(try_join(&t, 0, 2, bad, &mine), -ESTALE, "%s", why.text); /* a wrong meeting */
	cr_expect_null(mine);
	cr_expect_eq(try_join(&t, 0, 2, bad, &other), -ECANCELED, "%s", why.text);
	const char *const none[] = {"", "shm:", "nccl:00", "shm:0123456789abcdef0123456789abcdef"};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		cr_expect_eq(try_join(&t, 1, 2, none[i], NULL), -EINVAL, "%s", none[i]);
	cr_expect_eq(try_join(&t, 1, 2, "shm:x:0123456789abcdef0123456789abcdef", NULL), -ENOTSUP);
	text[strlen(text) - 1] = 'g';
	cr_expect_eq(try_join(&t, 1, 2, text, NULL), -EINVAL);
	cr_expect_eq(try_join(&t, 2, 2, bad, NULL), -EINVAL);
	kt_close(&t);
}

#ifdef QUERN_CUDASIM

Test(nccl, a_place_to_meet_takes_nothing_of_nccl)
{
	for (int i = 0; i < 100; i++) {
		struct coll_rendezvous *mine;
		char text[COLL_RENDEZVOUS_SIZE];
		cr_assert_eq(ops->rendezvous_new(&mine, text, &why), 0, "%s", why.text);
		ops->rendezvous_free(mine);
	}
	cr_expect_eq(cudasim_stats().nccl_opened, 0);
	cr_expect_eq(cudasim_stats().nccl_ids, 0);
}

/* Get the bytes and operations that a rank receives for the sum of n_rows rows of 4096 values. */
static void received(struct coll *c, struct kt *t, int n_rows, uint64_t *bytes, uint64_t *n_ops)
{
	void *x = kt_new(t, (size_t)n_rows * 4096 * 4);
	const struct cudasim_counters was = cudasim_stats();
	CHECK(ops->sum_rows(c, t->s, x, n_rows, 4096) == 0 && ops->sync(c, t->s) == 0);
	*bytes = cudasim_stats().nccl_received - was.nccl_received;
	*n_ops = cudasim_stats().nccl_ops - was.nccl_ops;
	kt_del(t, x);
}

static void count_bytes(struct coll *c, struct kt *t, int rank, int n)
{
	const int rows[] = {1, 8, 64, 256};
	(void)rank;
	for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
		const uint64_t bytes_of_rows = (uint64_t)rows[k] * 4096 * 4;
		const uint64_t gathered = bytes_of_rows * (uint64_t)(n - 1);
		const bool large = gathered - 2 * gathered / (uint64_t)n >= 1 << 20;
		uint64_t bytes, n_ops;
		received(c, t, rows[k], &bytes, &n_ops);
		CHECK(bytes == (large ? 2 * gathered / (uint64_t)n : gathered));
		CHECK(n_ops == (large ? 2 : 1)); /* a small sum is one operation: waiting dominates */
		CHECK(rows[k] < 256 || n < 4 || bytes <= gathered / 2);
	}
}

Test(nccl, large_sums_move_half_of_the_bytes_that_gathering_moves)
{
	run(2, count_bytes);
	run(4, count_bytes);
	run(8, count_bytes);
}

Test(nccl, where_there_is_no_nccl_it_says_what_to_install)
{
	struct coll_rendezvous *mine;
	char text[COLL_RENDEZVOUS_SIZE];
	struct kt t;
	cudasim_nccl_there(false);
	ct_open(&t, false, (struct kt_size){.rows = 4}); /* the device serves alone */
	cr_assert_eq(ops->rendezvous_new(&mine, text, &why), 0, "%s", why.text);
	cr_expect_eq(try_join(&t, 0, 2, text, &mine), -ENOTSUP);
	cr_expect(strstr(why.text, "libnccl.so.2") && strstr(why.text, "--tp 1"), "%s", why.text);
	ops->rendezvous_free(mine);
	kt_close(&t);
}

/* Like GPUs of one host, where NCCL itself does not notice that a rank has ended. */
static void until_ended(struct coll *c, struct kt *t, int rank, int n)
{
	(void)t, (void)n;
	if (rank == 0)
		cudasim_nccl_slow(-1);
	atomic_fetch_add(&common->passed[rank], 1);
	while (rank)
		pause();
	CHECK(ops->barrier(c) == -ECONNRESET && strstr(ops->why(c), "rank 1"));
	ops->leave(c);
	_exit(42);
}

Test(nccl, a_rank_that_ended_is_seen_where_nccl_says_nothing)
{
	for (int r = 0; r < 2; r++)
		start(r, 2, until_ended);
	while (!atomic_load(&common->passed[0]) || !atomic_load(&common->passed[1]))
		usleep(1000);
	kill(pids[1], SIGKILL);
	cr_expect_eq(status_of(0), 42);
	cr_expect_eq(status_of(1), 128 + SIGKILL);
}

/* The first operations are slow, as when connections are made or device code is loaded. */
static void slow_at_first(struct coll *c, struct kt *t, int rank, int n)
{
	(void)t, (void)rank, (void)n;
	cudasim_nccl_slow(1000);
	CHECK(ops->barrier(c) == 0);
	ops->warmed_up(c);
	CHECK(ops->barrier(c) == -ECONNRESET && strstr(ops->why(c), "did not arrive"));
}

Test(nccl, the_first_times_may_take_longer)
{
	late_ms = 0;
	run(1, slow_at_first);
}

static void called_at_first(struct coll *c, struct kt *t, int rank, int n)
{
	(void)t, (void)rank, (void)n;
	cudasim_nccl_slow(-1);
	call_away = true;
	CHECK(ops->barrier(c) == -ECANCELED);
}

Test(nccl, a_call_ends_the_first_times_too)
{
	run(1, called_at_first);
}

#endif
