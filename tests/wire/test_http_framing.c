/* Request smuggling: a head that another reader could parse differently is refused with 400 and the
 * connection closed, so that the next request on it is never answered. Each head is sent with a second
 * request in the same segment, and again byte by byte. */
#include "tests/wire/http_rig.h"

TestSuite(http_framing, .timeout = 120, .fini = stop);

#define POST    "POST /detokenize HTTP/1.1\r\n"
#define HOST    "Host: x\r\n"
#define JSON    "Content-Type: application/json\r\n"
#define BODY    "{\"tokens\":[]}"
#define LENGTH  "Content-Length: 13\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define CHUNKS  "d\r\n" BODY "\r\n0\r\n\r\n"

struct sample {
	const char *name, *bytes;
	size_t n;
};
#define S(name, bytes)                                                                                       \
	{                                                                                                    \
		name, bytes, sizeof(bytes) - 1                                                               \
	}

/* Send a request, and after it a second one that any reader understands. */
static struct answer send_two(const struct sample *s, bool slowly)
{
	static const char second[] =
		"GET /v1/models/org/stories HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	struct buf b = {0};
	buf_put(&b, s->bytes, s->n);
	buf_puts(&b, second);
	int fd = client_connect(at);
	for (size_t i = 0; slowly && i < b.len; i++)
		client_send(fd, b.p + i, 1);
	if (!slowly)
		client_send(fd, b.p, b.len);
	buf_fini(&b);
	struct answer a = {0};
	char part[4096];
	ssize_t k;
	while ((k = recv(fd, part, sizeof part, 0)) > 0)
		buf_put(&a.raw, part, (size_t)k);
	cr_expect(k == 0 || errno == ECONNRESET, "%s: the connection is not closed", s->name);
	close(fd);
	answer_parse(&a);
	return a;
}

/* Count the replies that are no refusals. (libmicrohttpd sends the head of some refusals twice.) */
static unsigned count_good(const struct answer *a)
{
	unsigned n = 0;
	for (const char *p = a->raw.p; p && (p = strstr(p, "HTTP/1.1 2")); p++)
		n++;
	return n;
}

static void expect_refused(const struct sample *s, size_t n, int status)
{
	start();
	for (size_t i = 0; i < 2 * n; i++) {
		struct answer a = send_two(&s[i / 2], i % 2);
		/* Unread bytes may reset the connection before the reply is read. */
		cr_expect(a.status == status || (i % 2 && !a.status), "%s: %s", s[i / 2].name,
			  a.raw.p ? a.raw.p : "no reply");
		cr_expect(count_good(&a) == (a.status == 200), "%s lets a second request through: %s",
			  s[i / 2].name, a.raw.p);
		answer_fini(&a);
	}
	cr_expect_eq(atomic_load(&mailbox->n_submitted), 0);
	struct answer a = client_ask(at, "GET", "/health", NULL);
	cr_expect_eq(a.status, 200);
	answer_fini(&a);
}

Test(http_framing, two_lengths_of_a_body_are_refused)
{
	static const struct sample all[] = {
		S("length, then chunked", POST HOST JSON LENGTH CHUNKED "\r\n" CHUNKS),
		S("chunked, then length", POST HOST JSON CHUNKED LENGTH "\r\n" CHUNKS),
		S("length 0 and chunked", POST HOST JSON "Content-Length: 0\r\n" CHUNKED "\r\n" CHUNKS),
		S("two lengths", POST HOST JSON LENGTH "Content-Length: 14\r\n\r\n" BODY),
		S("the same length twice", POST HOST JSON LENGTH LENGTH "\r\n" BODY),
		S("a list of lengths", POST HOST JSON "Content-Length: 13, 13\r\n\r\n" BODY),
		S("chunked twice", POST HOST JSON CHUNKED CHUNKED "\r\n" CHUNKS),
		S("chunked, then identity",
		  POST HOST JSON CHUNKED "Transfer-Encoding: identity\r\n\r\n" CHUNKS),
		S("small letters",
		  POST HOST JSON "content-length: 13\r\ntransfer-encoding: chunked\r\n\r\n" CHUNKS),
		S("on GET", "GET /health HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" CHUNKED "\r\n0\r\n\r\n"),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, lengths_that_are_not_digits_are_refused)
{
	static const struct sample all[] = {
		S("plus", POST HOST JSON "Content-Length: +13\r\n\r\n" BODY),
		S("minus", POST HOST JSON "Content-Length: -13\r\n\r\n" BODY),
		S("hexadecimal", POST HOST JSON "Content-Length: 0xd\r\n\r\n" BODY),
		S("a fraction", POST HOST JSON "Content-Length: 13.0\r\n\r\n" BODY),
		S("two numbers", POST HOST JSON "Content-Length: 13 3\r\n\r\n" BODY),
		S("a NUL", POST HOST JSON "Content-Length: 13\0"
					  "0\r\n\r\n" BODY),
		S("a NUL at the end", POST HOST JSON "Content-Length: 13\0\r\n\r\n" BODY),
		S("a NUL first", POST HOST JSON "Content-Length: \0"
						"13\r\n\r\n" BODY),
		S("a vertical tab", POST HOST JSON "Content-Length: \v13\r\n\r\n" BODY),
		S("empty", POST HOST JSON "Content-Length:\r\n\r\n" BODY),
		S("blank", POST HOST JSON "Content-Length: \r\n\r\n" BODY),
		S("a word", POST HOST JSON "Content-Length: many\r\n\r\n" BODY),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, only_chunked_is_a_transfer_encoding)
{
	static const struct sample all[] = {
		S("xchunked", POST HOST JSON "Transfer-Encoding: xchunked\r\n\r\n" CHUNKS),
		S("gzip, chunked", POST HOST JSON "Transfer-Encoding: gzip, chunked\r\n\r\n" CHUNKS),
		S("chunked, identity", POST HOST JSON "Transfer-Encoding: chunked, identity\r\n\r\n" CHUNKS),
		S("identity", POST HOST JSON "Transfer-Encoding: identity\r\n\r\n" CHUNKS),
		S("identity and a length", POST HOST JSON LENGTH "Transfer-Encoding: identity\r\n\r\n" BODY),
		S("empty", POST HOST JSON "Transfer-Encoding:\r\n\r\n" CHUNKS),
		S("a parameter", POST HOST JSON "Transfer-Encoding: chunked;q=1\r\n\r\n" CHUNKS),
		S("quoted", POST HOST JSON "Transfer-Encoding: \"chunked\"\r\n\r\n" CHUNKS),
		S("a comma", POST HOST JSON "Transfer-Encoding: ,chunked\r\n\r\n" CHUNKS),
		S("a vertical tab", POST HOST JSON "Transfer-Encoding: \vchunked\r\n\r\n" CHUNKS),
		S("a form feed", POST HOST JSON "Transfer-Encoding: chunked\f\r\n\r\n" CHUNKS),
		S("a NUL", POST HOST JSON "Transfer-Encoding: chunked\0x\r\n\r\n" CHUNKS),
		S("on HTTP/1.0", "POST /detokenize HTTP/1.0\r\n" HOST JSON
				 "Connection: keep-alive\r\n" CHUNKED "\r\n" CHUNKS),
		S("length, on HTTP/1.0", "POST /detokenize HTTP/1.0\r\n" HOST JSON
					 "Connection: keep-alive\r\n" CHUNKED LENGTH "\r\n" CHUNKS),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, names_that_are_not_tokens_are_refused)
{
	static const struct sample all[] = {
		S("Content-Length :", POST HOST JSON "Content-Length : 13\r\n\r\n" BODY),
		S("Content-Length, tab", POST HOST JSON "Content-Length\t: 13\r\n\r\n" BODY),
		S("Transfer-Encoding :", POST HOST JSON "Transfer-Encoding : chunked\r\n\r\n" CHUNKS),
		S("length beside Transfer-Encoding :",
		  POST HOST JSON LENGTH "Transfer-Encoding : chunked\r\n\r\n" BODY),
		S("Host :", "GET /health HTTP/1.1\r\nHost: x\r\nHost : y\r\n\r\n"),
		S("no name", POST HOST JSON LENGTH ": 1\r\n\r\n" BODY),
		S("brackets", POST HOST JSON LENGTH "X[1]: 1\r\n\r\n" BODY),
		S("a blank inside", POST HOST JSON LENGTH "X Y: 1\r\n\r\n" BODY),
		S("a NUL inside", POST HOST JSON LENGTH "X\0Y: 1\r\n\r\n" BODY),
		S("a NUL first", POST HOST JSON "\0Content-Length: 13\r\n\r\n" BODY),
		S("a carriage return", POST HOST JSON "X: 1\r\n\rContent-Length: 13\r\n\r\n" BODY),
		S("not ASCII", POST HOST JSON LENGTH "X\xc3\xa9: 1\r\n\r\n" BODY),
		S("no colon", POST HOST JSON LENGTH "X\r\n\r\n" BODY),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, folded_lines_are_refused)
{
	static const struct sample all[] = {
		S("a blank", POST HOST JSON LENGTH "X: 1\r\n 2\r\n\r\n" BODY),
		S("a tab", POST HOST JSON LENGTH "X: 1\r\n\t2\r\n\r\n" BODY),
		S("a length", POST HOST JSON "X: 1\r\n Content-Length: 13\r\n\r\n" BODY),
		S("chunked", POST HOST JSON "Transfer-Encoding:\r\n chunked\r\n\r\n" CHUNKS),
		S("chunked, folded away",
		  POST HOST JSON LENGTH "Transfer-Encoding: chunked\r\n , gzip\r\n\r\n" CHUNKS),
		S("the first line", POST " X: 1\r\n" HOST JSON LENGTH "\r\n" BODY),
		S("first, a length", POST " Content-Length: 13\r\n" HOST JSON "\r\n" BODY),
		S("an empty fold", POST HOST JSON LENGTH "X: 1\r\n \r\n\r\n" BODY),
		S("the last line", POST HOST JSON LENGTH "X: 1\r\n \r\n" BODY "\r\n\r\n"),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, lines_end_with_cr_lf_only)
{
	static const struct sample all[] = {
		S("LF", "POST /detokenize HTTP/1.1\r\n" HOST JSON "X: 1\nContent-Length: 13\r\n\r\n" BODY),
		S("LF, chunked", POST HOST JSON LENGTH "X: 1\nTransfer-Encoding: chunked\r\n\r\n" CHUNKS),
		S("LF behind the first line", "GET /health HTTP/1.1\nHost: x\r\n\r\n"),
		S("LF at the end", POST HOST JSON "Content-Length: 13\n\r\n" BODY),
		S("LF LF", POST HOST JSON "Content-Length: 13\n\n" BODY),
		S("LF alone as the last line", POST HOST JSON "Content-Length: 13\r\n\n" BODY),
		S("LF, no body", "GET /health HTTP/1.1\r\nHost: x\n\r\n"),
		S("CR in a value", POST HOST JSON "X: 1\rContent-Length: 13\r\n\r\n" BODY),
		S("CR CR LF", POST HOST JSON "Content-Length: 13\r\r\n\r\n" BODY),
		S("a NUL in a value", POST HOST JSON LENGTH "X: a\0b\r\n\r\n" BODY),
		S("a NUL in the last value", POST HOST JSON LENGTH "X: a\0b\r\n\r\n" BODY),
		S("a NUL, and no blanks",
		  POST "Host:x\r\nX:a\0b\r\nContent-Type:application/json\r\n" LENGTH "\r\n" BODY),
		S("DEL in a value", POST HOST JSON LENGTH "X: a\x7f\r\n\r\n" BODY),
		S("ESC in a value", POST HOST JSON LENGTH "X: \x1b[2J\r\n\r\n" BODY),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, one_host_is_named)
{
	static const struct sample all[] = {
		S("two", "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
		S("the same twice", "GET /health HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"),
		S("two on HTTP/1.0",
		  "GET /health HTTP/1.0\r\nHost: x\r\nHost: y\r\nConnection: keep-alive\r\n\r\n"),
		S("none", "GET /health HTTP/1.1\r\n\r\n"),
		S("a list", "GET /health HTTP/1.1\r\nHost: x, y\r\n\r\n"),
		S("a path", "GET /health HTTP/1.1\r\nHost: x/y\r\n\r\n"),
		S("a user", "GET /health HTTP/1.1\r\nHost: a@x\r\n\r\n"),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

Test(http_framing, first_lines_have_one_reading)
{
	static const struct sample all[] = {
		S("two blanks", "GET  /health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("two blanks before the version", "GET /health  HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a method with a colon", "GET: /health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a method with a tab", "GET\t/x /health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a tab in the target", "GET /health\t HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a CR in the target", "GET /health\rX HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a CR in the query", "GET /health?a=b\rX HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a NUL in the target", "GET /health\0x HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a NUL in the query", "GET /health?a\0x HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("DEL in the target", "GET /health\x7f HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a target that is not ASCII", "GET /health\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("an absolute target without a host", "GET http:///health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("an absolute target with a port alone",
		  "GET http://:80/health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("an absolute target with a user", "GET http://u@x/health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("an escape in the host", "GET http://a%2fhealth HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("a backslash in the host", "GET http://a\\health HTTP/1.1\r\nHost: x\r\n\r\n"),
		S("HTTP/1.2", "GET /health HTTP/1.2\r\nHost: x\r\n\r\n"),
	};
	start();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct answer a = send_two(&all[i], false);
		/* libmicrohttpd closes the connection without a reply for some of these. */
		cr_expect(a.status == 400 || a.status == 0, "%s: %s", all[i].name, a.raw.p);
		cr_expect(count_good(&a) == 0, "%s lets a second request through", all[i].name);
		answer_fini(&a);
	}
}

/* This holds wherever a proxy sees the end of the chunks. */
Test(http_framing, nothing_behind_chunks_is_a_request)
{
	static const struct sample all[] = {
		S("chunks", POST HOST JSON CHUNKED "\r\n" CHUNKS),
		S("an extension", POST HOST JSON CHUNKED "\r\nd;a=b\r\n" BODY "\r\n0\r\n\r\n"),
		S("an extension that ends with LF", POST HOST JSON CHUNKED "\r\nd;\n" BODY "\r\n0\r\n\r\n"),
		S("LF", POST HOST JSON CHUNKED "\r\nd\n" BODY "\n0\n\n"),
		S("a trailer", POST HOST JSON CHUNKED "\r\nd\r\n" BODY "\r\n0\r\nX: 1\r\n\r\n"),
		S("a trailer with LF", POST HOST JSON CHUNKED "\r\nd\r\n" BODY "\r\n0\r\nX: 1\n\r\n"),
		S("a NUL in the trailer", POST HOST JSON CHUNKED "\r\nd\r\n" BODY "\r\n0\r\nX: 1\0\r\n\r\n"),
		S("a trailer with a length",
		  POST HOST JSON CHUNKED "\r\nd\r\n" BODY "\r\n0\r\nContent-Length: 3\r\n\r\n"),
	};
	expect_refused(all, sizeof all / sizeof *all, 200);
}

Test(http_framing, chunks_are_framed_or_refused)
{
	static const struct sample all[] = {
		S("no size", POST HOST JSON CHUNKED "\r\n\r\n" BODY "\r\n0\r\n\r\n"),
		S("0x", POST HOST JSON CHUNKED "\r\n0xd\r\n" BODY "\r\n0\r\n\r\n"),
		S("plus", POST HOST JSON CHUNKED "\r\n+d\r\n" BODY "\r\n0\r\n\r\n"),
		S("a blank", POST HOST JSON CHUNKED "\r\n d\r\n" BODY "\r\n0\r\n\r\n"),
		S("a word", POST HOST JSON CHUNKED "\r\nmany\r\n" BODY "\r\n0\r\n\r\n"),
		S("no end", POST HOST JSON CHUNKED "\r\nd\r\n" BODY "0\r\n\r\n"),
	};
	expect_refused(all, sizeof all / sizeof *all, 400);
}

/* Valid requests are read, and so is a second request on the same connection. */
Test(http_framing, requests_of_clients_are_answered)
{
	static const struct sample all[] = {
		S("curl", POST HOST "User-Agent: curl/7.88.1\r\nAccept: */*\r\n" JSON LENGTH "\r\n" BODY),
		S("no blank",
		  POST "Host:x\r\nContent-Type:application/json\r\nContent-Length:13\r\n\r\n" BODY),
		S("blanks", POST "Host: \t x\r\n" JSON "Content-Length:   13\r\n\r\n" BODY),
		S("small letters",
		  POST "host: x\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n" BODY),
		S("a blank at the end", POST HOST JSON LENGTH "X: a b \r\n\r\n" BODY),
		S("an empty value", POST HOST JSON LENGTH "X:\r\nY: \r\n\r\n" BODY),
		S("UTF-8", POST HOST JSON LENGTH "X-Title: Caf\xc3\xa9\r\n\r\n" BODY),
		S("all that a token may have", POST HOST JSON LENGTH "!#$%&'*+-.^_`|~09azAZ: 1\r\n\r\n" BODY),
		S("leading zeros", POST HOST JSON "Content-Length: 0013\r\n\r\n" BODY),
		S("a port", POST "Host: example.org:8080\r\n" JSON LENGTH "\r\n" BODY),
		S("IPv6", POST "Host: [::1]:8080\r\n" JSON LENGTH "\r\n" BODY),
		S("an empty Host", POST "Host:\r\n" JSON LENGTH "\r\n" BODY),
		S("cookies", POST HOST "Cookie: a=1; b=\"2\"; c\r\n" JSON LENGTH "\r\n" BODY),
		S("twice the same", POST HOST "Accept: a\r\nAccept: b\r\n" JSON LENGTH "\r\n" BODY),
		S("an empty line first", "\r\n" POST HOST JSON LENGTH "\r\n" BODY),
		S("a query", "GET /health?a=%41&b=+c&d HTTP/1.1\r\n" HOST "\r\n"),
		S("escapes", "GET /%68ealth HTTP/1.1\r\n" HOST "\r\n"),
		S("blanks at ends",
		  POST "Host: x \r\nContent-Type: application/json\t\r\nConnection: keep-alive \r\n" LENGTH
		       "\r\n" BODY),
		S("an absolute target", "GET http://x/health HTTP/1.1\r\n" HOST "\r\n"),
		S("an absolute target of any scheme and port",
		  "GET HTTPS://example.org:8080/%68ealth?a=1 HTTP/1.1\r\n" HOST "\r\n"),
		S("an absolute target of IPv6", "GET http://[::1]:80//health/ HTTP/1.1\r\n" HOST "\r\n"),
		S("an absolute target with a body",
		  "POST http://x/detokenize HTTP/1.1\r\n" HOST JSON LENGTH "\r\n" BODY),
		S("an absolute target below a prefix",
		  "GET http://x/v1/models/org/stories HTTP/1.1\r\n" HOST "\r\n"),
		S("several slashes before and in a prefix",
		  "GET //v1//models//org/stories HTTP/1.1\r\n" HOST "\r\n"),
		S("an absolute target without a path", "GET http://x HTTP/1.1\r\n" HOST "\r\n"),
		S("an absolute target with a query alone", "GET http://x?a=1 HTTP/1.1\r\n" HOST "\r\n"),
		S("a length of 0", "GET /health HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"),
		S("HTTP/1.0", "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
		S("HTTP/1.0 with a body",
		  "POST /detokenize HTTP/1.0\r\nConnection: keep-alive\r\n" JSON LENGTH "\r\n" BODY),
	};
	start();
	for (size_t i = 0; i < 2 * sizeof all / sizeof *all; i++) {
		struct answer a = send_two(&all[i / 2], i % 2);
		cr_expect(a.status == 200, "%s: %s", all[i / 2].name, a.raw.p ? a.raw.p : "no reply");
		cr_expect(a.raw.p && strstr(a.raw.p, "\"object\":\"model\""), "%s: one reply only: %s",
			  all[i / 2].name, a.raw.p ? a.raw.p : "");
		answer_fini(&a);
	}
}

/* The host of an absolute target replaces that of the Host header (RFC 9112, 3.2.2). */
Test(http_framing, a_page_is_the_services_own_by_the_host_of_the_target)
{
	static const struct {
		const char *target, *origin;
		int status;
	} all[] = {
		{"http://x:80/detokenize", "http://x:80", 200},
		{"http://x:80/detokenize", "http://other", 403},
		{"http://other/detokenize", "http://x", 403},
		{"/detokenize", "http://other", 200},
	};
	start();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct buf b = {0};
		buf_printf(
			&b,
			"POST %s HTTP/1.1\r\nHost: other\r\nOrigin: %s\r\nConnection: close\r\n" JSON LENGTH
			"\r\n" BODY,
			all[i].target, all[i].origin);
		struct answer a = client_raw(at, b.p, b.len);
		cr_expect_eq(a.status, all[i].status, "%s from %s: %d", all[i].target, all[i].origin,
			     a.status);
		answer_fini(&a);
		buf_fini(&b);
	}
}

/* Such heads need more than one of libmicrohttpd's buffers. */
Test(http_framing, long_heads_are_read)
{
	start();
	for (size_t n = 100; n <= 12800; n *= 2) {
		struct buf b = {0};
		buf_puts(&b, POST HOST JSON LENGTH);
		for (size_t i = 0; i < n; i += 100)
			buf_printf(&b, "X-%04zu: %091zu\r\n", i, i);
		buf_puts(&b, "\r\n" BODY);
		struct sample s = {"long", b.p, b.len};
		struct answer a = send_two(&s, false);
		cr_expect(a.status == 200 && strstr(a.raw.p, "\"object\":\"model\""), "%zu bytes: %s", n,
			  a.raw.p);
		answer_fini(&a);
		buf_fini(&b);
	}
}
