/* Hostile requests: each is refused or cut off, and the next client is served normally. (test_http_framing.c
 * has requests that two readers frame differently.) */
#include "tests/wire/http_rig.h"

TestSuite(http_attacks, .timeout = 120, .fini = stop);

/* Expects that other clients are served, and that no part of the attack became a job. */
static void expect_unharmed(unsigned n_submitted)
{
	struct answer a = client_ask(at, "GET", "/health", NULL);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	cr_expect(atomic_load(&mailbox->n_submitted) == n_submitted, "%u jobs",
		  atomic_load(&mailbox->n_submitted));
}

Test(http_attacks, broken_request_lines_are_refused)
{
	static const char *const lines[] = {
		"GET\r\n\r\n",
		"GET /health\r\n\r\n",
		"GET /health HTTP/9.9\r\nHost: x\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"GET /v1/models/../../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /v1/models/%2e%2e%2fetc%2fpasswd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /health%00x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	};
	struct http_config cfg = {.addr = "127.0.0.1:0", .timeout_s = 2};
	load();
	start_with(&cfg);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct answer a = client_raw(at, lines[i], strlen(lines[i]));
		cr_expect(a.status == 0 || a.status >= 400, "\"%s\": %s", lines[i], a.raw.p);
		cr_expect(!a.raw.p || !strstr(a.raw.p, "root:"), "a file is shown");
		answer_fini(&a);
	}
	expect_unharmed(0);
}

Test(http_attacks, huge_and_odd_numbers_are_refused)
{
	static const char *const numbers[] = {"1e308",
					      "-1e308",
					      "1e400",
					      "9223372036854775807",
					      "-9223372036854775808",
					      "9223372036854775808",
					      "18446744073709551616",
					      "2147483648",
					      "4294967297",
					      "1e-400",
					      "-1",
					      "NaN",
					      "Infinity",
					      "1.5",
					      "00012",
					      "1234567890123456789012345678901234567890",
					      "\"5\"",
					      "[5]",
					      "true"};
	static const char *const names[] = {"n",         "max_tokens", "min_tokens",      "top_k",
					    "best_of",   "logprobs",   "prompt_logprobs", "deadline_ms",
					    "beam_width"};
	start();
	unsigned taken = 0;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
			char *body = xasprintf(
				"{\"prompt\":\"Once\",\"max_tokens\":1,\"%s\":%s,\"user\":\"refuse\"}",
				names[k], numbers[i]);
			struct answer a = post("/v1/completions", body);
			/* 429: the request is valid, and the fake front end refuses it. */
			cr_expect(a.status == 400 || a.status == 429, "%s: %s", body, a.raw.p);
			taken += a.status == 429;
			answer_fini(&a);
			free(body);
		}
	cr_expect(taken < 12, "%u were taken", taken);
	expect_unharmed(taken);
}

Test(http_attacks, deep_json_is_refused_wherever_it_is)
{
	static const char *const around[][2] = {
		{"", ""},
		{"{\"prompt\":\"a\",\"logit_bias\":", "}"},
		{"{" CHAT ",\"tools\":", "}"},
		{"{" CHAT ",\"chat_template_kwargs\":{\"a\":", "}}"},
		{"{\"messages\":[{\"role\":\"user\",\"content\":", "}]}"},
		{"{" CHAT ",\"metadata\":", "}"},
	};
	start();
	for (size_t i = 0; i < sizeof around / sizeof *around; i++)
		for (int k = 0; k < 2; k++) {
			struct buf b = {0};
			buf_puts(&b, around[i][0]);
			for (int d = 0; d < 50000; d++)
				buf_puts(&b, k ? "{\"a\":" : "[");
			buf_puts(&b, "1");
			for (int d = 0; d < 50000; d++)
				buf_putc(&b, k ? '}' : ']');
			buf_puts(&b, around[i][1]);
			expect_error(post("/v1/chat/completions", b.p), 400, NULL, NULL);
			buf_fini(&b);
		}
	expect_unharmed(0);
}

Test(http_attacks, too_many_tools_are_refused)
{
	struct buf b = {0};
	svc.max_request_bytes = 4 << 20;
	start();
	svc.tools = TOOLS_HERMES;
	buf_puts(&b, "{" CHAT ",\"tools\":[");
	for (int i = 0; i < 5000; i++)
		buf_printf(&b, "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}", i ? "," : "", i);
	buf_puts(&b, "]}");
	expect_error(post("/v1/chat/completions", b.p), 400, NULL, "tools");
	buf_fini(&b);
	expect_unharmed(0);
}

/* A client's text must not become a header, a log line or a part of the reply's JSON structure. */
Test(http_attacks, a_request_cannot_forge_the_reply)
{
	start();
	static const char raw[] = "GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\tb;c=\"d\"\r\n"
				  "Connection: close\r\n\r\n";
	struct answer a = client_raw(at, raw, sizeof raw - 1);
	cr_expect(a.status == 200);
	cr_expect_null(answer_header(&a, "x-request-id"));
	answer_fini(&a);
	a = client_ask(at, "GET", "/v1/models/%22%7d%0d%0aX-Evil:%201%0d%0a", NULL);
	cr_expect(a.status == 404 && a.json, "%s", a.raw.p);
	cr_expect_null(answer_header(&a, "X-Evil"));
	answer_fini(&a);
	a = post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1,\"model\":\"\\\"},{\\u0000\"}");
	cr_expect(a.status >= 400 && a.json, "%s", a.raw.p);
	answer_fini(&a);
	expect_unharmed(0);
}
