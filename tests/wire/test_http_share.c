/* What one client's requests may take from others: memory for bodies, and turns of the threads that prepare
 * large requests. */
#include "tests/wire/http_rig.h"

TestSuite(http_share, .timeout = 60, .fini = stop);

static const char alice[] = "sk-alice-0123456789", bob[] = "sk-bob-0123456789abc";

static void start_with_keys(void)
{
	struct http_config cfg = {.addr = "127.0.0.1:0", .api_keys = "/tmp/quern-keys-XXXXXX"};
	int fd = mkstemp(cfg.api_keys);
	cr_assert(fd >= 0 && dprintf(fd, "%s name=alice\n%s name=bob\n", alice, bob) > 0);
	close(fd);
	load();
	start_with(&cfg);
	unlink(cfg.api_keys);
}

/* The head of a POST; key NULL: none; length < 0: the body is chunked. */
static void put_head(struct buf *b, const char *path, const char *key, long length)
{
	buf_printf(b,
		   "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n",
		   path);
	if (key)
		buf_printf(b, "Authorization: Bearer %s\r\n", key);
	if (length < 0)
		buf_puts(b, "Transfer-Encoding: chunked\r\n\r\n");
	else
		buf_printf(b, "Content-Length: %ld\r\n\r\n", length);
}

static int send_post(const char *path, const char *key, const char *body)
{
	struct buf b = {0};
	int fd = client_connect(at);
	put_head(&b, path, key, (long)strlen(body));
	buf_puts(&b, body);
	cr_assert(client_send(fd, b.p, b.len));
	buf_fini(&b);
	return fd;
}

static void use_pool(struct work_limits limits)
{
	char why[256];
	work_pool_stop(svc.pool);
	cr_assert(work_pool_start(&limits, &svc.pool, why, sizeof why) == 0, "%s", why);
}

static void await_pool(size_t n)
{
	for (int i = 0; i < 3000 && work_pool_n(svc.pool) != n; i++)
		usleep(10000);
	cr_assert_eq(work_pool_n(svc.pool), n);
}

/* A request that is prepared by the pool, and stays there while the mailbox is blocked. */
static int send_cancel(const char *key)
{
	char body[20100];
	snprintf(body, sizeof body, "{\"job\":\"0123456789abcdef0123456789abcdef\"%20000s}", "");
	return send_post("/api/cancel", key, body);
}

Test(http_share, a_clients_queue_for_preparation_is_bounded)
{
	int fds[4];
	start_with_keys();
	use_pool((struct work_limits){
		.n_threads = 1, .items = 3, .bytes = 1 << 30, .client_items = 2, .client_bytes = 1 << 30});
	fake_block(mailbox, true);
	fds[0] = send_cancel(alice);
	cr_assert(becomes(&mailbox->n_blocked, 1));
	fds[1] = send_cancel(alice);
	fds[2] = send_cancel(alice);
	await_pool(3);
	struct answer a = client_answer(send_cancel(alice));
	cr_expect_str_eq(answer_header(&a, "Retry-After"), "1");
	cr_expect(strstr(a.raw.p, "key alice") && strstr(a.raw.p, "wait for their replies first"), "%s",
		  a.raw.p);
	expect_error(a, 429, "too_many_preparing", NULL);
	/* Another client has its own; all together are bounded too. */
	fds[3] = send_cancel(bob);
	await_pool(4);
	expect_error(client_answer(send_cancel(bob)), 503, "overloaded", NULL);
	/* Small requests need no place. */
	a = client_answer(send_post("/v1/completions", alice, "{\"prompt\":\"Once\",\"max_tokens\":1}"));
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	fake_block(mailbox, false);
	for (int i = 0; i < 4; i++) {
		a = client_answer(fds[i]);
		cr_expect_eq(a.status, 200, "%s", a.raw.p);
		answer_fini(&a);
	}
	await_pool(0);
}

/* A prompt per value: libmicrohttpd's thread, which serves other clients, leaves them to the pool. */
Test(http_share, small_bodies_of_many_prompts_are_prepared_by_the_pool)
{
	struct buf many = {0};
	start_with_keys();
	use_pool((struct work_limits){
		.n_threads = 1, .items = 10, .bytes = 1 << 30, .client_items = 10, .client_bytes = 1 << 30});
	fake_block(mailbox, true);
	int busy = send_cancel(alice);
	cr_assert(becomes(&mailbox->n_blocked, 1));
	buf_puts(&many, "{\"max_tokens\":1,\"prompt\":[\"a\"");
	for (int i = 1; i < 300; i++)
		buf_puts(&many, ",\"a\"");
	buf_puts(&many, "]}");
	int fd = send_post("/v1/completions", alice, many.p);
	await_pool(2);
	fake_block(mailbox, false);
	struct answer a = client_answer(fd);
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	close(busy);
	buf_fini(&many);
}

/* Bodies that are held may have 16 times the largest together. */
Test(http_share, bodies_under_way_are_bounded_together)
{
	enum { N = 200, BYTES = (1 << 20) - 1 };
	char *part = xmalloc(BYTES + 1);
	int fds[N], n = 0;
	bool refused = false;
	memset(part, ' ', BYTES);
	part[BYTES] = '\0';
	start();
	/* One more that is held, until there is no room for another; those held may be refused as well. */
	for (; n < N && !refused; n++) {
		struct buf b = {0};
		fds[n] = client_connect(at);
		put_head(&b, "/v1/completions", NULL, BYTES + 1);
		buf_put(&b, part, BYTES); /* the last byte never comes */
		cr_assert(client_send(fds[n], b.p, b.len));
		buf_fini(&b);
		struct answer a = client_answer(send_post("/v1/completions", NULL, part));
		refused = strstr(a.raw.p, "too many large requests at once");
		expect_error(a, refused ? 429 : 400, refused ? "overloaded" : NULL, NULL);
	}
	cr_expect(refused && n >= 15, "%d", n);
	/* Their memory is free when they have gone. */
	for (int i = 0; i < n; i++)
		close(fds[i]);
	for (int i = 0; i < 3000 && refused; i++) {
		struct answer a = client_answer(send_post("/v1/completions", NULL, part));
		refused = a.status == 429;
		answer_fini(&a);
		usleep(10000);
	}
	cr_expect_not(refused);
	free(part);
}

/* A client without a key cannot have more than a mebibyte of its body read. */
Test(http_share, the_body_of_a_stranger_is_not_read_to_its_end)
{
	enum { CHUNK = 64 << 10, CHUNKS = 640 };
	struct buf b = {0}, chunk = {0};
	svc.max_request_bytes =
		16 << 20; /* of which a known client's refused body may have four times as much */
	start_with_keys();
	/* By its length: answered before the body has come. */
	put_head(&b, "/v1/completions", NULL, (1 << 20) + 1);
	expect_error(client_raw(at, b.p, b.len), 401, "missing_api_key", NULL);
	buf_clear(&b);
	/* By its bytes: the connection is closed. */
	buf_printf(&chunk, "%x\r\n%*s\r\n", CHUNK, CHUNK, "");
	put_head(&b, "/v1/completions", NULL, -1);
	int fd = client_connect(at), n = 0;
	cr_assert(client_send(fd, b.p, b.len));
	while (n < CHUNKS && client_send(fd, chunk.p, chunk.len))
		n++;
	cr_expect(n < CHUNKS, "all of %d MiB were read", CHUNKS * CHUNK >> 20);
	close(fd);
	buf_fini(&b);
	buf_fini(&chunk);
}
