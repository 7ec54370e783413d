/* The job socket over real sockets: the front end, an engine that is made up, DEALER clients. */
#include "base/file.h"
#include "base/json.h"
#include "controller/front.h"
#include "proto/mp.h"
#include "tests/demo_service.h"
#include "tests/wire/fake_engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAIT_MS = 50000 }; /* a loaded machine is slow, not wrong; less than a test may take */

static struct demo demo;
static void *zmq;
static struct front *front;
static struct fake_engine engine;

static void start_at(const char *endpoint)
{
	struct front_config cfg = {0};
	char why[256];
	demo_open(&demo);
	zmq = zmq_ctx_new();
	snprintf(cfg.jobs, sizeof cfg.jobs, "%s", endpoint);
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, why, sizeof why), 0, "%s", why);
	fake_start(&engine, zmq);
	front_connect(front);
}

static void start(void)
{
	start_at("tcp://127.0.0.1:*");
}

static void stop(void)
{
	front_stop(front);
	fake_stop(&engine);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

TestSuite(jobsock, .init = start, .fini = stop, .timeout = 60);

/* --- a client --- */

struct client {
	void *zmq; /* of its own: it goes away whole */
	void *socket;
};

static void client_open_as(struct client *c, int type)
{
	int linger = 0;
	c->zmq = zmq_ctx_new();
	c->socket = zmq_socket(c->zmq, type);
	zmq_setsockopt(c->socket, ZMQ_LINGER, &linger, sizeof linger);
	cr_assert_eq(zmq_connect(c->socket, front_jobs_endpoint(front)), 0);
}

static void client_open(struct client *c)
{
	client_open_as(c, ZMQ_DEALER);
}

static void client_close(struct client *c)
{
	zmq_close(c->socket);
	zmq_ctx_term(c->zmq);
}

/* JSON text with ' for ", as msgpack. */
static void say(struct client *c, const char *text)
{
	json_t *v;
	char why[256], *quoted = xstrdup(text);
	struct buf b = {0};
	for (char *p = quoted; *p; p++)
		if (*p == '\'')
			*p = '"';
	cr_assert_eq(json_parse(quoted, strlen(quoted), &v, why, sizeof why), 0, "%s: %s", text, why);
	mp_encode(&b, v);
	cr_assert_geq(zmq_send(c->socket, b.p, b.len, 0), 0);
	json_decref(v);
	buf_fini(&b);
	free(quoted);
}

static json_t *hear_within(struct client *c, int ms)
{
	zmq_pollitem_t item = {.socket = c->socket, .events = ZMQ_POLLIN};
	struct mp_limits limits = mp_limits_reply();
	zmq_msg_t m;
	json_t *v = NULL;
	char why[256] = "";
	if (zmq_poll(&item, 1, ms) <= 0)
		return NULL;
	zmq_msg_init(&m);
	cr_assert_geq(zmq_msg_recv(&m, c->socket, 0), 0);
	cr_assert_not(zmq_msg_more(&m));
	cr_assert_eq(mp_decode(zmq_msg_data(&m), zmq_msg_size(&m), &limits, &v, why, sizeof why), 0, "%s",
		     why);
	zmq_msg_close(&m);
	return v;
}

static json_t *hear(struct client *c)
{
	json_t *v = hear_within(c, WAIT_MS);
	cr_assert(v, "no reply");
	return v;
}

static const char *str(const json_t *v, const char *key)
{
	const char *s = json_string_value(json_object_get(v, key));
	return s ? s : "";
}

static long num(const json_t *v, const char *key)
{
	return (long)json_integer_value(json_object_get(v, key));
}

/* The next reply has this op; the caller's. */
static json_t *expect(struct client *c, const char *op)
{
	json_t *v = hear(c);
	char *all = json_dumps(v, 0);
	cr_assert_str_eq(str(v, "op"), op, "%s", all);
	free(all);
	return v;
}

static void expect_error(struct client *c, const char *code, const char *words)
{
	json_t *v = expect(c, "error");
	cr_expect_str_eq(str(v, "code"), code, "%s", str(v, "message"));
	cr_expect(strstr(str(v, "message"), words), "\"%s\" does not say \"%s\"", str(v, "message"), words);
	json_decref(v);
}

static void expect_pong(struct client *c)
{
	say(c, "{'op': 'ping', 'id': 'still there?'}");
	json_t *v = expect(c, "ok");
	cr_expect_str_eq(str(v, "id"), "still there?");
	json_decref(v);
}

/* Everything up to done: the joined text and number of tokens of output 0. */
static json_t *expect_stream(struct client *c, struct buf *text, size_t *n)
{
	*n = 0;
	for (;;) {
		json_t *v = hear(c);
		if (strcmp(str(v, "op"), "delta") != 0) {
			cr_assert_str_eq(str(v, "op"), "done", "%s", str(v, "message"));
			return v;
		}
		if (num(v, "index") == 0) {
			cr_expect_eq(num(v, "offset"), (long)*n);
			buf_puts(text, str(v, "text"));
			*n += json_array_size(json_object_get(v, "tokens"));
		}
		json_decref(v);
	}
}

static const json_t *output(const json_t *done, size_t i)
{
	return json_array_get(json_object_get(done, "outputs"), i);
}

static bool eventually(bool (*holds)(void))
{
	int64_t until = clock_us() + WAIT_MS * 1000LL;
	while (!holds()) {
		if (clock_us() > until)
			return false;
		usleep(2000);
	}
	return true;
}

static bool engine_is_idle(void)
{
	return atomic_load(&engine.n_live) == 0;
}

/* --- the conversation --- */

Test(jobsock, a_job_streams_from_accepted_to_done)
{
	struct client c;
	struct buf text = {0};
	size_t n;
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 5, 'prompt': 'Once', 'stream': true, 'params': {'max_tokens': 50}}");
	json_t *v = expect(&c, "accepted");
	cr_expect_eq(num(v, "id"), 5);
	cr_expect_eq(strlen(str(v, "job")), 32);
	cr_expect_gt(num(v, "prompt_tokens"), 0);
	json_decref(v);
	v = expect_stream(&c, &text, &n);
	cr_expect_eq(n, 50);
	cr_expect_str_eq(str(output(v, 0), "text"), text.p);
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "length");
	cr_expect_eq(num(json_object_get(v, "usage"), "completion_tokens"), 50);
	cr_expect_eq(num(json_object_get(v, "timing"), "total_us"), 3);
	json_decref(v);
	buf_fini(&text);
	client_close(&c);
}

Test(jobsock, without_stream_accepted_is_followed_by_done)
{
	struct client c;
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 'a', 'tokens': [5, 6], 'params': {'max_tokens': 5, 'n': 3, "
		"'logprobs': 0}}");
	json_decref(expect(&c, "accepted"));
	json_t *v = expect(&c, "done");
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(num(output(v, i), "index"), (long)i);
		cr_expect_eq(json_array_size(json_object_get(output(v, i), "tokens")), 5);
		cr_expect_eq(json_array_size(json_object_get(output(v, i), "logprobs")), 5);
		cr_expect_float_eq(json_real_value(json_object_get(output(v, i), "cumulative_logprob")),
				   -1.25, 1e-6);
	}
	cr_expect_eq(num(json_object_get(v, "usage"), "completion_tokens"), 15);
	json_decref(v);
	client_close(&c);
}

Test(jobsock, a_stop_string_stops_the_engine_and_cuts_the_text)
{
	struct client c;
	struct buf text = {0};
	size_t n;
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'params': {'max_tokens': 30}}");
	json_decref(expect(&c, "accepted"));
	json_t *whole = expect(&c, "done");
	const char *full = str(output(whole, 0), "text");
	size_t at = strlen(full) / 2;
	while (((unsigned char)full[at] & 0xc0) == 0x80)
		at++;
	json_t *request = json_pack("{s:s, s:i, s:[i], s:b, s:{s:s, s:i}}", "op", "submit", "id", 2, "tokens",
				    5, "stream", 1, "params", "stop", full + at, "max_tokens", 2000);
	struct buf b = {0};
	mp_encode(&b, request);
	zmq_send(c.socket, b.p, b.len, 0);
	json_decref(expect(&c, "accepted"));
	json_t *v = expect_stream(&c, &text, &n);
	cr_expect_eq(strncmp(full, text.p, at), 0);
	cr_expect_eq(text.len, at);
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "stop");
	cr_expect_str_eq(str(output(v, 0), "stop_reason"), full + at);
	cr_expect_eq(num(json_object_get(v, "usage"), "completion_tokens"), (long)n);
	cr_expect_eq(atomic_load(&engine.n_stopped), 1);
	json_decref(request);
	json_decref(whole);
	json_decref(v);
	buf_fini(&b);
	buf_fini(&text);
	client_close(&c);
}

Test(jobsock, a_req_socket_and_a_delimiter_are_answered_in_kind)
{
	struct client c, d;
	client_open_as(&c, ZMQ_REQ);
	say(&c, "{'op': 'ping', 'id': 4}");
	json_decref(expect(&c, "ok"));
	client_close(&c);
	client_open(&d);
	zmq_send(d.socket, "", 0, ZMQ_SNDMORE);
	say(&d, "{'op': 'ping', 'id': 1}");
	char frame[8];
	cr_assert_eq(zmq_recv(d.socket, frame, sizeof frame, 0), 0);
	json_decref(expect(&d, "ok"));
	client_close(&d);
}

Test(jobsock, ids_come_back_as_they_were_sent)
{
	/* the largest unsigned integer; a string of 64 bytes */
	static const char big[] = "\x82\xa2op\xa4ping\xa2id\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
	struct client c;
	char reply[512];
	client_open(&c);
	zmq_send(c.socket, big, sizeof big - 1, 0);
	int n = zmq_recv(c.socket, reply, sizeof reply, 0);
	cr_assert(memmem(reply, (size_t)n, "\xa2id\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 12));
	say(&c, "{'op': 'ping', 'id': '0123456789012345678901234567890123456789012345678901234567890123'}");
	json_t *v = expect(&c, "ok");
	cr_expect_eq(strlen(str(v, "id")), 64);
	json_decref(v);
	say(&c, "{'op': 'ping', 'id': '01234567890123456789012345678901234567890123456789012345678901234'}");
	expect_error(&c, "E_BAD_REQUEST", "id");
	say(&c, "{'op': 'ping', 'id': -1}");
	expect_error(&c, "E_BAD_REQUEST", "id");
	say(&c, "{'op': 'ping'}");
	expect_error(&c, "E_BAD_REQUEST", "id is missing");
	client_close(&c);
}

Test(jobsock, cancel_ends_the_job_with_abort)
{
	struct client c;
	char text[256];
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_t *v = expect(&c, "accepted");
	snprintf(text, sizeof text, "{'op': 'cancel', 'id': 2, 'job': '%s'}", str(v, "job"));
	say(&c, text);
	json_decref(v);
	json_t *ok = expect(&c, "ok");
	cr_expect_eq(num(ok, "id"), 2);
	json_decref(ok);
	v = expect(&c, "done");
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "abort");
	json_decref(v);
	client_close(&c);
}

Test(jobsock, attach_and_result_from_another_connection)
{
	struct client c, d;
	struct buf text = {0};
	char ask[256];
	size_t n;
	client_open(&c);
	client_open(&d);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'params': {'max_tokens': 200}}");
	json_t *v = expect(&c, "accepted");
	snprintf(ask, sizeof ask, "{'op': 'result', 'id': 9, 'job': '%s'}", str(v, "job"));
	say(&d, ask);
	expect_error(&d, "E_NOT_READY", "not ended");
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 3, 'job': '%s'}", str(v, "job"));
	say(&d, ask);
	json_t *e = expect_stream(&d, &text, &n);
	cr_expect_eq(n, 200);
	cr_expect_str_eq(text.p, str(output(e, 0), "text"));
	json_decref(e);
	json_decref(expect(&c, "done"));
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 4, 'job': '%s', 'from': [199]}", str(v, "job"));
	say(&d, ask);
	e = expect(&d, "delta");
	cr_expect_eq(num(e, "offset"), 199);
	json_decref(e);
	json_decref(expect(&d, "done"));
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 4, 'job': '%s', 'from': [0, 0]}", str(v, "job"));
	say(&d, ask);
	expect_error(&d, "E_BAD_REQUEST", "the job has 1 outputs");
	snprintf(ask, sizeof ask, "{'op': 'result', 'id': 9, 'job': '%s'}", str(v, "job"));
	say(&d, ask);
	e = expect(&d, "done");
	cr_expect_eq(num(e, "id"), 9);
	json_decref(e);
	json_decref(v);
	say(&d, "{'op': 'result', 'id': 1, 'job': '0123456789abcdef0123456789abcdef'}");
	expect_error(&d, "E_NO_SUCH_JOB", "no such job");
	buf_fini(&text);
	client_close(&c);
	client_close(&d);
}

Test(jobsock, errors_of_the_engine_are_passed_on)
{
	struct client c;
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [8]}");
	expect_error(&c, "E_OVERLOADED", "queued already");
	say(&c, "{'op': 'submit', 'id': 2, 'tokens': [9]}");
	json_decref(expect(&c, "accepted"));
	expect_error(&c, "E_WORKER_LOST", "no worker");
	client_close(&c);
}

Test(jobsock, tables_and_tokens)
{
	struct client c;
	client_open(&c);
	say(&c, "{'op': 'status', 'id': 1}");
	json_t *v = expect(&c, "ok");
	cr_expect_eq(num(v, "max_context"), 2048);
	cr_expect(json_is_true(json_object_get(v, "ready")));
	json_decref(v);
	say(&c, "{'op': 'workers', 'id': 1}");
	v = expect(&c, "ok");
	cr_expect_str_eq(str(json_array_get(json_object_get(v, "workers"), 0), "device"), "cpu");
	json_decref(v);
	say(&c, "{'op': 'jobs', 'id': 1}");
	v = expect(&c, "ok");
	cr_expect(json_is_array(json_object_get(v, "jobs")));
	json_decref(v);
	say(&c, "{'op': 'tokenize', 'id': 1, 'text': 'Once upon a time'}");
	v = expect(&c, "ok");
	json_t *request = json_pack("{s:s, s:i, s:O}", "op", "detokenize", "id", 2, "tokens",
				    json_object_get(v, "tokens"));
	struct buf b = {0};
	mp_encode(&b, request);
	zmq_send(c.socket, b.p, b.len, 0);
	json_decref(v);
	v = expect(&c, "ok");
	cr_expect_str_eq(str(v, "text"), "Once upon a time");
	json_decref(v);
	json_decref(request);
	buf_fini(&b);
	client_close(&c);
}

Test(jobsock, a_status_that_the_engine_does_not_give_is_an_error)
{
	struct client c;
	client_open(&c);
	atomic_store(&engine.silent, true);
	say(&c, "{'op': 'status', 'id': 1}");
	expect_error(&c, "E_NOT_READY", "does not answer");
	client_close(&c);
}

Test(jobsock, orders_reach_the_engine_and_its_word_comes_back)
{
	struct client c;
	client_open(&c);
	say(&c, "{'op': 'drain', 'id': 1, 'worker': 7}");
	json_decref(expect(&c, "ok"));
	say(&c, "{'op': 'scale', 'id': 1, 'replicas': 4, 'devices': ['cpu'], 'timeout_s': 5}");
	expect_error(&c, "E_NOT_READY", "replicas 4 devices 1 worker 0 wait 5000000");
	client_close(&c);
}

Test(jobsock, orders_are_checked)
{
	static const char *const bad[][2] = {
		{"{'op': 'scale', 'id': 1, 'replicas': -1}", "replicas"},
		{"{'op': 'scale', 'id': 1, 'replicas': 2, 'devices': []}", "devices"},
		{"{'op': 'scale', 'id': 1, 'replicas': 2, 'devices': ['cpu', 7]}", "devices[1]"},
		{"{'op': 'drain', 'id': 1, 'worker': 0}", "worker"},
	};
	struct client c;
	client_open(&c);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		say(&c, bad[i][0]);
		expect_error(&c, "E_BAD_REQUEST", bad[i][1]);
	}
	client_close(&c);
}

/* --- bad input --- */

Test(jobsock, bytes_that_are_no_request_get_an_error_and_the_service_goes_on)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *words;
	} bad[] = {
#define BAD(bytes, words) {bytes, sizeof(bytes) - 1, words}
		BAD("", "ends"),
		BAD("\xc1", "0xc1"),
		BAD("hello", "msgpack"),
		BAD("\xdd\xff\xff\xff\xff", "4294967295 elements"),
		BAD("\x82\xa2id\x01\xa6tokens\xdd\xff\xff\xff\xff", "4294967295 elements"),
		BAD("\x81\xa2op\xc7\x01\x05x", "extension"),
		BAD("\x82\xa2op\xa6submit\xa2id", "ends"),
		BAD("\x93\x01\x02\x03", "map"),
		BAD("\x83\xa2op\xa6submit\xa2id\x01\xa6prompt\xa2\xff\xfe", "UTF-8"),
		BAD("\x82\xa2op\x05\xa2id\x01", "op must be a string"),
		BAD("\x82\xa2op\xa3"
		    "fly\xa2id\x01",
		    "unknown op fly"),
		BAD("\x82\xa2op\xa5scale\xa2id\x01", "replicas must be an integer from 0 to 1024"),
		BAD("\x83\xa2op\xa4ping\xa2id\x01\xa1x\x05", "unknown key x"),
#undef BAD
	};
	struct client c;
	client_open(&c);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		zmq_send(c.socket, bad[i].bytes, bad[i].n, 0);
		expect_error(&c, "E_BAD_REQUEST", bad[i].words);
	}
	char deep[5000];
	memset(deep, 0x91, sizeof deep);
	zmq_send(c.socket, deep, sizeof deep, 0);
	expect_error(&c, "E_BAD_REQUEST", "deep");
	expect_pong(&c);
	client_close(&c);
}

Test(jobsock, frames_that_are_too_many_are_refused)
{
	struct client c;
	client_open(&c);
	zmq_send(c.socket, "\xc0", 1, ZMQ_SNDMORE);
	zmq_send(c.socket, "\xc0", 1, 0);
	expect_error(&c, "E_BAD_REQUEST", "one frame");
	zmq_send(c.socket, "", 0, ZMQ_SNDMORE);
	for (int i = 0; i < 50; i++)
		zmq_send(c.socket, "x", 1, ZMQ_SNDMORE);
	zmq_send(c.socket, "", 0, 0);
	char frame[8];
	cr_assert_eq(zmq_recv(c.socket, frame, sizeof frame, 0), 0);
	expect_error(&c, "E_BAD_REQUEST", "one frame");
	expect_pong(&c);
	client_close(&c);
}

/* A submit whose prompt has n bytes. */
static void send_prompt(struct client *c, size_t n)
{
	struct buf b = {0};
	char *prompt = malloc(n);
	memset(prompt, 'a', n);
	json_t *v = json_pack("{s:s, s:i, s:s%}", "op", "submit", "id", 77, "prompt", prompt, n);
	mp_encode(&b, v);
	json_decref(v);
	zmq_send(c->socket, b.p, b.len, 0);
	free(prompt);
	buf_fini(&b);
}

Test(jobsock, prompts_that_are_too_large_are_refused_by_size)
{
	struct client c;
	client_open(&c);
	send_prompt(&c, 20 << 20);
	json_t *v = expect(&c, "error");
	cr_expect_str_eq(str(v, "code"), "E_TOO_LONG");
	cr_expect_eq(num(v, "id"), 77);
	json_decref(v);
	send_prompt(&c, 15 << 20);
	expect_error(&c, "E_TOO_LONG", "context of 2048 tokens");
	send_prompt(&c, 20000);
	expect_error(&c, "E_TOO_LONG", "");
	expect_pong(&c);
	client_close(&c);
}

Test(jobsock, a_frame_beyond_all_limits_costs_its_sender_the_connection_only)
{
	struct client c, d;
	client_open(&c);
	client_open(&d);
	expect_pong(&d);
	send_prompt(&c, 40 << 20);
	expect_pong(&d);
	client_close(&c);
	client_close(&d);
}

Test(jobsock, a_large_request_is_parsed_beside_the_streams)
{
	struct client c;
	struct buf b = {0};
	client_open(&c);
	/* Special tokens are long in bytes and short in tokens: a prompt of 20 kB that fits. */
	mp_put_map(&b, 4);
	mp_put_cstr(&b, "op");
	mp_put_cstr(&b, "submit");
	mp_put_cstr(&b, "id");
	mp_put_uint(&b, 1);
	mp_put_cstr(&b, "params");
	mp_put_map(&b, 1);
	mp_put_cstr(&b, "max_tokens");
	mp_put_uint(&b, 3);
	mp_put_cstr(&b, "prompt");
	struct buf prompt = {0};
	while (prompt.len < 20000)
		buf_puts(&prompt, "<|endoftext|>");
	mp_put_str(&b, prompt.p, prompt.len);
	for (int i = 0; i < 20; i++)
		zmq_send(c.socket, b.p, b.len, 0);
	for (int done = 0; done < 20;) {
		json_t *v = hear(&c);
		cr_assert_neq(strcmp(str(v, "op"), "error"), 0, "%s", str(v, "message"));
		done += strcmp(str(v, "op"), "done") == 0;
		json_decref(v);
	}
	buf_fini(&b);
	buf_fini(&prompt);
	client_close(&c);
}

Test(jobsock, strangers_who_do_not_speak_zeromq_do_no_harm)
{
	static const char *const talk[] = {"GET / HTTP/1.1\r\n\r\n",
					   "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x03", "",
					   "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"};
	int port = atoi(strrchr(front_jobs_endpoint(front), ':') + 1);
	struct client c;
	client_open(&c);
	for (int i = 0; i < 40; i++) {
		struct sockaddr_in a = {.sin_family = AF_INET,
					.sin_port = htons((uint16_t)port),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		cr_assert_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
		cr_assert_geq(write(fd, talk[i % 4], strlen(talk[i % 4])), 0);
		close(fd);
	}
	expect_pong(&c);
	client_close(&c);
}

/* --- clients that go, or do not read --- */

Test(jobsock, a_client_that_goes_takes_its_jobs_along)
{
	struct client c;
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	say(&c, "{'op': 'submit', 'id': 2, 'tokens': [5], 'stream': true, 'params': {'n': 8}}");
	json_decref(expect(&c, "accepted"));
	json_decref(hear(&c));
	client_close(&c);
	cr_expect(eventually(engine_is_idle));
	cr_expect_eq(atomic_load(&engine.n_submitted), 2);
}

Test(jobsock, a_kept_job_stays_without_its_client)
{
	struct client c, d;
	char ask[256];
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'on_disconnect': 'keep', 'params': {'max_tokens': "
		"300}}");
	json_t *v = expect(&c, "accepted");
	client_close(&c);
	client_open(&d);
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 1, 'job': '%s', 'from': 290}", str(v, "job"));
	json_decref(v);
	say(&d, ask);
	do {
		v = hear(&d);
		if (strcmp(str(v, "op"), "done") == 0)
			break;
		json_decref(v);
	} while (true);
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "length");
	json_decref(v);
	cr_expect_eq(atomic_load(&engine.n_cancelled), 0);
	client_close(&d);
}

static bool four_submitted(void)
{
	return atomic_load(&engine.n_submitted) >= 4;
}

Test(jobsock, clients_that_come_and_go_quickly_leave_nothing)
{
	for (int i = 0; i < 50; i++) {
		struct client c;
		int linger = 200;
		client_open(&c);
		zmq_setsockopt(c.socket, ZMQ_LINGER, &linger, sizeof linger);
		say(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
		if (i % 3 == 0)
			json_decref(expect(&c, "accepted"));
		client_close(&c);
	}
	cr_expect(eventually(four_submitted));
	struct client d;
	client_open(&d);
	expect_pong(&d);
	cr_expect(eventually(engine_is_idle));
	client_close(&d);
}

Test(jobsock, a_client_that_does_not_read_loses_its_stream_and_nobody_elses)
{
	struct client c, d;
	int one = 1;
	client_open(&d);
	/* Its own buffers are small, and it never reads. */
	c.zmq = zmq_ctx_new();
	c.socket = zmq_socket(c.zmq, ZMQ_DEALER);
	zmq_setsockopt(c.socket, ZMQ_RCVHWM, &one, sizeof one);
	int small = 4096, zero = 0;
	zmq_setsockopt(c.socket, ZMQ_RCVBUF, &small, sizeof small);
	zmq_setsockopt(c.socket, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_connect(c.socket, front_jobs_endpoint(front)), 0);
	for (int i = 0; i < 20; i++)
		say(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'stream': true, 'params': {'n': 64, "
			"'logprobs': 0}}");
	for (int i = 0; i < 5; i++) {
		struct buf text = {0};
		size_t n;
		say(&d,
		    "{'op': 'submit', 'id': 2, 'tokens': [5], 'stream': true, 'params': {'max_tokens': 10}}");
		json_decref(expect(&d, "accepted"));
		json_decref(expect_stream(&d, &text, &n));
		cr_expect_eq(n, 10);
		buf_fini(&text);
	}
	cr_expect(eventually(engine_is_idle));
	client_close(&c);
	expect_pong(&d);
	client_close(&d);
}

Test(jobsock, many_clients_at_once)
{
	enum { N = 200 };
	static struct client c[N];
	for (int i = 0; i < N; i++) {
		client_open(&c[i]);
		say(&c[i],
		    "{'op': 'submit', 'id': 1, 'tokens': [5], 'stream': true, 'params': {'max_tokens': 20}}");
	}
	for (int i = 0; i < N; i++) {
		struct buf text = {0};
		size_t n;
		json_decref(expect(&c[i], "accepted"));
		json_decref(expect_stream(&c[i], &text, &n));
		cr_expect_eq(n, 20);
		buf_fini(&text);
		client_close(&c[i]);
	}
}

/* --- the front end's other door, and its end --- */

struct ear {
	atomic_int accepted, tokens, done, errors, gone;
};

static void on_event(void *user, const struct job_event *e)
{
	struct ear *ear = user;
	atomic_fetch_add(&ear->accepted, e->kind == JOB_ACCEPTED);
	atomic_fetch_add(&ear->done, e->kind == JOB_DONE);
	atomic_fetch_add(&ear->errors, e->kind == JOB_ERROR);
	if (e->kind == JOB_DELTA)
		atomic_fetch_add(&ear->tokens, (int)e->delta.n_tokens);
}

static void on_gone(void *user)
{
	atomic_fetch_add(&((struct ear *)user)->gone, 1);
}

static struct submit *small_submit(uint32_t token, uint32_t max)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = max;
	s->tokens = xcalloc(1, sizeof *s->tokens);
	s->tokens[0] = token;
	s->n_tokens = 1;
	s->stream = s->skip_special = true;
	return s;
}

struct submitter {
	struct ear *ears;
	int n;
};

static void *submit_many(void *arg)
{
	struct submitter *t = arg;
	for (int i = 0; i < t->n; i++) {
		struct listener l = {on_event, on_gone, &t->ears[i], front_listener_id(front)};
		struct submit *s = small_submit(i % 10 == 9 ? FAKE_HANGS : 5, 5);
		front_submit(front, &s, &l);
		if (i % 10 == 9)
			front_unlisten(front, l.id);
	}
	return NULL;
}

Test(jobsock, threads_submit_and_leave_at_once)
{
	enum { THREADS = 4, EACH = 250 };
	static struct ear ears[THREADS][EACH];
	struct submitter t[THREADS];
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		t[i] = (struct submitter){ears[i], EACH};
		pthread_create(&threads[i], NULL, submit_many, &t[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < EACH; k++) {
			struct ear *e = &ears[i][k];
			int64_t until = clock_us() + WAIT_MS * 1000LL;
			while (!atomic_load(&e->gone) && clock_us() < until)
				usleep(1000);
			cr_expect_eq(atomic_load(&e->gone), 1);
			if (k % 10 == 9)
				continue;
			cr_expect_eq(atomic_load(&e->accepted), 1);
			cr_expect_eq(atomic_load(&e->done), 1);
			cr_expect_eq(atomic_load(&e->tokens), 5);
		}
	cr_expect(eventually(engine_is_idle));
}

static bool is_ready(void)
{
	return front_ready(front);
}

Test(jobsock, readiness_is_the_engines)
{
	cr_expect(eventually(is_ready));
	cr_expect_eq(front_max_context(front), 2048);
}

/* Their own start and stop. */

Test(jobsock_life, the_end_tells_everyone, .timeout = 60)
{
	struct client c;
	static struct ear ear;
	start();
	client_open(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_decref(expect(&c, "accepted"));
	struct listener l = {on_event, on_gone, &ear, front_listener_id(front)};
	struct submit *s = small_submit(FAKE_HANGS, 5);
	front_submit(front, &s, &l);
	while (!atomic_load(&ear.accepted))
		usleep(1000);
	front_stop(front);
	json_t *v = expect(&c, "done");
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "abort");
	json_decref(v);
	cr_expect_eq(atomic_load(&ear.done), 1);
	cr_expect_eq(atomic_load(&ear.gone), 1);
	client_close(&c);
	fake_stop(&engine);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

Test(jobsock_life, others_than_this_machine_are_not_served_unless_told, .timeout = 60)
{
	struct front_config cfg = {.jobs = "tcp://0.0.0.0:*"};
	char why[256];
	demo_open(&demo);
	zmq = zmq_ctx_new();
	cr_expect_eq(front_start(zmq, &demo.svc, &cfg, &front, why, sizeof why), -EPERM);
	cr_expect(strstr(why, "--insecure"), "%s", why);
	cfg.insecure = true;
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, why, sizeof why), 0, "%s", why);
	front_stop(front);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

Test(jobsock_life, an_endpoint_in_use_is_named, .timeout = 60)
{
	struct front_config cfg = {0};
	struct front *other;
	char why[256];
	start();
	snprintf(cfg.jobs, sizeof cfg.jobs, "%s", front_jobs_endpoint(front));
	void *zmq2 = zmq_ctx_new();
	cr_expect_eq(front_start(zmq2, &demo.svc, &cfg, &other, why, sizeof why), -EADDRINUSE);
	cr_expect(strstr(why, cfg.jobs), "%s", why);
	zmq_ctx_term(zmq2);
	stop();
}

Test(jobsock_life, a_unix_socket_is_for_its_owner_alone, .timeout = 60)
{
	struct client c;
	struct stat st;
	char path[64], endpoint[80];
	snprintf(path, sizeof path, "/tmp/quern-jobs-%d", getpid());
	snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
	start_at(endpoint);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 077, 0);
	client_open(&c);
	expect_pong(&c);
	say(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_decref(expect(&c, "accepted"));
	client_close(&c);
	cr_expect(eventually(engine_is_idle));
	stop();
	unlink(path);
}
