/* The reply of each path of the HTTP server. */
#include "tests/wire/http_rig.h"

TestSuite(http, .timeout = 60, .fini = stop);

Test(http, health_is_ok_only_when_a_replica_can_serve)
{
	start();
	struct answer a = client_ask(at, "GET", "/health", NULL);
	cr_expect(a.status == 200);
	cr_expect_str_eq(text_of(a.json, "status"), "ok");
	answer_fini(&a);
	atomic_store(&mailbox->ready, false);
	a = client_ask(at, "GET", "/health", NULL);
	cr_expect_not_null(answer_header(&a, "Retry-After"));
	cr_expect(strstr(a.body.p, "no replica can serve now: 1 worker loads"), "%s", a.body.p);
	expect_error(a, 503, "not_ready", NULL);
	expect_error(client_ask(at, "GET", "/ready", NULL), 503, "not_ready", NULL);
}

Test(http, the_process_is_alive_while_its_loops_turn)
{
	static struct engine_load load;
	svc.load = &load;
	start();
	atomic_store(&mailbox->ready, false);
	struct answer a = client_ask(at, "GET", "/livez", NULL);
	cr_expect(a.status == 200);
	answer_fini(&a);
	expect_error(client_ask(at, "GET", "/readyz", NULL), 503, "not_ready", NULL);
	atomic_store(&load.loop_us, clock_us() - 90 * 1000000LL);
	expect_error(client_ask(at, "GET", "/livez", NULL), 503, "not_alive", NULL);
	atomic_store(&load.loop_us, clock_us());
	fake_loop_us = clock_us() - 90 * 1000000LL;
	expect_error(client_ask(at, "GET", "/livez", NULL), 503, "not_alive", NULL);
	fake_loop_us = 0;
}

/* The server waits until replies are read, but not for the live stream, which never ends. */
Test(http, a_service_that_drains_takes_no_new_work)
{
	char head[256];
	start();
	int live = client_connect(at), held = client_connect(at);
	static const char watch[] = "GET /api/live HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char body[] = "{\"prompt\":\"One\",\"user\":\"hang\",\"max_tokens\":4}";
	cr_assert(write(live, watch, sizeof watch - 1) > 0 && read(live, head, 12) == 12);
	snprintf(head, sizeof head,
		 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 sizeof body - 1, body);
	cr_assert(write(held, head, strlen(head)) > 0);
	while (http_n_draining(http) != 1)
		usleep(1000);
	http_drain(http);
	struct answer a = post("/v1/completions", "{\"prompt\":\"One\",\"max_tokens\":4}");
	cr_expect_not_null(answer_header(&a, "Retry-After"));
	cr_expect_str_eq(answer_header(&a, "Connection"), "close");
	expect_error(a, 503, "service_stopping", NULL);
	expect_error(post("/tokenize", "{\"prompt\":\"One\"}"), 503, "service_stopping", NULL);
	a = client_ask(at, "GET", "/v1/models", NULL);
	cr_expect_eq(a.status, 200);
	answer_fini(&a);
	cr_expect_eq(http_n_draining(http), 1);
	close(held);
	while (http_n_draining(http))
		usleep(1000);
	close(live);
}

Test(http, metrics_are_prometheus_text)
{
	start();
	struct answer a = client_ask(at, "GET", "/metrics", NULL);
	cr_expect(a.status == 200, "%s", a.raw.p);
	cr_expect_str_eq(answer_header(&a, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
	cr_expect_not_null(strstr(a.body.p, "\nquern:ready{model_name=\"org/stories\"} 1\n"), "%s", a.raw.p);
	answer_fini(&a);
	expect_error(post("/metrics", "{}"), 405, "method_not_allowed", NULL);
}

Test(http, head_has_no_body)
{
	start();
	struct answer a = client_ask(at, "HEAD", "/health", NULL);
	cr_expect(a.status == 200 && a.body.len == 0);
	answer_fini(&a);
}

Test(http, models_and_version)
{
	start();
	struct answer a = client_ask(at, "GET", "/v1/models", NULL);
	const json_t *m = json_array_get(json_object_get(a.json, "data"), 0);
	cr_expect_str_eq(text_of(m, "id"), "org/stories");
	cr_expect_str_eq(text_of(m, "object"), "model");
	cr_expect(json_integer_value(json_object_get(m, "created")) == 1700000000);
	answer_fini(&a);
	a = client_ask(at, "GET", "/v1/models/org/stories", NULL);
	cr_expect_str_eq(text_of(a.json, "id"), "org/stories");
	answer_fini(&a);
	expect_error(client_ask(at, "GET", "/v1/models/gpt-9", NULL), 404, "model_not_found", "model");
	a = client_ask(at, "GET", "/version", NULL);
	cr_expect(*text_of(a.json, "version"));
	answer_fini(&a);
}

Test(http, unknown_paths_wrong_methods_and_paths_not_built)
{
	start();
	expect_error(client_ask(at, "GET", "/nothing", NULL), 404, "not_found", NULL);
	expect_error(client_ask(at, "GET", "/v1/completions/x", NULL), 404, "not_found", NULL);
	struct answer a = client_ask(at, "GET", "/v1/completions", NULL);
	cr_expect_str_eq(answer_header(&a, "Allow"), "POST");
	expect_error(a, 405, "method_not_allowed", NULL);
	expect_error(client_ask(at, "DELETE", "/health", NULL), 405, "method_not_allowed", NULL);
	expect_error(client_ask(at, "BREW", "/health", NULL), 405, "method_not_allowed", NULL);
	expect_error(client_ask(at, "GET", "/v1/batches", NULL), 501, "not_implemented", NULL);
	expect_error(client_ask(at, "GET", "/v1/batches/b1", NULL), 501, "not_implemented", NULL);
}

Test(http, embeddings_and_scores_are_checked_before_they_are_jobs)
{
	static const char *const paths[] = {"/v1/embeddings", "/v1/rerank", "/v2/rerank",
					    "/rerank",        "/v1/score",  "/score"};
	start();
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		const char *field = i == 0 ? "input" : i < 4 ? "query" : "text_1";
		expect_error(post(paths[i], "{}"), 400, NULL, field);
		expect_error(post(paths[i], "[]"), 400, NULL, NULL);
		expect_error(post(paths[i], "{\"model\": \"other\"}"), 404, "model_not_found", "model");
	}
}

Test(http, completion_has_openais_shape)
{
	start();
	struct answer a =
		post("/v1/completions",
		     "{\"model\":\"org/stories\",\"prompt\":\"Once upon a time\",\"max_tokens\":4}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	cr_expect(!strncmp(text_of(a.json, "id"), "cmpl-", 5));
	cr_expect_str_eq(text_of(a.json, "object"), "text_completion");
	cr_expect_str_eq(text_of(a.json, "model"), "org/stories");
	const json_t *c = choice(a.json, 0), *u = json_object_get(a.json, "usage");
	cr_expect_str_eq(text_of(c, "finish_reason"), "length");
	cr_expect(json_is_null(json_object_get(c, "logprobs")));
	cr_expect(*text_of(c, "text"));
	cr_expect(json_integer_value(json_object_get(u, "completion_tokens")) == 4);
	json_int_t p = json_integer_value(json_object_get(u, "prompt_tokens"));
	cr_expect(p > 1 && json_integer_value(json_object_get(u, "total_tokens")) == p + 4);
	cr_expect(json_integer_value(json_object_get(json_object_get(u, "prompt_tokens_details"),
						     "cached_tokens")) == 1);
	answer_fini(&a);
	/* The last part of the model's name is enough, and OpenAI's default is 16 tokens. */
	a = post("/v1/completions", "{\"model\":\"stories\",\"prompt\":\"Once\"}");
	u = json_object_get(a.json, "usage");
	cr_expect(json_integer_value(json_object_get(u, "completion_tokens")) == 16, "%s", a.raw.p);
	answer_fini(&a);
}

Test(http, several_prompts_are_numbered_prompt_times_n)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":[\"Once\",\"Twice upon\",\"Thrice\"],\"n\":2,\"max_tokens\":2}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	cr_expect(json_array_size(json_object_get(a.json, "choices")) == 6);
	for (size_t i = 0; i < 6; i++)
		cr_expect(json_integer_value(json_object_get(choice(a.json, i), "index")) == (json_int_t)i);
	cr_expect_str_eq(text_of(choice(a.json, 2), "text"), text_of(choice(a.json, 3), "text"));
	cr_expect_str_neq(text_of(choice(a.json, 2), "text"), text_of(choice(a.json, 4), "text"));
	cr_expect(json_integer_value(
			  json_object_get(json_object_get(a.json, "usage"), "completion_tokens")) == 12);
	answer_fini(&a);
}

Test(http, prompts_may_be_token_ids)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":[1,300,301,302],\"max_tokens\":3,\"return_token_ids\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	json_t *ids = json_object_get(choice(a.json, 0), "token_ids");
	cr_expect(json_integer_value(json_array_get(ids, 0)) == 300 && json_array_size(ids) == 3);
	answer_fini(&a);
	a = post("/v1/completions", "{\"prompt\":[[1,300],[1,301]],\"max_tokens\":1}");
	cr_expect(json_array_size(json_object_get(a.json, "choices")) == 2, "%s", a.raw.p);
	answer_fini(&a);
	expect_error(post("/v1/completions", "{\"prompt\":[1,99999]}"), 400, NULL, "prompt");
	expect_error(post("/v1/completions", "{\"prompt\":[-1]}"), 400, NULL, "prompt");
	expect_error(post("/v1/completions", "{\"prompt\":[]}"), 400, NULL, "prompt");
	expect_error(post("/v1/completions", "{\"prompt\":[\"a\",1]}"), 400, NULL, "prompt");
}

Test(http, completion_logprobs_are_parallel_arrays)
{
	start();
	struct answer a =
		post("/v1/completions", "{\"prompt\":\"Once upon a time\",\"max_tokens\":3,\"logprobs\":2}");
	const json_t *l = json_object_get(choice(a.json, 0), "logprobs");
	cr_assert_not_null(l, "%s", a.raw.p);
	cr_expect(json_array_size(json_object_get(l, "tokens")) == 3);
	cr_expect(json_array_size(json_object_get(l, "token_logprobs")) == 3);
	cr_expect(json_array_size(json_object_get(l, "top_logprobs")) == 3);
	cr_expect(json_array_size(json_object_get(l, "text_offset")) == 3);
	const json_t *top = json_array_get(json_object_get(l, "top_logprobs"), 0);
	const char *first = json_string_value(json_array_get(json_object_get(l, "tokens"), 0));
	cr_expect(json_object_size(top) == 2, "%s", a.raw.p);
	cr_expect(json_real_value(json_object_get(top, first)) == -0.25, "%s", a.raw.p);
	cr_expect(json_integer_value(json_array_get(json_object_get(l, "text_offset"), 1)) ==
		  (json_int_t)strlen(first));
	answer_fini(&a);
}

Test(http, echo_puts_the_prompt_before_the_text_and_its_logprobs)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":\"Once upon\",\"max_tokens\":1,\"logprobs\":1,\"echo\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	const json_t *c = choice(a.json, 0), *l = json_object_get(c, "logprobs");
	cr_expect(!strncmp(text_of(c, "text"), "Once upon", 9) && strlen(text_of(c, "text")) > 9);
	size_t n = (size_t)json_integer_value(
		json_object_get(json_object_get(a.json, "usage"), "prompt_tokens"));
	cr_expect(json_array_size(json_object_get(l, "tokens")) == n + 1, "%s", a.raw.p);
	cr_expect(json_is_null(json_array_get(json_object_get(l, "token_logprobs"), 0)));
	cr_expect(json_is_real(json_array_get(json_object_get(l, "token_logprobs"), 1)));
	answer_fini(&a);
	a = post("/v1/completions",
		 "{\"prompt\":\"Once upon\",\"max_tokens\":1,\"stream\":true,\"echo\":true}");
	json_t *ev = events_of(&a);
	cr_expect_str_eq(text_of(choice(json_array_get(ev, 0), 0), "text"), "Once upon");
	json_decref(ev);
	answer_fini(&a);
	expect_error(
		post("/v1/completions", "{\"prompt\":\"Once\",\"logprobs\":1,\"echo\":true,\"stream\":true}"),
		400, NULL, "stream");
}

Test(http, a_prompt_alone_may_be_scored)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":\"Once upon\",\"max_tokens\":0,\"logprobs\":1,\"echo\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	const json_t *c = choice(a.json, 0), *u = json_object_get(a.json, "usage");
	cr_expect_str_eq(text_of(c, "text"), "Once upon");
	cr_expect_str_eq(text_of(c, "finish_reason"), "length");
	cr_expect(json_integer_value(json_object_get(u, "completion_tokens")) == 0);
	cr_expect(json_array_size(json_object_get(json_object_get(c, "logprobs"), "tokens")) ==
		  (size_t)json_integer_value(json_object_get(u, "prompt_tokens")));
	answer_fini(&a);
	expect_error(post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":0}"), 400, NULL,
		     "max_tokens");
	expect_error(post("/v1/completions",
			  "{\"prompt\":\"Once\",\"max_tokens\":0,\"echo\":true,\"stream\":true}"),
		     400, NULL, "max_tokens");
}

Test(http, a_streamed_completion_is_the_same_text)
{
	start();
	struct answer whole =
		post("/v1/completions", "{\"prompt\":\"Once upon a time\",\"max_tokens\":9,\"n\":2}");
	struct answer a = post("/v1/completions",
			       "{\"prompt\":\"Once upon a time\",\"max_tokens\":9,\"n\":2,\"stream\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	cr_expect(!strncmp(answer_header(&a, "Content-Type"), "text/event-stream", 17));
	json_t *ev = events_of(&a), *e;
	struct buf text[2] = {{0}};
	size_t i, n_finished = 0;
	json_array_foreach(ev, i, e)
	{
		const json_t *c = choice(e, 0);
		json_int_t index = json_integer_value(json_object_get(c, "index"));
		buf_puts(&text[index], text_of(c, "text"));
		n_finished += json_is_string(json_object_get(c, "finish_reason"));
		cr_expect_str_eq(text_of(e, "object"), "text_completion");
		cr_expect_null(json_object_get(e, "usage"));
	}
	cr_expect(n_finished == 2);
	for (i = 0; i < 2; i++) {
		cr_expect_str_eq(text[i].p, text_of(choice(whole.json, i), "text"));
		buf_fini(&text[i]);
	}
	json_decref(ev);
	answer_fini(&a);
	answer_fini(&whole);
}

Test(http, streamed_logprobs_have_running_offsets)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":\"Once upon\",\"max_tokens\":3,\"stream\":true,\"logprobs\":0}");
	json_t *ev = events_of(&a);
	json_int_t before = -1;
	for (size_t i = 0; i < 3; i++) {
		const json_t *l = json_object_get(choice(json_array_get(ev, i), 0), "logprobs");
		json_int_t o = json_integer_value(json_array_get(json_object_get(l, "text_offset"), 0));
		cr_expect(i ? o > before : o == 0, "%s", a.raw.p);
		before = o;
	}
	json_decref(ev);
	answer_fini(&a);
}

Test(http, chat_has_openais_shape)
{
	start();
	struct answer a = post("/v1/chat/completions",
			       "{" CHAT ",\"max_completion_tokens\":3,\"logprobs\":true,\"top_logprobs\":8}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	cr_expect(!strncmp(text_of(a.json, "id"), "chatcmpl-", 9));
	cr_expect_str_eq(text_of(a.json, "object"), "chat.completion");
	const json_t *c = choice(a.json, 0), *m = json_object_get(c, "message");
	cr_expect_str_eq(text_of(m, "role"), "assistant");
	cr_expect(json_is_null(json_object_get(m, "refusal")) &&
		  json_is_string(json_object_get(m, "content")));
	const json_t *l = json_object_get(json_object_get(c, "logprobs"), "content"),
		     *t = json_array_get(l, 0);
	cr_expect(json_array_size(l) == 3, "%s", a.raw.p);
	cr_expect(json_array_size(json_object_get(t, "top_logprobs")) == 8);
	cr_expect(json_is_array(json_object_get(t, "bytes")) && json_is_string(json_object_get(t, "token")));
	/* JSON has no infinity. */
	const json_t *last = json_array_get(json_object_get(t, "top_logprobs"), 7);
	cr_expect(json_number_value(json_object_get(last, "logprob")) == -9999.0);
	answer_fini(&a);
}

Test(http, a_chat_stream_begins_with_the_role_and_ends_with_usage)
{
	start();
	struct answer a = post("/v1/chat/completions", "{" CHAT ",\"max_tokens\":4,\"n\":2,\"stream\":true,"
						       "\"stream_options\":{\"include_usage\":true}}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	json_t *ev = events_of(&a);
	size_t n = json_array_size(ev);
	for (size_t i = 0; i < 2; i++) {
		const json_t *d = json_object_get(choice(json_array_get(ev, i), 0), "delta");
		cr_expect_str_eq(text_of(d, "role"), "assistant");
	}
	for (size_t i = 0; i + 1 < n; i++)
		cr_expect(json_is_null(json_object_get(json_array_get(ev, i), "usage")));
	const json_t *last = json_array_get(ev, n - 1);
	cr_expect(json_array_size(json_object_get(last, "choices")) == 0);
	cr_expect(json_integer_value(json_object_get(json_object_get(last, "usage"), "completion_tokens")) ==
		  8);
	cr_expect_str_eq(text_of(choice(json_array_get(ev, n - 2), 0), "finish_reason"), "length");
	json_decref(ev);
	answer_fini(&a);
}

Test(http, a_stop_string_is_named)
{
	start();
	struct answer a = post("/v1/completions",
			       "{\"prompt\":\"Once\",\"max_tokens\":2,\"stop\":[\"END\"],\"user\":\"stop\"}");
	cr_expect_str_eq(text_of(choice(a.json, 0), "finish_reason"), "stop", "%s", a.raw.p);
	cr_expect_str_eq(text_of(choice(a.json, 0), "stop_reason"), "END", "%s", a.raw.p);
	answer_fini(&a);
}

Test(http, tokenize_takes_messages)
{
	start();
	struct answer a = post("/tokenize", "{" CHAT "}");
	json_int_t n = json_integer_value(json_object_get(a.json, "count"));
	cr_expect(a.status == 200 && n > 3, "%s", a.raw.p);
	answer_fini(&a);
	struct answer b = post("/v1/chat/completions", "{" CHAT ",\"max_tokens\":1}");
	cr_expect(json_integer_value(json_object_get(json_object_get(b.json, "usage"), "prompt_tokens")) ==
		  n);
	answer_fini(&b);
}

Test(http, refusals_have_their_status)
{
	start();
	struct answer a = post("/v1/completions", "{\"prompt\":\"Once\",\"user\":\"refuse\"}");
	cr_expect_str_eq(answer_header(&a, "Retry-After"), "1");
	expect_error(a, 429, "overloaded", NULL);
	expect_error(post("/v1/completions", "{\"prompt\":\"Once\",\"user\":\"refuse\",\"stream\":true}"),
		     429, "overloaded", NULL);
	expect_error(post("/v1/completions", "{\"prompt\":[\"a\",\"b\",\"c\"],\"user\":\"refuse\"}"), 429,
		     "overloaded", NULL);
	expect_error(post("/v1/completions", "{\"prompt\":\"Once\",\"user\":\"deadline\"}"), 504,
		     "deadline_exceeded", NULL);
	expect_error(post("/v1/completions", "{\"prompt\":\"Once\",\"user\":\"lost\"}"), 503, "worker_lost",
		     NULL);
	cr_expect(becomes(&mailbox->n_live, 0));
}

Test(http, an_error_within_a_stream_is_an_event)
{
	start();
	struct answer a = post("/v1/completions", "{\"prompt\":\"Once\",\"user\":\"lost\",\"stream\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	json_t *ev = events_of(&a);
	const json_t *e = json_object_get(json_array_get(ev, json_array_size(ev) - 1), "error");
	cr_expect_str_eq(text_of(e, "code"), "worker_lost", "%s", a.raw.p);
	json_decref(ev);
	answer_fini(&a);
}

Test(http, unknown_fields_are_named_in_a_header_or_refused)
{
	start();
	struct answer a =
		post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":1,\"colour\":\"red\"}");
	cr_expect(a.status == 200);
	cr_expect_str_eq(answer_header(&a, "x-quern-ignored"), "colour", "%s", a.raw.p);
	answer_fini(&a);
	/* A field's name cannot forge a header. */
	a = post("/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":1,\"a\\r\\nX-Evil: 1\":1}");
	cr_expect(a.status == 200);
	cr_expect_null(answer_header(&a, "X-Evil"), "%s", a.raw.p);
	answer_fini(&a);
	svc.strict = true;
	expect_error(post("/v1/completions", "{\"prompt\":\"Once\",\"colour\":\"red\"}"), 400, NULL,
		     "colour");
	expect_error(post("/tokenize", "{\"prompt\":\"Once\",\"colour\":\"red\"}"), 400, NULL, "colour");
}

Test(http, tokenize_and_back)
{
	start();
	struct answer a = post("/tokenize", "{\"prompt\":\"Once upon a time\",\"return_token_strs\":true}");
	cr_assert(a.status == 200, "%s", a.raw.p);
	json_t *tokens = json_object_get(a.json, "tokens");
	cr_expect(json_array_size(tokens) == (size_t)json_integer_value(json_object_get(a.json, "count")));
	cr_expect(json_array_size(json_object_get(a.json, "token_strs")) == json_array_size(tokens));
	char *ids = json_dumps(tokens, 0), *body = xasprintf("{\"tokens\":%s}", ids);
	answer_fini(&a);
	a = post("/detokenize", body);
	cr_expect_str_eq(text_of(a.json, "prompt"), "Once upon a time", "%s", a.raw.p);
	answer_fini(&a);
	free(ids);
	free(body);
	expect_error(post("/tokenize", "{}"), 400, NULL, "prompt");
	expect_error(post("/detokenize", "{}"), 400, NULL, "tokens");
	expect_error(post("/detokenize", "{\"tokens\":[1664]}"), 400, NULL, "tokens");
}

Test(http, an_old_client_gets_a_stream_without_chunks)
{
	start();
	static const char body[] = "{\"prompt\":\"Once upon\",\"max_tokens\":3,\"stream\":true}";
	struct buf b = {0};
	buf_printf(&b,
		   "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: "
		   "%zu\r\n\r\n%s",
		   sizeof body - 1, body);
	struct answer a = client_raw(at, b.p, b.len);
	cr_expect(a.status == 200 && !answer_header(&a, "Transfer-Encoding"), "%s", a.raw.p);
	json_t *ev = events_of(&a);
	cr_expect(json_array_size(ev) == 3);
	json_decref(ev);
	answer_fini(&a);
	buf_fini(&b);
}
