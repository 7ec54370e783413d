/* Limits on one client's use of shared resources: memory for bodies, and time of the threads that prepare
 * large requests. */
#include "tests/wire/http_rig.h"

#include <semaphore.h>

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

/* Write the head of a POST; key: NULL for none; length: < 0 for a chunked body. */
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
	struct why why;
	work_pool_stop(svc.pool);
	cr_assert(work_pool_start(&limits, &svc.pool, &why) == 0, "%s", why.text);
}

static void await_pool(size_t n)
{
	for (int i = 0; i < 3000 && work_pool_n(svc.pool) != n; i++)
		usleep(10000);
	cr_assert_eq(work_pool_n(svc.pool), n);
}

/* Send a request that the pool prepares; it stays there while the mailbox is blocked. */
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
	/* Another client has its own limit; there is also a limit for all clients. */
	fds[3] = send_cancel(bob);
	await_pool(4);
	expect_error(client_answer(send_cancel(bob)), 503, "overloaded", NULL);
	/* Small requests need no place in the pool. */
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

/* Each value is a prompt. libmicrohttpd's thread, which serves other clients, leaves them to the pool. */
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

/* One small request for each way to cause compilation, or to expand into more than its own bytes. */
static const struct {
	const char *path, *body;
} costly[] = {
	{"/v1/completions", "{\"prompt\":\"a\",\"guided_json\":{\"type\":\"null\"},\"max_tokens\":1}"},
	{"/v1/completions", "{\"prompt\":\"a\",\"guided_regex\":\"a*\",\"max_tokens\":1}"},
	{"/v1/completions", "{\"prompt\":\"a\",\"\\u0067uided_regex\":\"a*\",\"max_tokens\":1}"},
	{"/v1/completions",
	 "{\"prompt\":\"a\",\"structured_outputs\":{\"choice\":[\"a\"]},\"max_tokens\":1}"},
	{"/v1/completions",
	 "{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"},\"max_tokens\":1}"},
	{"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
				 "\"response_format\":{\"type\":\"json_object\"}}"},
	{"/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
			      "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
	{"/v1/chat/completions/input_tokens",
	 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
	 "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"},
	{"/v1/messages",
	 "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
	 "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{}}}}"},
	{"/v1/responses", "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_object\"}}}"},
	{"/responses", "{\"input\":\"a\",\"previous_response_id\":\"resp_1\"}"},
	{"/v1/responses", "{\"input\":\"a\",\"conversation\":\"conv_1\"}"},
	{"/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"format\":\"json\"}"},
	{"/api/generate", "{\"prompt\":\"a\",\"format\":\"json\"}"},
	{"/completion", "{\"prompt\":\"a\",\"json_schema\":{\"type\":\"null\"},\"n_predict\":1}"},
	{"/completions", "{\"prompt\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\",\"n_predict\":1}"},
	{"/infill", "{\"input_prefix\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\"}"},
};

/* The pool prepares them all, so libmicrohttpd's threads still answer requests that need no preparation. */
Test(http_share, what_may_be_compiled_is_prepared_by_the_pool_however_small)
{
	enum { N = sizeof costly / sizeof *costly };
	static const char *const told[] = {"/livez", "/metrics", "/v1/models"};
	int fds[N];
	start_with_keys();
	use_pool((struct work_limits){.n_threads = 1,
				      .items = 100,
				      .bytes = 1 << 30,
				      .client_items = 100,
				      .client_bytes = 1 << 30});
	fake_block(mailbox, true);
	int busy = send_cancel(alice);
	cr_assert(becomes(&mailbox->n_blocked, 1));
	for (size_t i = 0; i < N; i++) {
		fds[i] = send_post(costly[i].path, alice, costly[i].body);
		await_pool(2 + i);
	}
	for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
		struct buf b = {0};
		buf_printf(
			&b,
			"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n",
			told[i], bob);
		struct answer a = client_raw(at, b.p, b.len);
		cr_expect_eq(a.status, 200, "%s: %s", told[i], a.raw.p);
		answer_fini(&a);
		buf_fini(&b);
	}
	expect_error(client_answer(send_post(costly[0].path, NULL, costly[0].body)), 401, "missing_api_key",
		     NULL);
	fake_block(mailbox, false);
	for (size_t i = 0; i < N; i++) {
		struct answer a = client_answer(fds[i]);
		cr_expect(a.status && a.status != 401, "%s: %s", costly[i].body, a.raw.p);
		answer_fini(&a);
	}
	close(busy);
	await_pool(0);
}

/* The part of the path after a prefix is freed with the connection, which may be closed by then. */
Test(http_share, large_bodies_behind_a_prefix_are_prepared_by_the_pool)
{
	char body[20100];
	start_with_keys();
	use_pool((struct work_limits){
		.n_threads = 1, .items = 10, .bytes = 1 << 30, .client_items = 10, .client_bytes = 1 << 30});
	fake_block(mailbox, true);
	int busy = send_cancel(alice);
	cr_assert(becomes(&mailbox->n_blocked, 1));
	snprintf(body, sizeof body, "{\"items\":[]%20000s}", "");
	int fd = send_post("/v1/conversations/conv_0123/items", alice, body);
	await_pool(2);
	close(send_post("/v1/conversations/conv_4567/items", alice, body));
	fake_block(mailbox, false);
	struct answer a = client_answer(fd);
	cr_expect(a.status, "%s", a.raw.p);
	answer_fini(&a);
	close(busy);
	await_pool(0);
}

/* All bodies in memory together may have 16 times the largest body's bytes. */
Test(http_share, bodies_under_way_are_bounded_together)
{
	enum { N = 200, BYTES = (1 << 20) - 1 };
	char *part = xmalloc(BYTES + 1);
	int fds[N], n = 0;
	bool refused = false;
	memset(part, ' ', BYTES);
	part[BYTES] = '\0';
	start();
	/* Hold one more body at a time until one is refused; held ones may be refused too. */
	for (; n < N && !refused; n++) {
		struct buf b = {0};
		fds[n] = client_connect(at);
		put_head(&b, "/v1/completions", NULL, BYTES + 1);
		buf_put(&b, part, BYTES); /* the last byte is never sent */
		cr_assert(client_send(fds[n], b.p, b.len));
		buf_fini(&b);
		struct answer a = client_answer(send_post("/v1/completions", NULL, part));
		refused = strstr(a.raw.p, "too many large requests at once");
		expect_error(a, refused ? 429 : 400, refused ? "overloaded" : NULL, NULL);
	}
	cr_expect(refused && n >= 15, "%d", n);
	/* Their memory is freed when they have disconnected. */
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

/* For a client without a key, at most one mebibyte of its body is read. */
Test(http_share, the_body_of_a_stranger_is_not_read_to_its_end)
{
	enum { CHUNK = 64 << 10, CHUNKS = 640 };
	struct buf b = {0}, chunk = {0};
	svc.max_request_bytes =
		16 << 20; /* a known client's refused body is read up to four times this size */
	start_with_keys();
	/* A large Content-Length is answered before the body arrives. */
	put_head(&b, "/v1/completions", NULL, (1 << 20) + 1);
	expect_error(client_raw(at, b.p, b.len), 401, "missing_api_key", NULL);
	buf_clear(&b);
	/* For a chunked body, the connection is closed at the limit. */
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

/* --- resumed streams --- */

struct gate {
	struct work w;
	sem_t begun, open;
};

static void pass(struct work *w)
{
	struct gate *g = (struct gate *)w;
	sem_post(&g->begun);
	sem_wait(&g->open);
}

/* Block the only thread of the pool until the gate is opened. */
static void close_pool(struct gate *g)
{
	struct why why;
	use_pool((struct work_limits){
		.n_threads = 1, .items = 10, .bytes = 1 << 30, .client_items = 10, .client_bytes = 1 << 30});
	*g = (struct gate){.w = {.run = pass, .bytes = 1}};
	sem_init(&g->begun, 0, 0);
	sem_init(&g->open, 0, 0);
	cr_assert_eq(work_pool_put(svc.pool, "gate", &g->w, &why), 0, "%s", why.text);
	sem_wait(&g->begun);
}

/* Request eight outputs of 400 tokens, each in one delta, over HTTP/1.0: the reply has no chunks. */
static int send_long(size_t after)
{
	static const char body[] =
		"{\"prompt\":\"Once upon a time there was\",\"max_tokens\":400,\"n\":8,\"stream\":true,"
		"\"logprobs\":2,\"user\":\"burst\"}";
	struct buf b = {0};
	int fd = client_connect(at);
	buf_puts(&b, "POST /v1/completions HTTP/1.0\r\nHost: x\r\n"
		     "Content-Type: application/json\r\nIdempotency-Key: long\r\n");
	if (after)
		buf_printf(&b, "Last-Event-ID: %zu\r\n", after);
	buf_printf(&b, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
	cr_assert(client_send(fd, b.p, b.len));
	buf_fini(&b);
	return fd;
}

static const char *event_at(const struct answer *a, size_t n)
{
	char line[32];
	snprintf(line, sizeof line, "id: %zu\n", n);
	return strstr(a->raw.p, line);
}

static size_t n_events(const struct answer *a)
{
	size_t n = 0;
	while (event_at(a, n + 1))
		n++;
	return n;
}

static void expect_end(const struct answer *all, struct answer rest, size_t from)
{
	const char *want = event_at(all, from), *got = event_at(&rest, from);
	cr_assert(want && got, "%s", rest.raw.p);
	cr_expect_null(event_at(&rest, from - 1));
	cr_expect_str_eq(want, got);
	answer_fini(&rest);
}

/* The pool, not the front end's thread, recreates the events that the client already has; the front end
 * continues meanwhile. */
Test(http_share, the_events_that_a_client_has_are_made_again_by_the_pool)
{
	struct gate g;
	start();
	struct answer all = client_answer(send_long(0));
	const size_t n = n_events(&all);
	cr_assert_gt(n, 3000, "%zu events", n);
	close_pool(&g);
	int fd = send_long(n - 3), few = send_long(100);
	await_pool(2);
	expect_end(&all, client_answer(few), 101);
	struct answer other = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":2}");
	cr_expect_eq(other.status, 200, "%s", other.raw.p);
	answer_fini(&other);
	cr_expect_eq(work_pool_n(svc.pool), 2);
	sem_post(&g.open);
	expect_end(&all, client_answer(fd), n - 2);
	answer_fini(&all);
	await_pool(0);
}

/* The client disconnects while its stream waits, and nothing is leaked. */
Test(http_share, a_stream_that_waits_for_the_pool_can_be_left)
{
	struct gate g;
	start();
	struct answer all = client_answer(send_long(0));
	const size_t n = n_events(&all);
	close_pool(&g);
	int fd = send_long(n - 3);
	await_pool(2);
	close(fd);
	sem_post(&g.open);
	await_pool(0);
	answer_fini(&all);
}
