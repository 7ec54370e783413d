/* The web page and the paths that only it uses, with a fake front end. */
#include "tests/wire/http_rig.h"

#include "controller/endpoints/routes.h"
#include "controller/endpoints/viewers.h"

TestSuite(page, .timeout = 60, .init = start, .fini = stop);

Test(page, is_the_file_with_a_nonce_in_place_of_the_mark)
{
	struct answer a = client_ask(at, "GET", "/", NULL), b = client_ask(at, "GET", "/", NULL);
	cr_expect_eq(a.status, 200);
	cr_expect(strstr(a.raw.p, "Content-Type: text/html; charset=utf-8\r\n"));
	cr_expect(strstr(a.raw.p, "Cache-Control: no-store\r\n"));
	cr_expect(strstr(a.raw.p, "X-Content-Type-Options: nosniff\r\n"));
	const char *policy =
		strstr(a.raw.p, "Content-Security-Policy: default-src 'none'; script-src 'nonce-");
	cr_assert(policy);
	/* The header is complete to its last word. */
	const char *trusted =
		strstr(policy, "; require-trusted-types-for 'script'; trusted-types 'none'\r\n");
	cr_expect(trusted && trusted < strstr(policy, "\r\n"));
	char nonce[33];
	snprintf(nonce, sizeof nonce, "%s", strstr(policy, "nonce-") + 6);
	cr_expect_eq(strspn(nonce, "0123456789abcdef"), 32);
	char script[64];
	snprintf(script, sizeof script, "<script nonce='%s'>", nonce);
	cr_expect(strstr(a.body.p, script));
	cr_expect_null(strstr(a.body.p, "@NONCE@"));
	cr_expect_null(strstr(b.raw.p, nonce), "another one each time");
	cr_expect_eq(a.body.len, (size_t)(page_html_end - page_html) + 2 * (32 - strlen("@NONCE@")),
		     "one script, one style");
	answer_fini(&a);
	answer_fini(&b);
}

Test(page, needs_nothing_from_elsewhere)
{
	static const char *const bad[] = {
		"src=",      "href=\"http",        "@import",        "url(",  "innerHTML",
		"outerHTML", "insertAdjacentHTML", "document.write", "eval(", " onclick=",
		" style="};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_expect_null(strstr(page_html, bad[i]), "%s", bad[i]);
}

/* Read the live stream up to `until`; return its bytes. */
static struct buf watch(int *fd, const char *until)
{
	struct buf request = {0}, got = {0};
	*fd = client_connect(at);
	client_request(&request, "GET", "/api/live", NULL);
	cr_assert(client_send(*fd, request.p, request.len));
	client_read(*fd, &got, until);
	buf_fini(&request);
	return got;
}

Test(page, the_live_stream_begins_at_once_with_a_whole_frame)
{
	int fd;
	struct buf got = watch(&fd, "\n\n");
	cr_expect(strstr(got.p, "HTTP/1.1 200"));
	cr_expect(strstr(got.p, "text/event-stream"));
	cr_expect(strstr(got.p, "data: {\"history\":["));
	cr_expect(strstr(got.p, "\"model\":\"org/stories\""));
	buf_clear(&got);
	client_read(fd, &got, "\"now\":[");
	cr_expect_null(strstr(got.p, "\"service\""), "an unchanged section is not sent again");
	buf_fini(&got);
	close(fd);
}

Test(page, viewers_have_a_bound_and_one_that_leaves_makes_room)
{
	static int fds[VIEWERS_MAX];
	for (int i = 0; i < VIEWERS_MAX; i++) {
		struct buf got = watch(&fds[i], "\r\n\r\n");
		cr_assert(strstr(got.p, "HTTP/1.1 200"), "%d: %s", i, got.p);
		buf_fini(&got);
	}
	expect_error(client_ask(at, "GET", "/api/live", NULL), 429, "overloaded", NULL);
	for (int i = 0; i < VIEWERS_MAX; i++)
		close(fds[i]);
	/* A disconnected viewer is noticed at the next frame. */
	int status = 429;
	for (int i = 0; i < 300 && status == 429; i++) {
		int fd;
		usleep(100000);
		struct buf got = watch(&fd, "\r\n\r\n");
		status = strstr(got.p, "HTTP/1.1 200") ? 200 : 429;
		buf_fini(&got);
		close(fd);
	}
	cr_expect_eq(status, 200);
}

Test(page, head_of_the_live_stream_ends)
{
	struct answer a = client_ask(at, "HEAD", "/api/live", NULL);
	cr_expect_eq(a.status, 200);
	cr_expect_eq(a.body.len, 0);
	answer_fini(&a);
}

Test(page, cancel_names_the_error)
{
	expect_error(post("/api/cancel", "{\"job\":\"unknown\"}"), 404, "not_found", "job");
	expect_error(post("/api/cancel", "{\"job\":7}"), 400, NULL, "job");
	expect_error(post("/api/cancel", "{}"), 400, NULL, "job");
	expect_error(post("/api/cancel", "[]"), 400, NULL, "job");
	expect_error(post("/api/cancel", "{"), 400, NULL, NULL);
	struct answer a = post("/api/cancel", "{\"job\":\"0123456789abcdef0123456789abcdef\"}");
	cr_expect_eq(a.status, 200);
	answer_fini(&a);
}

#define JOB "0123456789abcdef0123456789abcdef"

/* Return a cancel request that is large enough to be prepared by another thread. */
static char *large_cancel(const char *job)
{
	struct buf b = {0};
	buf_printf(&b, "{\"job\":\"%s\"%20000s}", job, "");
	return buf_take(&b);
}

Test(page, a_large_cancel_is_answered_like_a_small_one)
{
	char *body = large_cancel(JOB);
	for (int i = 0; i < 20; i++) {
		struct answer a = post("/api/cancel", body);
		cr_expect_eq(a.status, 200, "%s", a.raw.p);
		answer_fini(&a);
	}
	free(body);
	body = large_cancel("unknown");
	expect_error(post("/api/cancel", body), 404, "not_found", "job");
	free(body);
}

/* The clients disconnect while the threads that prepare large requests are busy. */
Test(page, large_cancels_of_disconnected_clients_do_no_harm)
{
	char *body = large_cancel(JOB);
	struct buf request = {0};
	int fds[20];
	client_request(&request, "POST", "/api/cancel", body);
	fake_block(mailbox, true);
	for (int i = 0; i < 20; i++) {
		fds[i] = client_connect(at);
		cr_assert(client_send(fds[i], request.p, request.len));
	}
	cr_expect(becomes(&mailbox->n_blocked, work_limits_usual.n_threads),
		  "as many as there are threads: %u", atomic_load(&mailbox->n_blocked));
	for (int i = 0; i < 20; i++)
		close(fds[i]);
	for (int i = 0; i < 3000 && metrics_count(svc.metrics, METRIC_HTTP_CUT) < 20; i++)
		usleep(10000);
	cr_expect_eq(metrics_count(svc.metrics, METRIC_HTTP_CUT), 20, "each is missed");
	fake_block(mailbox, false);
	struct answer a = post("/api/cancel", body);
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	buf_fini(&request);
	free(body);
}
