/* The HTTP server's limits: malformed, large and slow requests, and clients that disconnect or do not
 * read. */
#include "controller/apis/completion.h"
#include "controller/apis/openai/openai.h"
#include "tests/wire/http_rig.h"

#include <dirent.h>
#include <sys/resource.h>

TestSuite(http_limits, .timeout = 60, .fini = stop);

/* Post n_prompts prompts, n_allowed allowed ids, and other fields. */
static struct answer post_listed_with(int n_prompts, int n_allowed, const char *fields)
{
	struct buf b = {0};
	buf_puts(&b, "{\"max_tokens\":1,\"prompt\":[\"a\"");
	for (int i = 1; i < n_prompts; i++)
		buf_puts(&b, ",\"a\"");
	buf_puts(&b, "],\"allowed_token_ids\":[5");
	for (int i = 1; i < n_allowed; i++)
		buf_printf(&b, ",%d", i % 1000);
	buf_printf(&b, "]%s}", fields);
	struct answer a = post("/v1/completions", b.p);
	buf_fini(&b);
	return a;
}

static struct answer post_listed(int n_prompts, int n_allowed)
{
	return post_listed_with(n_prompts, n_allowed, "");
}

/* Each prompt's job has its own copy of the lists. */
Test(http_limits, lists_of_tokens_times_prompts_are_bounded)
{
	start();
	struct answer a = post_listed(1, 20000);
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	a = post_listed(2000, 10);
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	a = post_listed(2000, 20000);
	cr_expect_not_null(strstr(a.body.p, "fewer prompts"), "%s", a.raw.p);
	expect_error(a, 400, NULL, "prompt");
	/* Within the limit, unless the tokens that break DRY's repetitions are added. */
	a = post_listed(2000, 2000);
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	a = post_listed_with(2000, 2000,
			     ",\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"a\",\"e\",\"o\"]");
	cr_expect_not_null(strstr(a.body.p, "dry_sequence_breakers"), "%s", a.raw.p);
	expect_error(a, 400, NULL, "prompt");
}

Test(http_limits, bad_bodies_are_refused)
{
	start();
	const char *path = "/v1/completions";
	expect_error(post(path, ""), 400, NULL, NULL);
	expect_error(post(path, "{"), 400, NULL, NULL);
	expect_error(post(path, "[]"), 400, NULL, NULL);
	expect_error(post(path, "null"), 400, NULL, NULL);
	expect_error(post(path, "{\"prompt\":\"\\ud800\"}"), 400, NULL, NULL);
	expect_error(post(path, "{}"), 400, NULL, "prompt");
	expect_error(post(path, "{\"prompt\":7}"), 400, NULL, "prompt");
	expect_error(post(path, "{\"prompt\":\"a\",\"max_tokens\":-1}"), 400, NULL, "max_tokens");
	expect_error(post(path, "{\"prompt\":\"a\",\"n\":1000000000}"), 400, NULL, "n");
	expect_error(post(path, "{\"prompt\":\"a\",\"temperature\":\"hot\"}"), 400, NULL, "temperature");
	expect_error(post(path, "{\"prompt\":\"a\",\"stream\":1}"), 400, NULL, "stream");
	expect_error(post(path, "{\"prompt\":\"a\",\"suffix\":\"b\"}"), 400, NULL, "suffix");
	expect_error(post(path, "{\"prompt\":\"a\",\"model\":\"gpt-9\"}"), 404, "model_not_found", "model");
	expect_error(post(path, "{\"prompt\":\"a\",\"max_tokens\":100000}"), 400, "context_length_exceeded",
		     NULL);
	expect_error(post("/v1/chat/completions", "{}"), 400, NULL, "messages");
	expect_error(post("/v1/chat/completions", "{\"messages\":[]}"), 400, NULL, "messages");
	expect_error(
		post("/v1/chat/completions", "{" CHAT ",\"response_format\":{\"type\":\"json_schema\"}}"),
		400, NULL, "response_format");
	struct buf deep = {0};
	for (int i = 0; i < 100000; i++)
		buf_putc(&deep, '[');
	expect_error(post(path, deep.p), 400, NULL, NULL);
	buf_fini(&deep);
	cr_expect(atomic_load(&mailbox->n_submitted) == 0);
}

Test(http_limits, only_json_without_coding_is_taken)
{
	start();
	static const char plain[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				    "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
	static const char none[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: "
				   "close\r\nContent-Length: 2\r\n\r\n{}";
	static const char zipped[] =
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: gzip\r\n"
		"Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}";
	expect_error(client_raw(at, plain, sizeof plain - 1), 415, "unsupported_media_type", NULL);
	expect_error(client_raw(at, none, sizeof none - 1), 415, "unsupported_media_type", NULL);
	expect_error(client_raw(at, zipped, sizeof zipped - 1), 415, "unsupported_media_type", NULL);
}

Test(http_limits, a_body_beyond_the_limit_is_413)
{
	start();
	size_t n = svc.max_request_bytes + 1;
	char *big = xmalloc(n + 1);
	memset(big, ' ', n);
	big[n] = '\0';
	expect_error(post("/v1/completions", big), 413, "request_too_large", NULL);
	/* Send the body again without a Content-Length. */
	struct buf b = {0};
	buf_puts(&b, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
		     "application/json\r\n"
		     "Transfer-Encoding: chunked\r\n\r\n");
	buf_printf(&b, "%zx\r\n", n);
	buf_put(&b, big, n);
	buf_puts(&b, "\r\n0\r\n\r\n");
	expect_error(client_raw(at, b.p, b.len), 413, "request_too_large", NULL);
	buf_fini(&b);
	/* An absurd length is answered before any byte of the body arrives. */
	static const char huge[] =
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		"Content-Length: 99999999999\r\n\r\n";
	expect_error(client_raw(at, huge, sizeof huge - 1), 413, "request_too_large", NULL);
	free(big);
}

/* 3 MB of one-byte chunks took Triton down (CVE-2025-23310). */
Test(http_limits, one_byte_chunks_cost_linear_memory)
{
	start();
	static const char body[] = "{\"prompt\":\"Once\",\"max_tokens\":1}";
	struct buf b = {0};
	buf_puts(&b, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
		     "application/json\r\n"
		     "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 500000; i++)
		buf_puts(&b, "1\r\n \r\n");
	for (size_t i = 0; body[i]; i++)
		buf_printf(&b, "1\r\n%c\r\n", body[i]);
	buf_puts(&b, "0\r\n\r\n");
	struct answer a = client_raw(at, b.p, b.len);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	buf_fini(&b);
}

Test(http_limits, a_thousand_chunks_sent_one_by_one)
{
	start();
	static const char body[] = "{\"prompt\":\"Once\",\"max_tokens\":1}";
	static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				   "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
	int fd = client_connect(at);
	client_send(fd, head, sizeof head - 1);
	for (int i = 0; i < 1000; i++)
		client_send(fd, "1\r\n \r\n", 6);
	for (size_t i = 0; body[i]; i++) {
		char chunk[] = {'1', '\r', '\n', body[i], '\r', '\n'};
		client_send(fd, chunk, sizeof chunk);
	}
	client_send(fd, "0\r\n\r\n", 5);
	struct answer a = client_answer(fd);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
}

Test(http_limits, endless_headers_are_cut_off)
{
	start();
	int fd = client_connect(at);
	struct buf b = {0};
	buf_puts(&b, "GET /health HTTP/1.1\r\nHost: x\r\n");
	for (int i = 0; i < 20000; i++)
		buf_printf(&b, "X-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", i);
	client_send(fd, b.p, b.len);
	struct answer a = client_answer(fd);
	cr_expect(a.status == 0 || a.status == 431 || a.status == 413, "%d", a.status);
	answer_fini(&a);
	buf_fini(&b);
}

Test(http_limits, one_connection_serves_many_requests)
{
	start();
	int fd = client_connect(at);
	struct buf b = {0}, got = {0};
	static const char body[] = "{\"prompt\":\"Once\",\"max_tokens\":1}";
	for (int i = 0; i < 20; i++) /* sent at once, answered one after another */
		buf_printf(&b,
			   "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
			   "Content-Length: %zu\r\n%s\r\n%s",
			   sizeof body - 1, i == 19 ? "Connection: close\r\n" : "", body);
	client_send(fd, b.p, b.len);
	client_read(fd, &got, NULL);
	close(fd);
	int n = 0;
	for (const char *p = got.p; p && (p = strstr(p, "HTTP/1.1 200")); p++)
		n++;
	cr_expect(n == 20, "%d answers", n);
	buf_fini(&b);
	buf_fini(&got);
}

static void leave_while(const char *body)
{
	struct buf b = {0};
	client_request(&b, "POST", "/v1/completions", body);
	unsigned before = atomic_load(&mailbox->n_cancelled), submitted = atomic_load(&mailbox->n_submitted);
	int fd = client_connect(at);
	client_send(fd, b.p, b.len);
	cr_expect(becomes(&mailbox->n_submitted, submitted + 1));
	usleep(20000);
	close(fd);
	cr_expect(becomes(&mailbox->n_cancelled, before + 1), "not cancelled: %s", body);
	cr_expect(becomes(&mailbox->n_live, 0));
	buf_fini(&b);
}

Test(http_limits, a_client_that_disconnects_cancels_its_job)
{
	start();
	leave_while("{\"prompt\":\"Once\",\"user\":\"mute\"}");
	leave_while("{\"prompt\":\"Once\",\"user\":\"hang\"}");
	leave_while("{\"prompt\":\"Once\",\"user\":\"mute\",\"stream\":true}");
	leave_while("{\"prompt\":\"Once\",\"user\":\"hang\",\"stream\":true}");
	leave_while("{\"prompt\":\"Once\",\"user\":\"slow\",\"stream\":true,\"max_tokens\":400}");
	leave_while("{\"prompt\":\"Once\",\"user\":\"slow\",\"max_tokens\":400}");
}

Test(http_limits, a_client_that_does_not_read_is_cut_off)
{
	start();
	struct buf b = {0};
	client_request(&b, "POST", "/v1/completions",
		       "{\"prompt\":\"Once\",\"user\":\"flood\",\"stream\":true}");
	int fd = client_connect(at);
	client_send(fd, b.p, b.len);
	cr_expect(becomes(&mailbox->n_cancelled, 1));
	cr_expect(becomes(&mailbox->n_live, 0));
	close(fd);
	buf_fini(&b);
}

/* Any unread byte exceeds the limit for all streams together. A client that reads keeps its stream; a client
 * that does not is cut off long before its own limit. */
Test(http_limits, a_client_that_does_not_read_costs_no_other_its_stream)
{
	struct http_config cfg = {
		.addr = "127.0.0.1:0", .max_unread_bytes = (size_t)1 << 40, .max_unread_all_bytes = 1};
	load();
	start_with(&cfg);
	struct buf b = {0};
	client_request(&b, "POST", "/v1/completions",
		       "{\"prompt\":\"Once\",\"user\":\"flood\",\"stream\":true}");
	int hog = client_connect(at);
	client_send(hog, b.p, b.len);
	for (int i = 0; i < 10; i++) {
		struct answer a = post("/v1/completions",
				       "{\"prompt\":\"Once upon a time\",\"stream\":true,\"max_tokens\":20}");
		json_t *ev = events_of(&a);
		cr_expect(json_array_size(ev) == 20, "%zu events", json_array_size(ev));
		json_decref(ev);
		answer_fini(&a);
	}
	cr_expect(becomes(&mailbox->n_cancelled, 1));
	cr_expect(becomes(&mailbox->n_live, 0));
	close(hog);
	buf_fini(&b);
}

Test(http_limits, stops_while_requests_wait_and_stream)
{
	start();
	int fd[30];
	for (int i = 0; i < 30; i++) {
		const char *users[] = {"mute", "hang", "slow"};
		struct buf b = {0};
		char body[256];
		snprintf(body, sizeof body,
			 "{\"prompt\":\"Once\",\"user\":\"%s\",\"stream\":%s,\"max_tokens\":500}",
			 users[i % 3], i % 2 ? "true" : "false");
		client_request(&b, "POST", "/v1/completions", body);
		fd[i] = client_connect(at);
		client_send(fd[i], b.p, i == 7 ? b.len / 2 : b.len); /* one is sent half */
		buf_fini(&b);
	}
	cr_expect(becomes(&mailbox->n_submitted, 29));
	http_stop(http);
	cr_expect(atomic_load(&mailbox->n_live) == 0);
	fake_stop(mailbox);
	http = NULL;
	for (int i = 0; i < 30; i++)
		close(fd[i]);
}

Test(http_limits, hundreds_of_streams_at_once)
{
	start();
	enum { N = 300 };
	int fd[N];
	struct buf b = {0};
	client_request(&b, "POST", "/v1/completions",
		       "{\"prompt\":\"Once upon a time\",\"stream\":true,\"max_tokens\":50}");
	for (int i = 0; i < N; i++) {
		fd[i] = client_connect(at);
		client_send(fd[i], b.p, b.len);
	}
	for (int i = 0; i < N; i++) {
		struct answer a = client_answer(fd[i]);
		json_t *ev = events_of(&a);
		cr_expect(json_array_size(ev) == 50, "%zu", json_array_size(ev));
		json_decref(ev);
		answer_fini(&a);
	}
	buf_fini(&b);
}

Test(http_limits, idle_connections_are_closed)
{
	struct http_config cfg = {.addr = ":0", .timeout_s = 1};
	load();
	start_with(&cfg);
	int fd = client_connect(at);
	client_send(fd, "GET /health HT", 14);
	struct buf b = {0};
	client_read(fd, &b, NULL);
	char c;
	cr_expect(recv(fd, &c, 1, 0) == 0, "the server has not closed");
	close(fd);
	buf_fini(&b);
}

/* Slow loris: bytes keep arriving, but never a whole request. */
Test(http_limits, a_request_must_come_in_time)
{
	struct http_config cfg = {.addr = ":0", .timeout_s = 2};
	load();
	start_with(&cfg);
	int fd = client_connect(at);
	client_send(fd, "GET /health HTTP/1.1\r\nX: ", 25);
	while (client_send(fd, "a", 1)) /* until the server closes; the suite has a time limit */
		usleep(200000);
	close(fd);
}

static char *large_request(const char *user)
{
	struct buf b = {0};
	buf_puts(&b, "{\"prompt\":\"Once upon a time\",\"max_tokens\":3,\"stop\":[\"#\"],\"user\":\"");
	buf_puts(&b, user);
	buf_puts(&b, "\"");
	for (int i = 0; i < 100000; i++)
		buf_putc(&b, ' ');
	buf_putc(&b, '}');
	return buf_take(&b);
}

/* Large requests are prepared on another thread. */
Test(http_limits, large_requests_are_answered_like_small_ones)
{
	start();
	char *body = large_request("me");
	struct answer a = post("/v1/completions", body);
	cr_expect(a.status == 200 && *text_of(choice(a.json, 0), "text"), "%s", a.raw.p);
	answer_fini(&a);
	free(body);
	body = large_request("refuse");
	expect_error(post("/v1/completions", body), 429, "overloaded", NULL);
	body[0] = '[';
	expect_error(post("/v1/completions", body), 400, NULL, NULL);
	expect_error(post("/detokenize", body), 400, NULL, NULL);
	free(body);
	body = large_request("hang");
	leave_while(body);
	free(body);
}

Test(http_limits, clients_that_disconnect_at_any_moment_leave_nothing_behind)
{
	start();
	char *large = large_request("slow");
	struct buf small = {0}, big = {0};
	client_request(
		&small, "POST", "/v1/completions",
		"{\"prompt\":[\"Once\",\"Twice\"],\"user\":\"slow\",\"stream\":true,\"max_tokens\":30}");
	client_request(&big, "POST", "/v1/completions", large);
	srand(1);
	for (int i = 0; i < 300; i++) {
		const struct buf *b = i % 3 ? &small : &big;
		int fd = client_connect(at);
		client_send(fd, b->p, i % 5 ? b->len : (size_t)rand() % b->len);
		usleep((useconds_t)(rand() % 4000));
		close(fd);
	}
	cr_expect(becomes(&mailbox->n_live, 0), "%u", atomic_load(&mailbox->n_live));
	free(large);
	buf_fini(&small);
	buf_fini(&big);
}

/* A GET needs no body, but may have one. */
Test(http_limits, a_large_body_of_a_get_is_passed_over)
{
	static const char *const paths[] = {"/metrics", "/v1/models", "/v1/models/stories", "/health", "/"};
	start();
	for (size_t i = 0; i < 5 * sizeof paths / sizeof paths[0]; i++) {
		struct buf b = {0};
		buf_printf(&b, "GET %s HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n%20000s",
			   paths[i % (sizeof paths / sizeof paths[0])], "");
		int fd = client_connect(at);
		cr_assert(client_send(fd, b.p, b.len));
		struct buf got = {0};
		client_read(fd, &got, "\r\n\r\n");
		cr_expect(got.p && strstr(got.p, "HTTP/1.1 200"), "%s", got.p ? got.p : "no answer");
		close(fd);
		fd = client_connect(at);
		client_send(fd, b.p, b.len);
		close(fd); /* without reading the reply */
		buf_fini(&b);
		buf_fini(&got);
	}
	struct answer a = client_ask(at, "GET", "/metrics", NULL);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	cr_assert(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* The bytes and the end arrive together, before the server reads, so the end causes no second event. */
Test(http_limits, half_a_request_and_its_connection_go_with_the_client)
{
	static const char *const halves[] = {
		"\xff\1\1\1\1\1\1\1\1\x7f", "GET /health HTTP/1.1\r\nHo",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"};
	start();
	unsigned before = open_descriptors();
	for (int i = 0; i < 300; i++) {
		int fd = client_connect(at);
		client_send(fd, halves[i % 3], strlen(halves[i % 3]));
		close(fd);
	}
	while (open_descriptors() > before) /* the suite has a time limit */
		usleep(50000);
}

/* Connections of cut-off streams and of HTTP/1.0 streams are closed without waiting for older connections.
 * (An HTTP/1.0 stream ends with its connection.) */
Test(http_limits, streams_that_end_leave_no_connection_behind)
{
	start();
	struct buf cut = {0};
	static const char body[] = "{\"prompt\":\"Once upon\",\"max_tokens\":3,\"stream\":true}";
	struct buf old = {0};
	client_request(&cut, "POST", "/v1/completions",
		       "{\"prompt\":\"Once\",\"user\":\"slow\",\"stream\":true,\"max_tokens\":30}");
	buf_printf(&old,
		   "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: "
		   "%zu\r\n\r\n%s",
		   sizeof body - 1, body);
	int before[16];
	for (int i = 0; i < 16; i++)
		before[i] = client_connect(at);
	for (int i = 0; i < 16; i++) { /* accepted earlier than the others */
		static const char ask[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
		char c;
		client_send(before[i], ask, sizeof ask - 1);
		cr_assert(recv(before[i], &c, 1, 0) == 1);
	}
	unsigned n = open_descriptors();
	for (int i = 0; i < 60; i++) {
		int fd = client_connect(at);
		const struct buf *b = i % 3 ? &cut : &old;
		char c;
		client_send(fd, b->p, b->len);
		cr_assert(recv(fd, &c, 1, 0) == 1);
		if (b == &old) {
			struct answer a = client_answer(fd); /* reads to the end and closes */
			answer_fini(&a);
			continue;
		}
		struct linger at_once = {.l_onoff = 1};
		if (i % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		close(fd);
	}
	while (open_descriptors() > n) /* the suite has a time limit */
		usleep(50000);
	for (int i = 0; i < 16; i++)
		close(before[i]);
	buf_fini(&cut);
	buf_fini(&old);
}

Test(http_limits, a_client_may_close_its_sending_side)
{
	start();
	int fd = client_connect(at);
	static const char ask[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	client_send(fd, ask, sizeof ask - 1);
	shutdown(fd, SHUT_WR);
	struct answer a = client_answer(fd);
	cr_expect(a.status == 200, "%d", a.status);
	answer_fini(&a);
}

/* Refused bodies are not parsed into trees, so memory is limited by the largest accepted tree. */
Test(http_limits, bodies_of_small_values_are_refused_unbuilt)
{
	static const char *const shapes[] = {"[],",   "{},",         "\"\",",
					     "[[]],", "{\"a\":{}},", "[[[[[[[[]]]]]]]],"};
	svc.max_request_bytes = 16 << 20;
	start();
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct rusage before, after;
		struct buf b = {0};
		buf_puts(&b, "{\"prompt\":[");
		while (b.len < 12 << 20)
			buf_puts(&b, shapes[i]);
		buf_puts(&b, "1]}");
		getrusage(RUSAGE_SELF, &before);
		struct answer a = post("/v1/completions", b.p);
		cr_expect(strstr(a.raw.p, "send fewer prompts"), "%s", a.raw.p);
		expect_error(a, 400, "too_many_values", NULL);
		getrusage(RUSAGE_SELF, &after);
		/* Memory grows by the bytes of the body, sent and received, but not by a tree of 128 MB or
		 * more. */
		cr_expect(after.ru_maxrss - before.ru_maxrss < 100 << 10, "%s: %ld KiB", shapes[i],
			  after.ru_maxrss - before.ru_maxrss);
		buf_fini(&b);
	}
}

Test(http_limits, lists_of_too_many_values_are_refused)
{
	svc.max_request_bytes = 16 << 20;
	start();
	struct buf b = {0};
	buf_puts(&b, "{\"prompt\":[");
	for (int i = 0; i < 5000000; i++)
		buf_puts(&b, "1,");
	buf_puts(&b, "1]}");
	expect_error(post("/v1/completions", b.p), 400, "too_many_values", NULL);
	expect_error(post("/api/cancel", b.p), 400, "too_many_values", NULL);
	buf_clear(&b);
	buf_puts(&b, "{\"prompt\":[\"a\"");
	for (int i = 0; i < 3000; i++)
		buf_puts(&b, ",\"a\"");
	buf_puts(&b, "]}");
	expect_error(post("/v1/completions", b.p), 400, NULL, "prompt");
	expect_error(post("/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"n\":65}"), 400, NULL, "n");
	buf_fini(&b);
}

Test(http_limits, damaged_requests_do_no_harm)
{
	struct http_config cfg = {.addr = ":0", .timeout_s = 1};
	load();
	start_with(&cfg);
	struct buf good = {0};
	client_request(
		&good, "POST", "/v1/completions",
		"{\"prompt\":[\"Once\",\"Twice\"],\"max_tokens\":2,\"logprobs\":2,\"stream\":true,\"n\":2}");
	srand(7);
	for (int i = 0; i < 400; i++) {
		char bad[1024];
		memcpy(bad, good.p, good.len);
		for (int k = rand() % 4; k >= 0; k--)
			bad[(size_t)rand() % good.len] =
				(char)(i % 2 ? rand() : "0,:{}[]\"\r\n -"[rand() % 13]);
		int fd = client_connect(at);
		client_send(fd, bad, good.len);
		if (i % 10 == 0)
			shutdown(fd, SHUT_WR); /* else a larger length would time out */
		struct buf got = {0};
		if (i % 10 == 0)
			client_read(fd, &got, NULL);
		close(fd);
		buf_fini(&got);
	}
	struct answer a = client_raw(at, good.p, good.len);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	cr_expect(becomes(&mailbox->n_live, 0), "%u", atomic_load(&mailbox->n_live));
	buf_fini(&good);
}

Test(http_limits, only_loopback_unless_insecure)
{
	load();
	struct why why = {""};
	struct http_config cfg = {.addr = "0.0.0.0:0"};
	mailbox = fake_start(tokenizer);
	cr_expect(start_http(mailbox, &cfg, &http, &why) == -EPERM);
	cr_expect_not_null(strstr(why.text, "--insecure"), "%s", why.text);
	cfg.insecure = true;
	cr_assert(start_http(mailbox, &cfg, &http, &why) == 0, "%s", why.text);
}

Test(http_limits, malformed_addresses_are_named)
{
	load();
	struct why why;
	static const char *const bad[] = {"",
					  "8080",
					  "localhost",
					  "127.0.0.1:",
					  "127.0.0.1:x",
					  "1:2:3",
					  "127.0.0.1:70000",
					  "[::1]",
					  "127.0.0.1:-1",
					  "no.such.host.invalid:1"};
	struct http *h = NULL;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct http_config cfg = {0};
		snprintf(cfg.addr, sizeof cfg.addr, "%s", bad[i]);
		cr_expect(start_http(NULL, &cfg, &h, &why) == -EINVAL, "%s", bad[i]);
		cr_expect_not_null(strstr(why.text, bad[i]), "%s", why.text);
	}
}

Test(http_limits, a_port_in_use_is_named)
{
	start();
	struct why why = {""};
	struct http *other = NULL;
	struct http_config cfg = {0};
	snprintf(cfg.addr, sizeof cfg.addr, "%s", at);
	cr_expect(start_http(mailbox, &cfg, &other, &why) == -EADDRINUSE);
	cr_expect_not_null(strstr(why.text, at), "%s", why.text);
}

/* One server on several sockets: each serves, streams, and appears in the access log under its own
 * address. */
Test(http_limits, every_listening_socket_serves)
{
	char dir[] = "/tmp/quern-test-XXXXXX", log[64], unix_address[64], v6[32], v4[32];
	struct http_config cfg = {0};
	cr_assert(mkdtemp(dir));
	snprintf(log, sizeof log, "%s/log", dir);
	snprintf(unix_address, sizeof unix_address, "unix:%s/http", dir);
	snprintf(cfg.addr, sizeof cfg.addr, "localhost:0,%s", unix_address);
	snprintf(cfg.access_log, sizeof cfg.access_log, "%s", log);
	load();
	start_with(&cfg);
	const int port = atoi(at + strcspn(at, ":") + 1);
	snprintf(v4, sizeof v4, "127.0.0.1:%d", port);
	snprintf(v6, sizeof v6, "[::1]:%d", port);
	const char *const addresses[] = {v4, unix_address, v6}, *const remotes[] = {"127.0.0.1", "unix",
										    "::1"};
	/* Without IPv6, localhost is one address, shown as a number. */
	const size_t n = strncmp(at, "localhost:", 10) ? 2 : 3;
	for (size_t i = 0; i < n; i++) {
		struct answer a = client_ask(addresses[i], "POST", "/v1/completions",
					     "{\"prompt\":\"Once\",\"max_tokens\":2,\"stream\":true}");
		cr_expect(a.status == 200 && strstr(a.raw.p, "[DONE]"), "%s: %s", addresses[i], a.raw.p);
		answer_fini(&a);
	}
	stop();
	http = NULL;
	cr_expect(access(unix_address + 5, F_OK) != 0);
	FILE *f = fopen(log, "r");
	cr_assert_not_null(f);
	char *line = NULL;
	size_t size = 0;
	for (size_t i = 0; i < n; i++) {
		cr_assert(getline(&line, &size, f) > 0);
		json_t *o = json_loads(line, 0, NULL);
		cr_expect_str_eq(text_of(o, "remote"), remotes[i]);
		json_decref(o);
	}
	free(line);
	fclose(f);
	unlink(log);
	rmdir(dir);
}

static unsigned entries(const char *dir)
{
	unsigned n = 0;
	DIR *d = opendir(dir);
	cr_assert_not_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Wait until dir has n entries: a joined thread leaves /proc a moment later. */
static bool falls_to(const char *dir, unsigned n)
{
	for (int ms = 0; ms < 2000 && entries(dir) > n; ms++)
		usleep(1000);
	return entries(dir) == n;
}

/* Each configuration fails in another part of the server, after the earlier parts have started. */
Test(http_limits, a_server_leaves_no_descriptor_and_no_thread_behind)
{
	static const struct http_config cfgs[] = {
		{.addr = "localhost:0,unix:/tmp/quern-test-leaves.sock"},
		{.addr = "127.0.0.1:0", .cors = "no origin"},
		{.addr = "127.0.0.1:0", .tls_cert = "/no/such/file", .tls_key = "/no/such/file"},
		{.addr = "127.0.0.1:0", .api_keys = "/no/such/file"},
		{.addr = "127.0.0.1:0", .access_log = "/no/such/folder/log"},
	};
	load();
	mailbox = fake_start(tokenizer);
	unsigned fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
	for (size_t i = 0; i < sizeof cfgs / sizeof cfgs[0]; i++) {
		struct why why = {""};
		struct http *h = NULL;
		int rc = start_http(mailbox, &cfgs[i], &h, &why);
		cr_expect(i ? rc < 0 && why.text[0] && !h : rc == 0, "%zu: %d %s", i, rc, why.text);
		http_stop(h);
		cr_expect(falls_to("/proc/self/fd", fds), "%zu: %u", i, entries("/proc/self/fd"));
		cr_expect(falls_to("/proc/self/task", threads), "%zu", i);
	}
	fake_stop(mailbox);
	unload();
}

Test(http_limits, a_full_queue_is_429_before_the_body_is_read)
{
	static struct engine_load load;
	start();
	svc.load = &load;
	svc.max_queued_jobs = 10;
	svc.max_queued_tokens = 1000;
	atomic_store(&load.n_queued, 10);
	struct answer a = post("/v1/completions", "no JSON");
	cr_expect_str_eq(answer_header(&a, "Retry-After"), "1");
	expect_error(a, 429, "overloaded", NULL);
	atomic_store(&load.n_queued, 9);
	atomic_store(&load.queued_tokens, 1000);
	expect_error(post("/v1/chat/completions", "no JSON"), 429, "overloaded", NULL);
	/* Requests that create no job are still answered. */
	a = post("/tokenize", "{\"prompt\":\"Once\"}");
	cr_expect(a.status == 200);
	answer_fini(&a);
	atomic_store(&load.queued_tokens, 999);
	a = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":1}");
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	cr_expect(atomic_load(&mailbox->n_submitted) == 1);
}

/* Post a request with the key of key_file(). */
static struct answer post_by_key(const char *body)
{
	struct buf b = {0};
	buf_printf(&b,
		   "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		   "Authorization: Bearer sk-alice-0123456789\r\nContent-Type: application/json\r\n"
		   "Content-Length: %zu\r\n\r\n%s",
		   strlen(body), body);
	struct answer a = client_raw(at, b.p, b.len);
	buf_fini(&b);
	return a;
}

/* A client that has received a whole reply may send its next request: the key's place is free by then,
 * although the front end has not released the jobs. */
/* Start a server with the key of post_by_key(). */
static void start_with_key(const char *fields)
{
	struct http_config cfg = {.addr = "127.0.0.1:0", .api_keys = "/tmp/quern-keys-XXXXXX"};
	int fd = mkstemp(cfg.api_keys);
	cr_assert(fd >= 0 && dprintf(fd, "sk-alice-0123456789 %s\n", fields) > 0);
	close(fd);
	load();
	start_with(&cfg);
	unlink(cfg.api_keys);
}

Test(http_limits, a_reply_comes_after_the_keys_places_are_free)
{
	start_with_key("name=alice max-jobs=2");
	fake_hold(mailbox, true);
	static const char *const bodies[] = {"{\"prompt\":[\"a\",\"b\"],\"max_tokens\":2}",
					     "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":2,\"stream\":true}"};
	for (int i = 0; i < 4; i++) {
		struct answer a = post_by_key(bodies[i % 2]);
		cr_expect(a.status == 200, "%s", a.raw.p);
		answer_fini(&a);
	}
	cr_expect(atomic_load(&mailbox->n_live) == 8, "the front end has let go of jobs");
	/* The limit still holds. */
	expect_error(post_by_key("{\"prompt\":[\"a\",\"b\",\"c\"]}"), 429, "rate_limit_exceeded", NULL);
	fake_hold(mailbox, false);
}

/* The limit of jobs is checked before the prompts are tokenized; the second prompt is invalid. */
Test(http_limits, prompts_are_counted_against_the_keys_limit_before_they_are_prepared)
{
	start_with_key("name=alice max-jobs=2");
	expect_error(post_by_key("{\"prompt\":[\"a\",[-1],\"c\"]}"), 429, "rate_limit_exceeded", NULL);
	/* A request that is refused for its content has released its place when the reply arrives. */
	for (int i = 0; i < 20; i++)
		expect_error(post_by_key("{\"prompt\":[\"a\",[-1]]}"), 400, NULL, "prompt");
	cr_expect(atomic_load(&mailbox->n_submitted) == 0);
}

/* Prompts of a disconnected client are not prepared. */
Test(http_limits, work_stops_when_the_client_has_left)
{
	start();
	struct endpoints objects;
	struct exchange_host host = {0};
	struct http_app app = endpoints_app(&objects, mailbox, &svc, 0);
	exchange_host_init(&host, &svc);
	host.user = app.user;
	host.max_bodies = 1 << 20;
	for (int gone = 0; gone < 2; gone++) {
		struct exchange *x = exchange_new(&host, NULL);
		cr_assert_not_null(x);
		static const char body[] = "{\"prompt\":[\"a\",\"b\",\"c\"],\"max_tokens\":1}";
		exchange_body_give(x, body, sizeof body - 1);
		if (gone)
			exchange_abort(x);
		completions_call_text(x, "");
		const struct completion *c = completion_of(x);
		cr_assert_not_null(c);
		cr_expect(gone == (c->subs[0].n_prompt == 0), "%d: %u tokens", gone, c->subs[0].n_prompt);
		exchange_unref(x);
	}
	cr_expect(exchange_wait_none(&host));
	cr_expect(atomic_load(&mailbox->n_submitted) == 3);
	exchange_host_fini(&host);
}

/* When one prompt is refused, the request's later prompts are not submitted. */
Test(http_limits, prompts_that_were_not_submitted_give_back_their_places)
{
	static const char body[] =
		"{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"],\"user\":\"refuse\"}";
	bool refused = false;
	start_with_key("name=alice max-jobs=8");
	for (int i = 0; i < 100; i++) {
		struct answer a = post_by_key(body);
		answer_fini(&a);
	}
	/* All 8 places become free again, perhaps a moment after the reply. */
	for (int i = 0; i < 3000 && !refused; i++) {
		struct answer a = post_by_key(body);
		refused = strstr(a.raw.p, "\"overloaded\"");
		answer_fini(&a);
		usleep(10000);
	}
	cr_expect(refused, "places are lost");
}

/* Waiting requests get an error, open streams a final event. */
Test(http_limits, a_server_that_stops_answers_every_open_request)
{
	static const char streamed[] =
		"{\"prompt\":\"Once\",\"user\":\"hang\",\"stream\":true,\"echo\":true}";
	static const char whole[] = "{\"prompt\":\"Once\",\"user\":\"hang\"}";
	struct buf b = {0};
	start();
	int fd[3] = {client_connect(at), client_connect(at), client_connect(at)};
	client_request(&b, "POST", "/v1/completions", streamed);
	client_send(fd[0], b.p, b.len);
	struct buf first = {0};
	client_read(fd[0], &first, "Once");
	buf_clear(&b);
	client_request(&b, "POST", "/v1/completions", whole);
	client_send(fd[1], b.p, b.len);
	client_send(fd[2], b.p, b.len - 5); /* the rest is never sent */
	cr_assert(becomes(&mailbox->n_submitted, 2));
	http_stop(http);
	struct answer a = client_answer(fd[0]);
	cr_expect_not_null(strstr(a.raw.p, "\"code\":\"service_stopping\""), "%s", a.raw.p);
	cr_expect_not_null(strstr(a.raw.p, "data: [DONE]"));
	cr_expect_str_eq(a.raw.p + a.raw.len - 5, "0\r\n\r\n", "%s", a.raw.p);
	answer_fini(&a);
	expect_error(client_answer(fd[1]), 503, "service_stopping", NULL);
	a = client_answer(fd[2]);
	cr_expect(a.status == 0);
	answer_fini(&a);
	cr_expect(becomes(&mailbox->n_live, 0));
	buf_fini(&first);
	buf_fini(&b);
	fake_stop(mailbox);
	unload();
	http = NULL; /* stop() then does nothing */
}
