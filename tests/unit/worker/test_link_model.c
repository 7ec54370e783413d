/* A worker that lacks the model, with controllers that send it files: a correct one, and hostile ones. */
#include "base/alloc.h"
#include "store/incoming.h"
#include "tests/unit/worker/link_peer.h"

#include <dirent.h>

static char cache[64], missing[] = "/nowhere/model";
static struct manifest list;
static struct store_files files;
static char quick_fingerprint[QUICK_FINGERPRINT_SIZE];
static int64_t asked; /* bytes requested */

/* Start the worker and load the tiny model, which is stored at dir here. */
static void begin(const char *dir, bool fetch)
{
	const struct checksums none = {0};
	cr_assert_eq(store_files_list(dir, &files, &why), 0, "%s", why.text);
	cr_assert_eq(store_files_quick_fingerprint(&files, quick_fingerprint, &why), 0, "%s", why.text);
	cr_assert_eq(manifest_make(&list, &files, "tiny", &none, false, &why), 0, "%s", why.text);
	strcpy(cache, "/tmp/quern-cache-XXXXXX");
	cr_assert(mkdtemp(cache));
	peer.cache = cache;
	peer.fetch = fetch;
	start_worker(10000);
	open_router();
	expect(BUS_HELLO);
}

static void send_load_offered(uint64_t epoch)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(missing)};
	m.load.epoch = epoch;
	m.load.offers = true;
	snprintf(m.load.quick_fingerprint, sizeof m.load.quick_fingerprint, "%s", quick_fingerprint);
	send_msg(&m);
}

static void send_list(const struct manifest *m, const char *refusal)
{
	struct buf b = {0};
	bus_encode_files(m, refusal, &b);
	send_bytes(b.p, b.len);
	buf_fini(&b);
}

/* Send the requested bytes; spoil: wrong bytes. */
static void send_chunk(const struct bus_want *w, bool spoil)
{
	struct buf b = {0};
	char *path = xasprintf("%s/%s", files.dir, list.files[w->file].name), *bytes = xmalloc(w->bytes);
	FILE *f = fopen(path, "rb");
	cr_assert(f);
	fseek(f, (long)w->offset, SEEK_SET);
	cr_assert_eq(fread(bytes, 1, w->bytes, f), w->bytes);
	fclose(f);
	bytes[0] = (char)(bytes[0] ^ spoil);
	bus_encode_chunk(&(struct bus_chunk){w->file, w->offset, bytes, w->bytes}, "", &b);
	send_bytes(b.p, b.len);
	asked += w->bytes;
	buf_fini(&b);
	free(bytes);
	free(path);
}

static void expect_want(uint32_t file)
{
	expect(BUS_WANT);
	cr_assert_eq(decoded().want.file, file);
}

/* Serve up to `most` requests until another message comes; return its type. */
static int serve(int most, bool spoil)
{
	int type;
	while ((type = receive()) == BUS_WANT || type == BUS_BEAT) {
		if (type == BUS_BEAT)
			continue;
		const struct bus_want w = decoded().want;
		if (most-- == 0)
			return type;
		send_chunk(&w, spoil);
	}
	return type;
}

static void end(int status)
{
	char command[128];
	cr_expect_eq(end_worker(), status);
	close_router();
	snprintf(command, sizeof command, "rm -rf '%s'", cache);
	cr_expect_eq(system(command), 0);
	manifest_fini(&list);
	store_files_fini(&files);
}

static void expect_failed(const char *text)
{
	cr_assert_eq(bus_peek(peer.bytes, peer.n, &why), BUS_FAILED);
	cr_expect(strstr(decoded().failed.why, text), "%s", decoded().failed.why);
	end(1);
}

Test(link_model, is_fetched_and_served)
{
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(INT32_MAX, false), BUS_READY);
	cr_expect_eq(asked, list.bytes);
	send_plan(1, 1, 3);
	expect_result(1, 1);
	send_stop();
	end(0);
}

/* If a new load replaces a load, as after a controller's restart, the fetched files stay. */
Test(link_model, a_new_load_goes_on_where_the_fetch_was)
{
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(3, false), BUS_WANT);
	send_load_offered(2);
	for (int type; (type = receive()) != BUS_WANT || decoded().want.epoch != 2;)
		cr_assert(type == BUS_WANT || type == BUS_BEAT, "type %d", type);
	cr_assert_eq(decoded().want.file, BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(INT32_MAX, false), BUS_READY);
	cr_expect_eq(decoded().ready.epoch, 2);
	cr_expect_eq(asked, list.bytes);
	send_stop();
	end(0);
}

/* Fetched weights are reused for a load with their fingerprint only. */
Test(link_model, fetched_weights_are_kept_by_their_fingerprint)
{
	struct bus_msg m = {.type = BUS_LOAD, .load = driver_load(missing)};
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(INT32_MAX, false), BUS_READY);
	m.load.epoch = 2;
	m.load.offers = true;
	snprintf(m.load.quick_fingerprint, sizeof m.load.quick_fingerprint, "%s", quick_fingerprint);
	manifest_fingerprint(&list, m.load.fingerprint);
	send_msg(&m);
	expect(BUS_READY);
	m.load.epoch = 3;
	m.load.fingerprint[0] = m.load.fingerprint[0] == '0' ? '1' : '0';
	send_msg(&m);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	expect(BUS_READY); /* from the cache */
	cr_expect_eq(asked, list.bytes);
	send_stop();
	end(0);
}

Test(link_model, is_not_fetched_where_that_is_forbidden)
{
	begin(model(), false);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	expect(BUS_FAILED);
	expect_failed("--fetch never forbids to fetch it");
}

Test(link_model, a_refusal_is_passed_on)
{
	const struct manifest none = {0};
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&none, "the disk is gone");
	expect(BUS_FAILED);
	expect_failed("the controller cannot give this worker the model: the disk is gone");
}

/* Bytes do not match the list's checksum: each file is requested twice, then the worker fails. */
Test(link_model, a_controller_with_false_bytes_is_given_up)
{
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(INT32_MAX, true), BUS_FAILED);
	expect_failed("has a wrong checksum, twice");
}

/* A list that names a file outside of the cache is invalid; nothing is written. */
Test(link_model, a_list_that_leaves_the_cache_is_refused)
{
	struct buf b = {0};
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	bus_encode_files(&list, "", &b);
	char *name = memmem(b.p, b.len, "config.json", 11);
	cr_assert(name);
	memcpy(name, "../cfg.json", 11);
	send_bytes(b.p, b.len);
	buf_fini(&b);
	expect(BUS_FAILED);
	DIR *d = opendir(cache);
	int n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	cr_expect_eq(n, 2);
	expect_failed("not allowed");
}

/* A stop ends the fetch at once, and a heartbeat without a group causes a new hello. */
Test(link_model, a_fetch_can_be_called_off)
{
	const struct bus_msg dismissed = {.type = BUS_BEAT, .beat = {.state = BUS_SERVING}};
	begin(model(), true);
	send_load_offered(1);
	expect_want(BUS_WANT_LIST);
	send_list(&list, "");
	cr_assert_eq(serve(2, false), BUS_WANT);
	send_msg(&dismissed);
	while (receive() != BUS_HELLO)
		;
	send_load_offered(2);
	while (receive() != BUS_WANT || decoded().want.file != BUS_WANT_LIST)
		;
	send_stop();
	while (receive() != BUS_STOP)
		;
	end(0);
}
