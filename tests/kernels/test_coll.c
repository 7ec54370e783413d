/* Collectives between processes of one host: their results, and that a rank never waits for a rank that has
 * exited. Each rank is a process. */
#include "base/clock.h"
#include "kernels/cpu/coll.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LATE_MS = 60000, FLOATS = 700000 };

/* Memory shared by the processes of a test. */
struct common {
	_Atomic int met; /* set once text is written */
	char text[COLL_RENDEZVOUS_SIZE];
	_Atomic int passed[RANKS]; /* steps that a rank has passed */
};

static struct common *common;
static pid_t pids[RANKS];
static const struct coll_ops *ops = &coll_shm_ops;
static struct why why;

typedef void rank_fn(struct coll *c, int rank, int n);

static void set_up(void)
{
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(common, MAP_FAILED);
}

TestSuite(coll, .init = set_up, .timeout = 120);

/* A failed assertion ends a rank's process with exit status 1. */
#define CHECK(ok)                                                                                            \
	do {                                                                                                 \
		if (!(ok)) {                                                                                 \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #ok, why.text);              \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static struct coll_args args_of(int rank, int n, int timeout_ms)
{
	return (struct coll_args){
		.rank = rank, .n_ranks = n, .epoch = 7, .rendezvous = common->text, .timeout_ms = timeout_ms};
}

static struct coll *join(struct coll_args a)
{
	struct coll_rendezvous *mine = NULL;
	struct coll *c = NULL;
	if (a.rank == 0) {
		CHECK(ops->rendezvous_new(&mine, common->text, &why) == 0);
		a.mine = &mine;
		atomic_store(&common->met, 1);
	}
	while (!atomic_load(&common->met))
		usleep(1000);
	CHECK(ops->join(&c, &a, &why) == 0);
	CHECK(mine == NULL);
	return c;
}

static void start(int rank, int n, rank_fn *fn, int timeout_ms)
{
	if (rank == 0)
		atomic_store(&common->met, 0); /* reset after the previous group */
	pids[rank] = fork();
	cr_assert_geq(pids[rank], 0);
	if (pids[rank])
		return;
	struct coll *c = join(args_of(rank, n, timeout_ms));
	fn(c, rank, n);
	ops->leave(c);
	_exit(0);
}

/* Wait for a rank. Return its exit status, or 128 + signal. */
static int status_of(int rank)
{
	int s;
	cr_assert_eq(waitpid(pids[rank], &s, 0), pids[rank]);
	return WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
}

static void run(int n, rank_fn *fn)
{
	for (int r = 0; r < n; r++)
		start(r, n, fn, LATE_MS);
	for (int r = 0; r < n; r++)
		cr_expect_eq(status_of(r), 0, "rank %d of %d", r, n);
}

/* Value i of a rank, chosen so that another order of addition gives other bits. */
static float value(int rank, size_t i)
{
	return (float)((int)(i * 2654435761u >> 7) % 1000) * (rank % 2 ? 1e-4f : 37.7f) + (float)rank * 0.3f;
}

/* ---- results ---- */

static void sums(struct coll *c, int rank, int n)
{
	static float x[FLOATS];
	const int shapes[][2] = {{0, 64}, {1, 1}, {3, 7}, {1, 4096}, {5, 333}, {1000, 700}, {16, 256}};
	for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
		size_t all = (size_t)shapes[k][0] * (size_t)shapes[k][1];
		for (size_t i = 0; i < all; i++)
			x[i] = value(rank, i + k);
		CHECK(ops->sum_rows(c, NULL, x, shapes[k][0], shapes[k][1]) == 0);
		for (size_t i = 0; i < all; i++) {
			float want = value(0, i + k);
			for (int r = 1; r < n; r++)
				want += value(r, i + k);
			CHECK(memcmp(&want, &x[i], sizeof want) == 0);
		}
	}
}

Test(coll, sums_are_made_in_the_order_of_the_ranks)
{
	for (int n = 2; n <= RANKS; n++)
		run(n, sums);
}

static void cols(struct coll *c, int rank, int n)
{
	static float in[FLOATS], out[FLOATS];
	const int widths[][RANKS] = {{1, 1, 1, 1}, {83, 83, 83, 82}, {5, 0, 2, 9}, {20000, 19999, 3, 20001}};
	const int rows[] = {1, 7, 3, 11};
	for (size_t k = 0; k < 4; k++) {
		const int *w = widths[k];
		size_t stride = 0, at = 0;
		for (int r = 0; r < n; r++)
			stride += (size_t)w[r];
		for (size_t i = 0; i < (size_t)rows[k] * (size_t)w[rank]; i++)
			in[i] = value(rank, i);
		memset(out, 0, sizeof out);
		/* Only some ranks receive the result. */
		float *to = rank == 0 || k == 1 ? out : NULL;
		CHECK(ops->gather_cols(c, NULL, to, in, rows[k], w) == 0);
		for (int r = 0; to && r < n; at += (size_t)w[r++])
			for (size_t i = 0; i < (size_t)rows[k]; i++)
				for (size_t j = 0; j < (size_t)w[r]; j++)
					CHECK(out[i * stride + at + j] == value(r, i * (size_t)w[r] + j));
	}
}

Test(coll, columns_come_side_by_side)
{
	for (int n = 2; n <= RANKS; n++)
		run(n, cols);
}

/* Share tokens at unordered positions, more than fit one slot. All other positions keep their values. */
static void share_tokens(struct coll *c, int rank, int n)
{
	enum { ROOM = 1 << 20, TOKENS = 300000 };
	static int32_t tokens[ROOM], at[TOKENS];
	const int counts[] = {1, 5, TOKENS};
	(void)n;
	for (size_t k = 0; k < 3; k++) {
		for (int i = 0; i < ROOM; i++)
			tokens[i] = i * 10 + rank;
		for (int i = 0; i < counts[k]; i++)
			at[i] = (int)((i * 1003LL + (int)k) % ROOM);
		CHECK(ops->share_tokens(c, NULL, tokens, at, counts[k]) == 0);
		for (int i = 0; i < counts[k]; i++) {
			CHECK(tokens[at[i]] == at[i] * 10);
			tokens[at[i]] += rank;
		}
		for (int i = 0; i < ROOM; i++)
			CHECK(tokens[i] == i * 10 + rank);
		CHECK(ops->look(c, 0) == 0);
	}
}

Test(coll, tokens_of_rank_0_come_to_all_places)
{
	for (int n = 2; n <= RANKS; n++)
		run(n, share_tokens);
}

static void bytes(struct coll *c, int rank, int n)
{
	static unsigned char mine[2500000], all[RANKS * 2500000];
	const size_t sizes[] = {0, 1, 13, 4096, 1 << 20, 2500000};
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
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

Test(coll, bytes_are_gathered_and_broadcast)
{
	for (int n = 2; n <= RANKS; n++)
		run(n, bytes);
}

/* Ranks run thousands of operations at different speeds: no slot is overwritten before every rank has read
 * it. */
static void many(struct coll *c, int rank, int n)
{
	float x[64];
	for (int k = 0; k < 4000; k++) {
		for (int i = 0; i < 64; i++)
			x[i] = (float)(k + rank + i);
		if ((k * 31 + rank * 17) % 97 == 0)
			usleep(300);
		CHECK(ops->sum_rows(c, NULL, x, 8, 8) == 0);
		for (int i = 0; i < 64; i++)
			CHECK(x[i] == (float)(n * (k + i) + n * (n - 1) / 2));
		if (k % 5 == 0) {
			int token = rank ? -1 : k;
			CHECK(ops->broadcast(c, &token, sizeof token) == 0 && token == k);
		}
	}
}

Test(coll, thousands_of_operations_in_a_row)
{
	run(2, many);
	run(4, many);
}

static void barriers(struct coll *c, int rank, int n)
{
	for (int k = 1; k <= 200; k++) {
		atomic_store(&common->passed[rank], k);
		CHECK(ops->barrier(c) == 0);
		for (int r = 0; r < n; r++)
			CHECK(atomic_load(&common->passed[r]) >= k);
		CHECK(ops->barrier(c) == 0);
	}
}

Test(coll, nobody_passes_a_barrier_alone)
{
	run(3, barriers);
}

/* ---- failures ---- */

/* Sum until an error, which must be the loss of a peer. */
static void until_lost(struct coll *c, int rank, int n)
{
	static float x[4096];
	int rc = 0;
	(void)n;
	while (!rc) {
		memset(x, 0, sizeof x);
		rc = ops->sum_rows(c, NULL, x, 4, 1024);
		atomic_fetch_add(&common->passed[rank], 1);
	}
	CHECK(rc == -ECONNRESET && ops->why(c)[0]);
	/* Later operations fail immediately. */
	CHECK(ops->barrier(c) == -ECONNRESET && ops->broadcast(c, x, 4) == -ECONNRESET);
	_exit(42);
}

static void lose(int n, int victim, int sig, int timeout_ms)
{
	for (int r = 0; r < n; r++)
		start(r, n, until_lost, timeout_ms);
	while (atomic_load(&common->passed[victim]) < 20)
		usleep(1000);
	kill(pids[victim], sig);
	for (int r = 0; r < n; r++)
		if (r != victim)
			cr_expect_eq(status_of(r), 42, "rank %d of %d, %d killed", r, n, victim);
	if (sig == SIGSTOP)
		kill(pids[victim], SIGCONT);
	/* A stopped rank finds, when it continues, that the other ranks have left. */
	cr_expect_eq(status_of(victim), sig == SIGSTOP ? 42 : 128 + sig);
}

Test(coll, a_killed_rank_is_noticed_by_its_peer)
{
	lose(2, 1, SIGKILL, LATE_MS);
}

Test(coll, rank_0_killed_is_noticed_by_all)
{
	lose(4, 0, SIGKILL, LATE_MS);
}

Test(coll, a_killed_rank_is_noticed_by_those_without_a_connection_to_it)
{
	lose(4, 2, SIGKILL, LATE_MS);
}

Test(coll, a_stopped_rank_is_given_up_after_the_time_out)
{
	lose(3, 1, SIGSTOP, 300);
}

static void leave_early(struct coll *c, int rank, int n)
{
	(void)n;
	CHECK(ops->barrier(c) == 0);
	if (rank != 1)
		CHECK(ops->barrier(c) == -ECONNRESET);
}

Test(coll, a_rank_that_leaves_ends_the_group)
{
	run(3, leave_early);
}

static void disagree(struct coll *c, int rank, int n)
{
	float x[64] = {0};
	(void)n;
	int rc = ops->sum_rows(c, NULL, x, rank == 1 ? 2 : 3, 16);
	CHECK(rc == -EPROTO || rc == -ECONNRESET);
	CHECK(ops->why(c)[0]);
}

Test(coll, sizes_that_differ_are_found_out)
{
	run(2, disagree);
	run(4, disagree);
}

static void disagree_kind(struct coll *c, int rank, int n)
{
	float x[64] = {0};
	(void)n;
	int rc = rank ? ops->broadcast(c, x, 64) : ops->sum_rows(c, NULL, x, 1, 16);
	CHECK(rc == -EPROTO || rc == -ECONNRESET);
}

Test(coll, operations_that_differ_are_found_out)
{
	run(2, disagree_kind);
}

static bool after_a_while(void *arg)
{
	return ++*(int *)arg > 5;
}

Test(coll, a_wait_can_be_cut_short)
{
	atomic_store(&common->met, 0);
	for (int r = 0; r < 2; r++) {
		pids[r] = fork();
		if (pids[r])
			continue;
		int asked = -1000000;
		struct coll_args a = args_of(r, 2, LATE_MS);
		a.cancelled = after_a_while;
		a.cancelled_arg = &asked;
		struct coll *c = join(a);
		if (r == 0) {
			asked = 0;
			CHECK(ops->barrier(c) == -ECANCELED);
			ops->leave(c);
			_exit(0);
		}
		pause();
		_exit(0);
	}
	cr_expect_eq(status_of(0), 0);
	kill(pids[1], SIGKILL);
	status_of(1);
}

/* ---- meeting ---- */

static int try_join(int rank, int n, const char *text, struct coll_rendezvous **mine, int *asked)
{
	struct coll *c = NULL;
	struct coll_args a = args_of(rank, n, LATE_MS);
	a.rendezvous = text;
	a.mine = mine;
	a.cancelled = asked ? after_a_while : NULL;
	a.cancelled_arg = asked;
	return ops->join(&c, &a, &why);
}

Test(coll, meeting_can_be_cut_short)
{
	int asked = 0;
	struct coll_rendezvous *mine;
	cr_assert_eq(ops->rendezvous_new(&mine, common->text, &why), 0, "%s", why.text);
	cr_expect_eq(try_join(0, 2, common->text, &mine, &asked), -ECANCELED);
	cr_expect(strstr(why.text, "waiting for 1 of 2 ranks"), "%s", why.text);
	cr_expect_null(mine);
	/* Another rank's wait can be cancelled too, while its rank 0 has not joined. */
	cr_assert_eq(ops->rendezvous_new(&mine, common->text, &why), 0);
	asked = 0;
	cr_expect_eq(try_join(1, 3, common->text, NULL, &asked), -ECANCELED);
	ops->rendezvous_free(mine);
}

Test(coll, stale_meeting_place_is_reported)
{
	struct coll_rendezvous *mine, *other;
	char text[COLL_RENDEZVOUS_SIZE];
	cr_assert_eq(ops->rendezvous_new(&mine, text, &why), 0, "%s", why.text);
	cr_assert_eq(ops->rendezvous_new(&other, common->text, &why), 0);
	cr_expect_str_neq(text, common->text);
	ops->rendezvous_free(mine);
	cr_expect_eq(try_join(1, 2, text, NULL, NULL), -ESTALE);
	cr_expect(strstr(why.text, "no longer waits"), "%s", why.text);
	/* Rank 0 itself is given the address of a meeting that it has closed. */
	cr_expect_eq(try_join(0, 2, text, &other, NULL), -ESTALE);
	cr_expect_null(other);
}

Test(coll, a_place_that_is_none_is_refused)
{
	char text[COLL_RENDEZVOUS_SIZE], bad[COLL_RENDEZVOUS_SIZE];
	struct coll_rendezvous *mine;
	cr_assert_eq(ops->rendezvous_new(&mine, text, &why), 0, "%s", why.text);
	const char *const none[] = {"",
				    "shm:",
				    "shm::",
				    "nccl:00",
				    "shm:a:b",
				    "/etc/passwd",
				    "shm:%n%n%n:0123456789abcdef0123456789abcdef"};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		int rc = try_join(1, 2, none[i], NULL, NULL);
		cr_expect(rc == -EINVAL || rc == -ENOTSUP, "%s: %d", none[i], rc);
	}
	snprintf(bad, sizeof bad, "%.*s0", (int)sizeof bad - 2, text); /* one digit too many */
	cr_expect_eq(try_join(1, 2, bad, NULL, NULL), -EINVAL);
	snprintf(bad, sizeof bad, "%s", text);
	bad[strlen(bad) - 1] = '/';
	cr_expect_eq(try_join(1, 2, bad, NULL, NULL), -EINVAL);
	memset(bad, 'a', sizeof bad - 1);
	memcpy(bad, "shm:", 4);
	bad[sizeof bad - 1] = 0;
	cr_expect_eq(try_join(1, 2, bad, NULL, NULL), -EINVAL);
	snprintf(bad, sizeof bad, "%s", text);
	bad[4] = bad[4] == '0' ? '1' : '0'; /* another machine */
	cr_expect_eq(try_join(1, 2, bad, NULL, NULL), -ENOTSUP);
	cr_expect(strstr(why.text, "another host"), "%s", why.text);
	ops->rendezvous_free(mine);
}

Test(coll, a_group_of_no_size_is_refused)
{
	cr_expect_eq(try_join(0, 1, "", NULL, NULL), -EINVAL);
	cr_expect_eq(try_join(2, 2, "", NULL, NULL), -EINVAL);
	cr_expect_eq(try_join(0, 65, "", NULL, NULL), -EINVAL);
}

/* Connect and send malformed data, or the join message of another epoch. The group must still form. */
static void intrude(const char *text)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int n = snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "quern-%s", strrchr(text, ':') + 1);
	const char *const said[] = {"", "GET / HTTP/1.1\r\n\r\n", "nrurnrurnrurnrurnrurnrurnrurnrurnrurnrur"};
	for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
		cr_assert_eq(connect(fd, (struct sockaddr *)&addr, len), 0, "%s", strerror(errno));
		if (said[i][0])
			send(fd, said[i], strlen(said[i]), 0);
		close(fd);
	}
}

static void once(struct coll *c, int rank, int n)
{
	(void)rank, (void)n;
	CHECK(ops->barrier(c) == 0);
}

Test(coll, strangers_are_turned_away)
{
	start(0, 2, once, LATE_MS);
	while (!atomic_load(&common->met))
		usleep(1000);
	intrude(common->text);
	struct coll_args old = args_of(1, 2, LATE_MS);
	struct coll *c;
	old.epoch = 6;
	cr_expect_eq(ops->join(&c, &old, &why), -ECONNRESET, "%s", why.text);
	start(1, 2, once, LATE_MS);
	cr_expect_eq(status_of(0), 0);
	cr_expect_eq(status_of(1), 0);
}

/* Both sides check the peer's user id. */
Test(coll, a_process_of_another_user_is_turned_away)
{
	if (geteuid())
		cr_skip_test("only root can take another user's id");
	start(0, 2, once, LATE_MS);
	while (!atomic_load(&common->met))
		usleep(1000);
	pids[2] = fork();
	cr_assert_geq(pids[2], 0);
	if (!pids[2]) {
		struct coll_args a = args_of(1, 2, LATE_MS);
		struct coll *c;
		CHECK(setuid(65534) == 0);
		CHECK(ops->join(&c, &a, &why) == -EACCES);
		_exit(0);
	}
	cr_expect_eq(status_of(2), 0);
	start(1, 2, once, LATE_MS);
	cr_expect_eq(status_of(0), 0);
	cr_expect_eq(status_of(1), 0);
}

/* Proxy between a rank and rank 0. It forwards both sides' messages, but replaces the memory file with one
 * that could be truncated. */
static void unseal(int listening, const char *real)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char said[256];
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct iovec iov = {said, sizeof said};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
	struct stat st;
	int n = snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "quern-%s", strrchr(real, ':') + 1);
	struct pollfd there = {.fd = listening, .events = POLLIN};
	cr_assert_eq(poll(&there, 1, LATE_MS), 1, "no rank has come");
	int rank = accept(listening, NULL, NULL), up = socket(AF_UNIX, SOCK_SEQPACKET, 0), fd;
	cr_assert_eq(connect(up, (struct sockaddr *)&addr,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
		     0);
	ssize_t got = recv(rank, said, sizeof said, 0);
	cr_assert_eq(send(up, said, (size_t)got, 0), got);
	got = recvmsg(up, &m, 0);
	cr_assert_gt(got, 0);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	cr_assert_eq(fstat(fd, &st), 0);
	close(fd);
	fd = memfd_create("unsealed", MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, st.st_size), 0);
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
	iov.iov_len = (size_t)got;
	cr_assert_eq(sendmsg(rank, &m, 0), got);
	close(fd);
	close(up);
	close(rank);
}

Test(coll, memory_that_could_be_cut_is_refused)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char place[COLL_RENDEZVOUS_SIZE];
	start(0, 2, once, LATE_MS);
	while (!atomic_load(&common->met))
		usleep(1000);
	/* Use this process's id in the name, so that no other test has the same name. */
	snprintf(place, sizeof place, "%s", common->text);
	char *name = strrchr(place, ':') + 1;
	snprintf(name, strlen(name) + 1, "%0*lx", (int)strlen(name), (unsigned long)getpid());
	int n = snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "quern-%s", name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&addr,
			  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
		     0);
	cr_assert_eq(listen(fd, 1), 0);
	pids[1] = fork();
	cr_assert_geq(pids[1], 0);
	if (!pids[1]) {
		struct coll_args a = args_of(1, 2, LATE_MS);
		struct coll *c;
		a.rendezvous = place;
		CHECK(ops->join(&c, &a, &why) == -EPROTO);
		CHECK(strstr(why.text, "not sealed"));
		_exit(0);
	}
	unseal(fd, common->text);
	cr_expect_eq(status_of(1), 0);
	cr_expect_neq(status_of(0), 0); /* its peer has exited */
	close(fd);
}

/* ---- arriving and leaving ---- */

static bool waiting_in_barrier;

/* Called when a rank has just found that its peer has not arrived: the peer now arrives, finishes, leaves. */
static bool peer_comes_and_goes(void *arg)
{
	(void)arg;
	if (waiting_in_barrier) {
		atomic_store(&common->passed[0], 1);
		while (!atomic_load(&common->passed[1]))
			usleep(1000);
	}
	return false;
}

static void come_and_go(int rank)
{
	pids[rank] = fork();
	cr_assert_geq(pids[rank], 0);
	if (pids[rank])
		return;
	struct coll_args a = args_of(rank, 2, LATE_MS);
	a.cancelled = rank == 0 ? peer_comes_and_goes : NULL;
	struct coll *c = join(a);
	waiting_in_barrier = true;
	while (rank == 1 && !atomic_load(&common->passed[0]))
		usleep(1000);
	CHECK(ops->barrier(c) == 0);
	ops->leave(c);
	atomic_store(&common->passed[rank], 2);
	_exit(0);
}

Test(coll, a_peer_that_arrives_and_leaves_at_once_is_not_lost)
{
	for (int r = 0; r < 2; r++)
		come_and_go(r);
	for (int r = 0; r < 2; r++)
		cr_expect_eq(status_of(r), 0, "rank %d", r);
}

/* ---- no files and no memory are left ---- */

static int entries(const char *dir)
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		n += strncmp(e->d_name, "quern-", 6) == 0 || strncmp(e->d_name, "sem.quern", 9) == 0;
	if (d)
		closedir(d);
	return n;
}

Test(coll, nothing_is_left_behind)
{
	char line[512], name[64];
	bool found = false;
	int before = entries("/dev/shm");
	lose(2, 0, SIGKILL, LATE_MS);
	cr_expect_eq(entries("/dev/shm"), before);
	snprintf(name, sizeof name, "quern-%s", strrchr(common->text, ':') + 1);
	FILE *f = fopen("/proc/net/unix", "r");
	cr_assert(f);
	while (fgets(line, sizeof line, f))
		found |= strstr(line, name) != NULL;
	fclose(f);
	cr_expect(!found);
}
