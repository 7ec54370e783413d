/* The thread that serves model files to workers that lack them. */
#include "controller/fleet/model_server.h"
#include "store/fingerprint.h"
#include "tests/unit/store/store_help.h"

#include <errno.h>
#include <poll.h>

enum { WEIGHTS = 3 * BUS_CHUNK_MAX + 77 };

static char *dir, *records;
static struct model_server *server;

static void begin(void)
{
	char *bytes = noise(WEIGHTS, 5);
	if (!dir) {
		dir = new_dir();
		records = file_join(dir, "records");
		put(dir, "config.json", "{}");
		put_bytes(dir, "model.safetensors", bytes, WEIGHTS);
	}
	cr_assert_eq(model_server_start(&server, dir, "a model", records, &why), 0, "%s", why.text);
	free(bytes);
}

static void end(void)
{
	model_server_stop(server);
	free(records);
	remove_dir(dir);
}

static struct model_answer next_answer(void)
{
	struct pollfd fd = {model_server_fd(server), POLLIN, 0};
	struct model_answer a;
	do
		cr_assert_eq(poll(&fd, 1, 60000), 1);
	while (!model_server_take(server, &a));
	return a;
}

static void give_back(const struct model_answer *a)
{
	a->release(a->bytes, a->hint);
}

/* Wait for the next answer and return its bytes. */
static struct buf answer_of(uint64_t worker)
{
	const struct model_answer a = next_answer();
	struct buf b = {0};
	cr_assert_eq(a.worker, worker);
	buf_put(&b, a.bytes, a.n);
	give_back(&a);
	return b;
}

static struct bus_want chunk(uint32_t file, uint64_t offset, uint32_t bytes)
{
	return (struct bus_want){1, file, offset, bytes};
}

static void ask(uint64_t worker, struct bus_want w)
{
	cr_assert(model_server_request(server, worker, &w));
}

static struct manifest list_of(uint64_t worker)
{
	struct manifest m;
	ask(worker, chunk(BUS_WANT_LIST, 0, 0));
	struct buf b = answer_of(worker);
	cr_assert_eq(bus_decode_files(b.p, b.len, &m, &why), 0, "%s", why.text);
	buf_fini(&b);
	return m;
}

/* Request a chunk; return the result of decoding the answer. */
static int got(uint64_t worker, struct bus_want w, struct bus_chunk *k, struct buf *b)
{
	ask(worker, w);
	*b = answer_of(worker);
	return bus_decode_chunk(b->p, b->len, k, &why);
}

Test(model_server, gives_the_list_and_all_bytes)
{
	char fingerprint[MANIFEST_FINGERPRINT], expected[MANIFEST_FINGERPRINT], *bytes = noise(WEIGHTS, 5);
	struct bus_chunk k;
	struct buf b;
	begin();
	cr_expect_eq(strlen(model_server_quick_fingerprint(server)), QUICK_FINGERPRINT_SIZE - 1);
	model_server_fingerprint(server, fingerprint);
	cr_expect_str_eq(fingerprint, ""); /* no file was read yet */
	struct manifest m = list_of(7);
	cr_expect_str_eq(m.model, "a_model");
	cr_expect_eq(m.n, 2);
	model_server_fingerprint(server, fingerprint);
	manifest_fingerprint(&m, expected);
	cr_expect_str_eq(fingerprint, expected);
	for (uint64_t at = 0; at < WEIGHTS; at += k.n) {
		cr_assert_eq(got(7, chunk(1, at, BUS_CHUNK_MAX), &k, &b), 0, "%s", why.text);
		cr_assert(k.file == 1 && k.offset == at && at + k.n <= WEIGHTS);
		cr_assert_eq(memcmp(k.bytes, bytes + at, k.n), 0);
		buf_fini(&b);
	}
	manifest_fini(&m);
	free(bytes);
	end();
}

Test(model_server, bytes_of_no_file_are_refused)
{
	const struct bus_want bad[] = {chunk(2, 0, 10),       chunk(MANIFEST_FILES_MAX + 5, 0, 10),
				       chunk(1, WEIGHTS, 10), chunk(1, MANIFEST_BYTES_MAX, 10),
				       chunk(1, 0, 0),        chunk(1, 0, BUS_CHUNK_MAX + 1)};
	struct bus_chunk k;
	struct buf b;
	begin();
	cr_expect_eq(got(1, chunk(1, 0, 10), &k, &b), -ENODATA, "before the list");
	buf_fini(&b);
	struct manifest m = list_of(1);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		cr_expect_eq(got(1, bad[i], &k, &b), -ENODATA, "%zu", i);
		buf_fini(&b);
	}
	cr_expect_eq(got(1, chunk(1, WEIGHTS - 3, 10), &k, &b), 0);
	cr_expect_eq(k.n, 3);
	buf_fini(&b);
	manifest_fini(&m);
	end();
}

/* A file that changed since the start is not served: running workers have its old contents. */
Test(model_server, changed_files_are_refused)
{
	struct bus_chunk k;
	struct buf b;
	struct manifest m;
	begin();
	m = list_of(1);
	cr_expect_eq(got(1, chunk(1, 0, 10), &k, &b), 0, "%s", why.text);
	buf_fini(&b);
	flip(dir, "model.safetensors", 50);
	cr_expect_eq(got(1, chunk(1, 0, 10), &k, &b), -ENODATA);
	cr_expect(strstr(why.text, "changed or replaced"), "%s", why.text);
	buf_fini(&b);
	manifest_fini(&m);
	end();
}

Test(model_server, a_worker_that_asks_too_often_is_not_answered)
{
	const struct bus_want w = chunk(1, 0, BUS_CHUNK_MAX);
	int n = 0;
	begin();
	struct manifest m = list_of(1);
	while (n < 1000 && model_server_request(server, 1, &w))
		n++;
	cr_expect_eq(n, MODEL_SERVER_ASKED);
	cr_expect(model_server_request(server, 2, &w), "others are");
	model_server_forget(server, 1);
	struct buf b = answer_of(2);
	buf_fini(&b);
	manifest_fini(&m);
	end();
}

/* Answers that were taken but not released. */
static struct model_answer unread[1024];
static size_t n_unread;

/* Takes answers until this worker has one; returns how many came for the other worker. Requests are served in
 * order, so the other worker's come first. */
static size_t taken_before(uint64_t worker, uint64_t other)
{
	size_t n = 0;
	do {
		unread[n_unread] = next_answer();
		n += unread[n_unread].worker == other;
	} while (unread[n_unread++].worker != worker);
	return n;
}

Test(model_server, a_worker_that_does_not_read_is_given_no_more)
{
	const struct bus_want w = chunk(1, 0, BUS_CHUNK_MAX);
	begin();
	struct manifest m = list_of(1);
	for (int i = 0; i < MODEL_SERVER_ASKED; i++)
		ask(1, w);
	ask(2, w);
	cr_expect_eq(taken_before(2, 1), (8u << 20) / BUS_CHUNK_MAX);
	cr_expect(!model_server_request(server, 1, &w), "unread answers count");
	/* Releasing one answer lets one more come. */
	give_back(&unread[0]);
	ask(3, w);
	cr_expect_eq(taken_before(3, 1), 1u);
	for (size_t i = 1; i < n_unread - 1; i++)
		give_back(&unread[i]);
	manifest_fini(&m);
	end();
	give_back(&unread[n_unread - 1]); /* released after its connection has closed */
}

Test(model_server, workers_that_do_not_read_leave_others_their_part)
{
	enum { WORKERS = 20 };
	const struct bus_want w = chunk(1, 0, BUS_CHUNK_MAX);
	size_t bytes = 0, of[WORKERS + 2] = {0};
	begin();
	struct manifest m = list_of(1);
	for (uint64_t k = 1; k <= WORKERS; k++)
		for (int i = 0; i < 40; i++)
			ask(k, w);
	ask(WORKERS + 1, w);
	taken_before(WORKERS + 1, 1);
	for (size_t i = 0; i < n_unread; i++) {
		bytes += unread[i].n;
		of[unread[i].worker]++;
	}
	cr_expect(bytes > (size_t)64 << 20 && bytes < ((size_t)64 << 20) + (WORKERS + 1) * 300000, "%zu",
		  bytes);
	for (int k = 1; k <= WORKERS + 1; k++)
		cr_expect_geq(of[k], 1u, "worker %d", k);
	for (size_t i = 0; i < n_unread; i++)
		give_back(&unread[i]);
	manifest_fini(&m);
	end();
}

/* A restarted controller takes the fingerprint from its records, without reading the files. */
Test(model_server, checksums_are_known_after_a_restart)
{
	char fingerprint[MANIFEST_FINGERPRINT];
	begin();
	struct manifest m = list_of(1);
	const struct checksums c = {.records = records};
	for (uint32_t i = 0; i < m.n; i++) { /* as for files older than a few seconds */
		char *path = file_join(dir, m.files[i].name);
		checksum_record(&c, path, m.files[i].digest);
		free(path);
	}
	model_server_stop(server);
	begin();
	model_server_fingerprint(server, fingerprint);
	cr_expect_eq(strlen(fingerprint), MANIFEST_FINGERPRINT - 1);
	manifest_fini(&m);
	end();
}

Test(model_server, a_model_without_weights_has_none)
{
	struct model_server *none;
	char *empty = new_dir();
	put(empty, "config.json", "{}");
	cr_expect_eq(model_server_start(&none, empty, "x", NULL, &why), -ENOENT);
	cr_expect(strstr(why.text, "no *.safetensors"), "%s", why.text);
	put(empty, "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n");
	cr_expect_eq(model_server_start(&none, empty, "x", NULL, &why), -ENODATA);
	cr_expect(strstr(why.text, "git-lfs pointer"), "%s", why.text);
	remove_dir(empty);
}
