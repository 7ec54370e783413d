/* The job socket over real sockets: requests, replies and malformed input. */
#include "tests/wire/jobsock_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

TestSuite(jobsock, .init = start, .fini = stop, .timeout = 60);

/* --- requests and replies --- */

Test(jobsock, job_streams_from_accepted_to_done)
{
	struct client c;
	struct buf text = {0};
	size_t n;
	client_open(&c);
	client_send_json(
		&c,
		"{'op': 'submit', 'id': 5, 'prompt': 'Once', 'stream': true, 'params': {'max_tokens': 50}}");
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
	client_send_json(&c,
			 "{'op': 'submit', 'id': 'a', 'tokens': [5, 6], 'params': {'max_tokens': 5, 'n': 3, "
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

Test(jobsock, stop_string_ends_the_output_and_truncates_the_text)
{
	struct client c;
	struct buf text = {0};
	size_t n;
	client_open(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'params': {'max_tokens': 30}}");
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

Test(jobsock, delimiter_frame_is_repeated_in_the_reply)
{
	struct client c, d;
	client_open_as(&c, ZMQ_REQ);
	client_send_json(&c, "{'op': 'ping', 'id': 4}");
	json_decref(expect(&c, "ok"));
	client_close(&c);
	client_open(&d);
	zmq_send(d.socket, "", 0, ZMQ_SNDMORE);
	client_send_json(&d, "{'op': 'ping', 'id': 1}");
	char frame[8];
	cr_assert_eq(zmq_recv(d.socket, frame, sizeof frame, 0), 0);
	json_decref(expect(&d, "ok"));
	client_close(&d);
}

Test(jobsock, ids_are_returned_as_sent)
{
	/* the largest unsigned integer as id, and a string of 64 bytes */
	static const char big[] = "\x82\xa2op\xa4ping\xa2id\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
	struct client c;
	char reply[512];
	client_open(&c);
	zmq_send(c.socket, big, sizeof big - 1, 0);
	int n = zmq_recv(c.socket, reply, sizeof reply, 0);
	cr_assert(memmem(reply, (size_t)n, "\xa2id\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 12));
	client_send_json(
		&c,
		"{'op': 'ping', 'id': '0123456789012345678901234567890123456789012345678901234567890123'}");
	json_t *v = expect(&c, "ok");
	cr_expect_eq(strlen(str(v, "id")), 64);
	json_decref(v);
	client_send_json(
		&c,
		"{'op': 'ping', 'id': '01234567890123456789012345678901234567890123456789012345678901234'}");
	expect_error(&c, "E_BAD_REQUEST", "id");
	client_send_json(&c, "{'op': 'ping', 'id': -1}");
	expect_error(&c, "E_BAD_REQUEST", "id");
	client_send_json(&c, "{'op': 'ping'}");
	expect_error(&c, "E_BAD_REQUEST", "id is missing");
	client_close(&c);
}

Test(jobsock, cancel_ends_the_job_with_abort)
{
	struct client c;
	char text[256];
	client_open(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_t *v = expect(&c, "accepted");
	snprintf(text, sizeof text, "{'op': 'cancel', 'id': 2, 'job': '%s'}", str(v, "job"));
	client_send_json(&c, text);
	json_decref(v);
	json_t *ok = expect(&c, "ok");
	cr_expect_eq(num(ok, "id"), 2);
	json_decref(ok);
	v = expect(&c, "done");
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "abort");
	json_decref(v);
	client_close(&c);
}

Test(jobsock, attach_and_result_work_from_another_connection)
{
	struct client c, d;
	struct buf text = {0};
	char ask[256];
	size_t n;
	client_open(&c);
	client_open(&d);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'params': {'max_tokens': 200}}");
	json_t *v = expect(&c, "accepted");
	snprintf(ask, sizeof ask, "{'op': 'result', 'id': 9, 'job': '%s'}", str(v, "job"));
	client_send_json(&d, ask);
	expect_error(&d, "E_NOT_READY", "not ended");
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 3, 'job': '%s'}", str(v, "job"));
	client_send_json(&d, ask);
	json_t *e = expect_stream(&d, &text, &n);
	cr_expect_eq(n, 200);
	cr_expect_str_eq(text.p, str(output(e, 0), "text"));
	json_decref(e);
	json_decref(expect(&c, "done"));
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 4, 'job': '%s', 'from': [199]}", str(v, "job"));
	client_send_json(&d, ask);
	e = expect(&d, "delta");
	cr_expect_eq(num(e, "offset"), 199);
	json_decref(e);
	json_decref(expect(&d, "done"));
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 4, 'job': '%s', 'from': [0, 0]}", str(v, "job"));
	client_send_json(&d, ask);
	expect_error(&d, "E_BAD_REQUEST", "the job has 1 outputs");
	snprintf(ask, sizeof ask, "{'op': 'result', 'id': 9, 'job': '%s'}", str(v, "job"));
	client_send_json(&d, ask);
	e = expect(&d, "done");
	cr_expect_eq(num(e, "id"), 9);
	json_decref(e);
	json_decref(v);
	client_send_json(&d, "{'op': 'result', 'id': 1, 'job': '0123456789abcdef0123456789abcdef'}");
	expect_error(&d, "E_NO_SUCH_JOB", "no such job");
	buf_fini(&text);
	client_close(&c);
	client_close(&d);
}

Test(jobsock, engine_errors_reach_the_client)
{
	struct client c;
	client_open(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [8]}");
	expect_error(&c, "E_OVERLOADED", "queued already");
	client_send_json(&c, "{'op': 'submit', 'id': 2, 'tokens': [9]}");
	json_decref(expect(&c, "accepted"));
	expect_error(&c, "E_WORKER_LOST", "no worker");
	client_close(&c);
}

Test(jobsock, status_workers_jobs_and_tokenizing_are_answered)
{
	struct client c;
	client_open(&c);
	client_send_json(&c, "{'op': 'status', 'id': 1}");
	json_t *v = expect(&c, "ok");
	cr_expect_eq(num(v, "max_context"), 2048);
	cr_expect(json_is_true(json_object_get(v, "ready")));
	json_decref(v);
	client_send_json(&c, "{'op': 'workers', 'id': 1}");
	v = expect(&c, "ok");
	cr_expect_str_eq(str(json_array_get(json_object_get(v, "workers"), 0), "device"), "cpu");
	json_decref(v);
	client_send_json(&c, "{'op': 'jobs', 'id': 1}");
	v = expect(&c, "ok");
	cr_expect(json_is_array(json_object_get(v, "jobs")));
	json_decref(v);
	client_send_json(&c, "{'op': 'tokenize', 'id': 1, 'text': 'Once upon a time'}");
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

Test(jobsock, status_without_an_answer_of_the_engine_is_an_error)
{
	struct client c;
	client_open(&c);
	atomic_store(&engine.silent, true);
	client_send_json(&c, "{'op': 'status', 'id': 1}");
	expect_error(&c, "E_NOT_READY", "does not answer");
	client_close(&c);
}

Test(jobsock, orders_reach_the_engine_and_their_outcome_comes_back)
{
	struct client c;
	client_open(&c);
	client_send_json(&c, "{'op': 'drain', 'id': 1, 'worker': 7}");
	json_decref(expect(&c, "ok"));
	client_send_json(&c, "{'op': 'scale', 'id': 1, 'replicas': 4, 'devices': ['cpu'], 'timeout_s': 5}");
	expect_error(&c, "E_NOT_READY", "replicas 4 devices 1 worker 0 wait 5000000");
	client_close(&c);
}

Test(jobsock, invalid_orders_are_refused)
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
		client_send_json(&c, bad[i][0]);
		expect_error(&c, "E_BAD_REQUEST", bad[i][1]);
	}
	client_close(&c);
}

/* --- bad input --- */

Test(jobsock, malformed_requests_get_an_error)
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
		BAD("\x83\xa2op\xa4ping\xa2id\x01\xa1x\x05", "unknown field x"),
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

Test(jobsock, excess_frames_are_refused)
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

/* Submit a prompt of n bytes. */
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

Test(jobsock, too_large_prompts_are_refused_by_size)
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

Test(jobsock, oversized_frame_disconnects_only_its_sender)
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

Test(jobsock, large_requests_are_parsed_on_a_thread_of_their_own)
{
	struct client c;
	struct buf b = {0};
	client_open(&c);
	/* A special token has many bytes, so this prompt of 20 kB is short enough in tokens. */
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
		json_t *v = client_receive(&c);
		cr_assert_neq(strcmp(str(v, "op"), "error"), 0, "%s", str(v, "message"));
		done += strcmp(str(v, "op"), "done") == 0;
		json_decref(v);
	}
	buf_fini(&b);
	buf_fini(&prompt);
	client_close(&c);
}

Test(jobsock, connections_of_other_protocols_do_no_harm)
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
