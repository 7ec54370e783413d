/* Behaviour common to all APIs: keys and their limits, ownership of jobs, a full queue, shutdown, and failed
 * jobs. Each error has the API's own shape, as a whole reply and within a stream. */
#include "tests/wire/http_rig.h"

TestSuite(http_apis, .timeout = 60, .fini = stop);

#define KEY "sk-alice-0123456789"

/* --- error shapes --- */

static bool is_openai(const json_t *o)
{
	const json_t *e = json_object_get(o, "error");
	return json_object_size(o) == 1 && json_object_size(e) == 4 && *text_of(e, "message") &&
	       *text_of(e, "type");
}

static bool is_anthropic(const json_t *o)
{
	const json_t *e = json_object_get(o, "error");
	return json_object_size(o) == 3 && !strcmp(text_of(o, "type"), "error") &&
	       *text_of(o, "request_id") && json_object_size(e) == 2 && *text_of(e, "message") &&
	       *text_of(e, "type");
}

static bool is_ollama(const json_t *o)
{
	return json_object_size(o) == 1 && *text_of(o, "error");
}

static bool is_llamacpp(const json_t *o)
{
	const json_t *e = json_object_get(o, "error");
	return json_object_size(o) == 1 && json_object_size(e) == 3 && *text_of(e, "message") &&
	       *text_of(e, "type") && json_integer_value(json_object_get(e, "code")) >= 400;
}

/* For Responses, the last event of a stream contains the response. */
static bool is_failed(const json_t *o)
{
	const json_t *r = json_object_get(o, "response"), *e = json_object_get(r, "error");
	return !strcmp(text_of(r, "status"), "failed") && *text_of(e, "code") && *text_of(e, "message");
}

/* --- the APIs --- */

#define TALK "\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}]"

/* All paths that create jobs. body: an accepted request, without its closing brace; it streams with "stream":
 * true, which Ollama's do by default. last: start of the error event within a stream. */
static const struct api {
	const char *path, *body;
	bool (*is_error)(const json_t *);
	const char *last; /* NULL: no streaming */
} apis[] = {
	{"/v1/chat/completions", "{" TALK ",\"max_tokens\":4", is_openai, "data: "},
	{"/chat/completions", "{" TALK ",\"max_tokens\":4", is_openai, "data: "},
	{"/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":4", is_openai, "data: "},
	{"/v1/responses", "{\"input\":\"Once upon\",\"max_output_tokens\":4", is_openai,
	 "event: response.failed\ndata: "},
	{"/responses", "{\"input\":\"Once upon\",\"max_output_tokens\":4", is_openai,
	 "event: response.failed\ndata: "},
	{"/v1/messages", "{" TALK ",\"max_tokens\":4", is_anthropic, "event: error\ndata: "},
	{"/api/chat", "{\"model\":\"stories\"," TALK ",\"options\":{\"num_predict\":4}", is_ollama, ""},
	{"/api/generate", "{\"model\":\"stories\",\"prompt\":\"Once upon\",\"options\":{\"num_predict\":4}",
	 is_ollama, ""},
	{"/completion", "{\"prompt\":\"Once upon\",\"n_predict\":4", is_llamacpp, "error: "},
	{"/completions", "{\"prompt\":\"Once upon\",\"n_predict\":4", is_llamacpp, "error: "},
	/* The demo's vocabulary does not support infill, which is detected after the request was admitted. */
	{"/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"n_predict\":4", is_llamacpp, NULL},
	{"/v1/embeddings", "{\"input\":\"Once upon\"", is_openai, NULL},
	{"/api/embed", "{\"model\":\"stories\",\"input\":\"Once upon\"", is_ollama, NULL},
	{"/api/embeddings", "{\"model\":\"stories\",\"prompt\":\"Once upon\"", is_ollama, NULL},
	{"/embedding", "{\"content\":\"Once upon\"", is_llamacpp, NULL},
	{"/embeddings", "{\"content\":\"Once upon\"", is_llamacpp, NULL},
	{"/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]", is_openai, NULL},
	{"/v2/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]", is_openai, NULL},
	{"/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]", is_openai, NULL},
	{"/v1/reranking", "{\"query\":\"a\",\"documents\":[\"b\"]", is_openai, NULL},
	{"/reranking", "{\"query\":\"a\",\"documents\":[\"b\"]", is_openai, NULL},
	{"/v1/score", "{\"text_1\":\"a\",\"text_2\":\"b\"", is_openai, NULL},
	{"/score", "{\"text_1\":\"a\",\"text_2\":\"b\"", is_openai, NULL},
};
enum { N_APIS = sizeof apis / sizeof *apis };

static bool generates(const struct api *api)
{
	return api->last != NULL;
}

static void put_request(struct buf *b, const struct api *api, const char *more)
{
	const size_t n = strlen(api->body) + strlen(more) + 1;
	buf_printf(b,
		   "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " KEY "\r\n"
		   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s%s}",
		   api->path, n, api->body, more);
}

#define WHOLE  ",\"stream\":false"
#define STREAM ",\"stream\":true"

static struct answer ask(const struct api *api, const char *more)
{
	struct buf b = {0};
	put_request(&b, api, generates(api) ? more : "");
	struct answer a = client_raw(at, b.p, b.len);
	buf_fini(&b);
	return a;
}

static void start_with_key(const char *fields)
{
	struct http_config cfg = {.addr = "127.0.0.1:0", .api_keys = "/tmp/quern-keys-XXXXXX"};
	int fd = mkstemp(cfg.api_keys);
	cr_assert(fd >= 0 && dprintf(fd, KEY " %s\n", fields) > 0);
	close(fd);
	load();
	start_with(&cfg);
	unlink(cfg.api_keys);
}

/* Expects an error in the API's shape with this status; frees the answer. */
static void refused(const struct api *api, struct answer a, int status)
{
	cr_expect(a.status == status, "%s: %d instead of %d: %s", api->path, a.status, status, a.raw.p);
	cr_expect(api->is_error(a.json), "%s: %s", api->path, a.raw.p);
	if (status == 429 || status == 503)
		cr_expect(answer_header(&a, "Retry-After") != NULL, "%s: %s", api->path, a.raw.p);
	answer_fini(&a);
}

/* --- tests --- */

Test(http_apis, every_path_that_becomes_jobs_is_here)
{
	size_t n;
	const struct http_route *routes = endpoints_routes(&n);
	for (size_t i = 0; i < n; i++) {
		bool found = !(routes[i].flags & ROUTE_QUEUED);
		for (size_t k = 0; k < N_APIS; k++)
			found = found || !strcmp(apis[k].path, routes[i].path);
		cr_expect(found, "%s", routes[i].path);
	}
}

/* The limit is checked before the request is encoded, so an invalid request is also refused for the limit. */
Test(http_apis, the_places_of_a_key_are_those_of_all_apis_together)
{
	start_with_key("name=alice max-jobs=1");
	fake_stall(mailbox, true);
	struct buf b = {0};
	int fd = client_connect(at);
	put_request(&b, &apis[0], "");
	client_send(fd, b.p, b.len);
	cr_assert(becomes(&mailbox->n_submitted, 1));
	for (size_t i = 0; i < N_APIS; i++) {
		/* The demo's vocabulary cannot rank, so no job is submitted. */
		if (strstr(apis[i].path, "rank") || strstr(apis[i].path, "score"))
			continue;
		refused(&apis[i], ask(&apis[i], WHOLE), 429);
		if (generates(&apis[i]))
			refused(&apis[i], ask(&apis[i], STREAM), 429);
	}
	cr_expect(atomic_load(&mailbox->n_submitted) == 1);
	fake_stall(mailbox, false);
	struct answer a = client_answer(fd);
	cr_expect(a.status == 200, "%s", a.raw.p);
	answer_fini(&a);
	buf_fini(&b);
}

Test(http_apis, a_job_is_the_key_s_whichever_api_asked_for_it)
{
	start_with_key("name=alice share=3 priority=7");
	for (size_t i = 0; i < N_APIS; i++) {
		if (!generates(&apis[i]))
			continue;
		const unsigned n = atomic_load(&mailbox->n_submitted);
		struct answer a = ask(&apis[i], WHOLE);
		cr_expect(a.status == 200, "%s: %s", apis[i].path, a.raw.p);
		answer_fini(&a);
		cr_assert(atomic_load(&mailbox->n_submitted) == n + 1 && n < FAKE_SEEN);
		const struct fake_seen *seen = &mailbox->seen[n];
		cr_expect_str_eq(seen->owner, "~alice", "%s", apis[i].path);
		cr_expect_str_eq(seen->salt, "alice/", "%s", apis[i].path);
		cr_expect(seen->share == 3 && seen->priority == 7 && !seen->durable, "%s", apis[i].path);
	}
}

Test(http_apis, a_full_queue_refuses_each)
{
	static struct engine_load full;
	start_with_key("name=alice");
	svc.load = &full;
	svc.max_queued_jobs = 10;
	svc.max_queued_tokens = 1000;
	atomic_store(&full.n_queued, 10);
	for (size_t i = 0; i < N_APIS; i++)
		refused(&apis[i], ask(&apis[i], WHOLE), 429);
	cr_expect(atomic_load(&mailbox->n_submitted) == 0);
	svc.load = NULL;
}

Test(http_apis, a_service_that_ends_refuses_each)
{
	start_with_key("name=alice");
	http_drain(http);
	for (size_t i = 0; i < N_APIS; i++) {
		struct answer a = ask(&apis[i], WHOLE);
		cr_expect_str_eq(answer_header(&a, "Connection"), "close", "%s", apis[i].path);
		refused(&apis[i], a, 503);
	}
}

Test(http_apis, a_job_that_fails_is_an_error_of_each)
{
	static const struct {
		const char *how;
		int status;
	} ways[] = {{"refuse", 429}, {"deadline", 504}, {"lost", 503}};
	start_with_key("name=alice");
	for (size_t k = 0; k < 3; k++) {
		atomic_store(&fake_all, ways[k].how);
		for (size_t i = 0; i < N_APIS; i++)
			if (generates(&apis[i]))
				refused(&apis[i], ask(&apis[i], WHOLE), ways[k].status);
	}
	atomic_store(&fake_all, NULL);
}

/* Expects that the last event or line is the error in the API's shape, and that the chunked coding is
 * complete. */
static void expect_last(const struct api *api, const struct answer *a)
{
	static const char done[] = "data: [DONE]\n\n";
	const char *separator = api->is_error == is_ollama ? "\n" : "\n\n";
	const size_t n = strlen(api->last);
	const bool response = api->last[0] == 'e' && api->is_error == is_openai;
	char *text = xstrdup(a->body.p ? a->body.p : ""), *block = text, *next;
	size_t k = strlen(text);
	if (api->is_error == is_openai && !response) {
		cr_assert(k > sizeof done && !strcmp(text + k - (sizeof done - 1), done), "%s", a->raw.p);
		text[k -= sizeof done - 1] = 0;
	}
	cr_assert(k > 2 && !strcmp(text + k - strlen(separator), separator), "%s: %s", api->path, a->raw.p);
	text[k - strlen(separator)] = 0;
	while ((next = strstr(block, separator)))
		block = next + strlen(separator);
	cr_assert(!strncmp(block, api->last, n), "%s: %s", api->path, a->raw.p);
	json_t *o = json_loads(block + n, 0, NULL);
	cr_expect(response ? is_failed(o) : api->is_error(o), "%s: %s", api->path, a->raw.p);
	cr_expect_str_eq(a->raw.p + a->raw.len - 5, "0\r\n\r\n", "%s", api->path);
	json_decref(o);
	free(text);
}

Test(http_apis, a_job_that_fails_ends_each_stream_with_an_error)
{
	start_with_key("name=alice");
	atomic_store(&fake_all, "lost");
	for (size_t i = 0; i < N_APIS; i++) {
		if (!generates(&apis[i]))
			continue;
		struct answer a = ask(&apis[i], STREAM);
		cr_expect(a.status == 200, "%s", a.raw.p);
		expect_last(&apis[i], &a);
		answer_fini(&a);
	}
	atomic_store(&fake_all, NULL);
}

/* Waiting requests get 503, open streams a final event. */
Test(http_apis, a_server_that_stops_answers_each)
{
	int fd[N_APIS][2] = {{0}};
	unsigned n = 0;
	struct buf b = {0};
	start_with_key("name=alice");
	atomic_store(&fake_all, "begin");
	for (size_t i = 0; i < N_APIS; i++)
		for (int streams = 0; streams < 2 && generates(&apis[i]); streams++) {
			buf_clear(&b);
			put_request(&b, &apis[i], streams ? STREAM : WHOLE);
			fd[i][streams] = client_connect(at);
			client_send(fd[i][streams], b.p, b.len);
			n++;
		}
	cr_assert(becomes(&mailbox->n_begun, n));
	http_stop(http);
	for (size_t i = 0; i < N_APIS; i++) {
		if (!generates(&apis[i]))
			continue;
		refused(&apis[i], client_answer(fd[i][0]), 503);
		struct answer a = client_answer(fd[i][1]);
		expect_last(&apis[i], &a);
		answer_fini(&a);
	}
	cr_expect(becomes(&mailbox->n_live, 0));
	buf_fini(&b);
	fake_stop(mailbox);
	unload();
	http = NULL; /* stop() then does nothing */
}
