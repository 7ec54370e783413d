#include "bench/loadgen.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/version.h"
#include "bench/sse.h"
#include "cli/terminal/term.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 256, PROGRESS_US = 200 * 1000, IDLE_US = 1000 * 1000 };
/* Maximum size of replies that are not streams: the JSON of load_call(), and the text of an error. */
enum { REPLY_MAX = 16 << 20, ERROR_BODY_MAX = 64 << 10 };
enum { CONNECT_TIMEOUT_MS = 30000, CALL_TIMEOUT_MS = 60000 };

/* A running request, with a curl handle that is reused. */
struct slot {
	struct run *run;
	CURL *easy;
	struct slot *next_free;
	struct load_request *request;
	struct buf body;  /* of the request */
	struct buf reply; /* body of an error reply */
	struct buf text;  /* output text, if kept */
	struct sse sse;
	int64_t sent_us; /* clock_us() */
	bool is_stream;  /* by the Content-Type; known when the first bytes of the reply arrive */
	bool head_seen;
	bool finished, done; /* finish_reason received; [DONE] received */
	char *error;         /* owned; the first error */
	char curl_error[CURL_ERROR_SIZE];
};

struct run {
	const struct load_config *config;
	struct load_request *requests;
	size_t n, next; /* requests[next] is sent next by its time; it follows no other request */
	CURLM *multi;
	struct curl_slist *headers;
	int epoll_fd, timer_fd;
	int64_t start_us;
	int64_t curl_due_us; /* time at which libcurl must be called; -1: none */
	struct slot **slots; /* [n_slots] owned, all slots */
	size_t n_slots;
	struct slot *free;
	size_t n_running, n_done, n_failed, max_running;
	uint64_t n_tokens;
	bool cut; /* interrupted */
};

void load_request_fini(struct load_request *r)
{
	free(r->chunk_us);
	free(r->text);
	free(r->error);
	r->chunk_us = NULL;
	r->text = r->error = NULL;
}

/* ---- chunks ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static uint32_t count_of(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));
	return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static void read_choice(const json_t *choice, struct load_chunk *out)
{
	const json_t *delta = json_object_get(choice, "delta");
	out->has_choice = true;
	out->finished = json_is_string(json_object_get(choice, "finish_reason"));
	if (!delta) {
		/* A token that is an incomplete character arrives with an empty text. */
		out->text = text_of(choice, "text");
		out->has_tokens = *out->text || !out->finished;
		return;
	}
	const char *reasoning = text_of(delta, "reasoning_content");
	if (!*reasoning)
		reasoning = text_of(delta, "reasoning");
	out->text = text_of(delta, "content");
	bool more = *reasoning || json_array_size(json_object_get(delta, "tool_calls")) > 0;
	bool waits = json_is_string(json_object_get(delta, "content")) && !json_object_get(delta, "role");
	out->has_tokens = *out->text || more || (waits && !out->finished);
	if (!*out->text)
		out->text = reasoning;
}

void load_chunk_read(const json_t *event, struct load_chunk *out)
{
	*out = (struct load_chunk){.text = ""};
	const json_t *error = json_get(event, "error");
	if (error) {
		const char *message =
			json_is_string(error) ? json_string_value(error) : text_of(error, "message");
		out->error = *message ? message : "an error without a message";
	}
	/* With several choices (n > 1 in --extra-body), each chunk contains one of them. */
	const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
	if (json_is_object(choice))
		read_choice(choice, out);
	const json_t *usage = json_object_get(event, "usage");
	out->got_prompt = count_of(usage, "prompt_tokens");
	out->got_output = count_of(usage, "completion_tokens");
}

/* ---- streams ---- */

static void fail(struct slot *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct slot *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	if (s->error)
		return;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	/* Cut off an incomplete character at the end. */
	for (size_t k = sizeof text - 1; n >= (int)sizeof text && k && (text[k - 1] & 0x80); k--)
		text[k - 1] = 0;
	s->error = xstrdup(text);
}

static void note_tokens(struct slot *s, int64_t at_us)
{
	struct load_request *r = s->request;
	array_grow(r->chunk_us, r->cap_chunks, r->n_chunks + 1);
	r->chunk_us[r->n_chunks++] = at_us;
	s->run->n_tokens++;
}

static int on_event(void *ctx, const char *data, size_t n)
{
	struct slot *s = ctx;
	struct load_chunk chunk;
	json_t *event;
	struct why why;
	int64_t at = clock_us() - s->sent_us;
	if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
		s->done = true;
		return 0;
	}
	int rc = json_parse(data, n, &event, &why);
	if (rc) {
		fail(s, "a chunk is %s", why.text);
		return rc;
	}
	load_chunk_read(event, &chunk);
	if (chunk.error) {
		fail(s, "error in the stream: %s", chunk.error);
		rc = -EREMOTEIO;
	}
	if (chunk.has_choice)
		s->request->last_us = at;
	if (chunk.has_tokens)
		note_tokens(s, at);
	s->finished |= chunk.finished;
	if (s->run->config->keep_text)
		buf_puts(&s->text, chunk.text);
	if (chunk.got_prompt)
		s->request->got_prompt = chunk.got_prompt;
	if (chunk.got_output)
		s->request->got_output = chunk.got_output;
	json_decref(event);
	return rc;
}

/* Determine the kind of reply from its header. */
static void read_head(struct slot *s)
{
	static const char kind[] = "text/event-stream";
	const char *type = NULL;
	long status = 0;
	curl_easy_getinfo(s->easy, CURLINFO_CONTENT_TYPE, &type);
	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	s->head_seen = true;
	s->is_stream = status == 200 && type && strncasecmp(type, kind, sizeof kind - 1) == 0;
}

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx)
{
	struct slot *s = ctx;
	n *= size;
	if (!s->head_seen)
		read_head(s);
	if (!s->is_stream) {
		size_t room = ERROR_BODY_MAX - s->reply.len;
		buf_put(&s->reply, p, n < room ? n : room);
		return n;
	}
	int rc = sse_feed(&s->sse, p, n, on_event, s);
	if (rc == -EMSGSIZE)
		fail(s, "a chunk is larger than %d bytes", SSE_BYTES_MAX);
	return rc ? CURL_WRITEFUNC_ERROR : n;
}

/* Fail with an error such as "HTTP 429: the queue is full", for a reply that is not a stream. */
static void fail_by_reply(struct slot *s, long status)
{
	json_t *reply = NULL;
	struct load_chunk chunk = {0};
	if (s->reply.len && json_parse(s->reply.p, s->reply.len, &reply, NULL) == 0)
		load_chunk_read(reply, &chunk);
	if (chunk.error)
		fail(s, "HTTP %ld: %s", status, chunk.error);
	else if (status != 200)
		fail(s, "HTTP %ld", status);
	else
		fail(s, "the reply is not an event stream");
	json_decref(reply);
}

/* ---- running ---- */

static struct slot *slot_new(struct run *r)
{
	struct slot *s = xcalloc(1, sizeof *s);
	r->slots = xrealloc(r->slots, r->n_slots + 1, sizeof *r->slots);
	r->slots[r->n_slots++] = s;
	s->run = r;
	s->easy = curl_easy_init();
	if (!s->easy)
		abort(); /* out of memory, as in xmalloc */
	curl_easy_setopt(s->easy, CURLOPT_URL, r->config->url);
	curl_easy_setopt(s->easy, CURLOPT_UNIX_SOCKET_PATH, r->config->socket);
	curl_easy_setopt(s->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(s->easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(s->easy, CURLOPT_USERAGENT, "quern-bench/" QUERN_VERSION);
	curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(s->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
	curl_easy_setopt(s->easy, CURLOPT_TIMEOUT_MS, (long)(r->config->timeout_us / 1000));
	curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_bytes);
	curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
	curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
	curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->curl_error);
	return s;
}

static void slot_free(struct slot *s)
{
	curl_easy_cleanup(s->easy);
	buf_fini(&s->body);
	buf_fini(&s->reply);
	buf_fini(&s->text);
	sse_fini(&s->sse);
	free(s->error);
	free(s);
}

static void start(struct run *r, struct load_request *q)
{
	struct slot *s = r->free;
	if (s)
		r->free = s->next_free;
	else
		s = slot_new(r);
	buf_clear(&s->body);
	buf_clear(&s->reply);
	buf_clear(&s->text);
	sse_reset(&s->sse);
	s->head_seen = s->is_stream = s->finished = s->done = false;
	s->curl_error[0] = 0;
	s->request = q;
	r->config->body(r->config->ctx, (size_t)(q - r->requests), &s->body);
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.len);
	curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body.p);
	s->sent_us = clock_us();
	q->sent_us = s->sent_us - r->start_us;
	if (++r->n_running > r->max_running)
		r->max_running = r->n_running;
	if (curl_multi_add_handle(r->multi, s->easy) != CURLM_OK)
		abort(); /* out of memory, as in xmalloc */
}

/* Skip the request that was sent, and the requests that follow it. */
static void pass_over(struct run *r)
{
	do
		r->next++;
	while (r->next < r->n && r->requests[r->next].follows);
}

/* Fail the requests that follow a failed request.  They are not sent. */
static void fail_followers(struct run *r, const struct load_request *q)
{
	for (size_t i = (size_t)(q - r->requests) + 1; i < r->n && r->requests[i].follows; i++) {
		r->requests[i].error = xstrdup("a request before it, which it follows, failed");
		r->n_done++;
		r->n_failed++;
	}
}

static void finish(struct run *r, struct slot *s)
{
	struct load_request *q = s->request;
	curl_multi_remove_handle(r->multi, s->easy);
	q->error = s->error;
	s->error = NULL;
	if (r->config->keep_text)
		q->text = buf_take(&s->text);
	s->request = NULL;
	s->next_free = r->free;
	r->free = s;
	r->n_running--;
	r->n_done++;
	r->n_failed += q->error != NULL;
	if (q->error && !r->cut)
		fail_followers(r, q);
	else if (!q->error && q + 1 < r->requests + r->n && q[1].follows)
		start(r, q + 1);
}

static void judge(struct slot *s, CURLcode result)
{
	long status = 0;
	curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	if (!s->head_seen)
		read_head(s);
	if (result == CURLE_OPERATION_TIMEDOUT && s->head_seen && status)
		fail(s, "timed out");
	else if (result != CURLE_OK && status && s->is_stream)
		fail(s, "the stream was cut: %s", curl_easy_strerror(result));
	else if (result != CURLE_OK)
		fail(s, "%s", s->curl_error[0] ? s->curl_error : curl_easy_strerror(result));
	else if (!s->is_stream)
		fail_by_reply(s, status);
	else if (!s->done && !s->finished)
		fail(s, "the stream ended without its last event");
	else if (!s->request->n_chunks)
		fail(s, "the stream brought no token");
}

static void take_ended(struct run *r)
{
	int left;
	CURLMsg *m;
	while ((m = curl_multi_info_read(r->multi, &left))) {
		struct slot *s;
		CURLcode result = m->data.result;
		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
		judge(s, result);
		finish(r, s);
	}
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
	struct run *r = ctx;
	struct epoll_event e = {.data.fd = fd};
	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	e.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
	if (epoll_ctl(r->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) && errno == EEXIST)
		epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, fd, &e);
	curl_multi_assign(r->multi, fd, r);
	return 0;
}

static int on_timer(CURLM *multi, long ms, void *ctx)
{
	struct run *r = ctx;
	(void)multi;
	r->curl_due_us = ms < 0 ? -1 : clock_us() + ms * 1000;
	return 0;
}

static bool place_free(const struct run *r)
{
	return !r->config->max_running || r->n_running < r->config->max_running;
}

/* Wait for an event or the next deadline, with a timer of microseconds: epoll_wait() has milliseconds
 * only. */
static int wait_events(struct run *r, struct epoll_event *events, int64_t progress_us)
{
	int64_t now = clock_us(), due = now + IDLE_US;
	if (r->curl_due_us >= 0 && r->curl_due_us < due)
		due = r->curl_due_us;
	if (r->next < r->n && place_free(r) && r->start_us + r->requests[r->next].at_us < due)
		due = r->start_us + r->requests[r->next].at_us;
	if (progress_us < due)
		due = progress_us;
	if (due > now) {
		int64_t us = due - now;
		struct itimerspec t = {.it_value = {us / 1000000, us % 1000000 * 1000}};
		timerfd_settime(r->timer_fd, 0, &t, NULL);
	}
	int n = epoll_wait(r->epoll_fd, events, EVENTS_AT_ONCE, due > now ? -1 : 0);
	return n < 0 ? 0 : n;
}

static void handle_events(struct run *r, const struct epoll_event *events, int n)
{
	int running;
	for (int i = 0; i < n; i++) {
		int fd = events[i].data.fd;
		uint32_t e = events[i].events;
		uint64_t expired;
		if (fd == r->timer_fd) {
			if (read(fd, &expired, sizeof expired) < 0)
				continue; /* the timer was set again */
		} else if (fd != interrupt_fd()) {
			int mask = (e & EPOLLIN ? CURL_CSELECT_IN : 0) |
				   (e & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
				   (e & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
			curl_multi_socket_action(r->multi, fd, mask, &running);
		}
	}
	if (r->curl_due_us >= 0 && r->curl_due_us <= clock_us()) {
		r->curl_due_us = -1;
		curl_multi_socket_action(r->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
}

static void show_progress(struct run *r)
{
	struct load_progress p = {r->n_done, r->n_failed, r->n_running,
				  0,         r->n_tokens, clock_us() - r->start_us};
	for (size_t i = r->next; i < r->n && (r->requests[i].follows || r->requests[i].at_us <= p.now_us);
	     i++)
		p.n_waiting += !r->requests[i].follows;
	if (r->config->progress)
		r->config->progress(r->config->ctx, &p);
}

/* End the running requests after Ctrl-C. */
static void cut(struct run *r)
{
	r->cut = true;
	for (size_t i = 0; i < r->n_slots; i++)
		if (r->slots[i]->request) {
			fail(r->slots[i], "interrupted");
			finish(r, r->slots[i]);
		}
	r->next = r->n;
}

static void loop(struct run *r, struct load_totals *out)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int64_t progress_us = r->start_us;
	while (r->next < r->n || r->n_running) {
		int64_t now = clock_us();
		if (now >= progress_us) {
			show_progress(r);
			progress_us = now + PROGRESS_US;
		}
		while (r->next < r->n && place_free(r) &&
		       r->start_us + r->requests[r->next].at_us <= clock_us()) {
			start(r, &r->requests[r->next]);
			pass_over(r);
		}
		handle_events(r, events, wait_events(r, events, progress_us));
		take_ended(r);
		if (interrupt_pending() && !out->interrupted) {
			out->interrupted = true;
			cut(r);
		}
	}
	show_progress(r);
}

/* ---- run ---- */

/* Each running request has a connection. */
static void raise_file_limit(void)
{
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static struct curl_slist *headers_new(const char *api_key)
{
	struct curl_slist *h = curl_slist_append(NULL, "Content-Type: application/json");
	/* Without this header, curl delays a body larger than 1 MiB for "100 Continue". */
	h = curl_slist_append(h, "Expect:");
	if (api_key) {
		char *line = xasprintf("Authorization: Bearer %s", api_key);
		h = curl_slist_append(h, line);
		free(line);
	}
	return h;
}

static int open_fds(struct run *r, struct why *why)
{
	struct epoll_event timer = {.events = EPOLLIN}, interrupt = {.events = EPOLLIN};
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	timer.data.fd = r->timer_fd;
	interrupt.data.fd = interrupt_fd();
	if (r->epoll_fd < 0 || r->timer_fd < 0 ||
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->timer_fd, &timer) ||
	    (interrupt_fd() >= 0 && epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, interrupt_fd(), &interrupt)))
		return err_why(why, -errno, "epoll: %s", strerror(errno));
	return 0;
}

int load_run(const struct load_config *c, struct load_request *v, size_t n, struct load_totals *out,
	     struct why *why)
{
	struct run r = {
		.config = c, .requests = v, .n = n, .epoll_fd = -1, .timer_fd = -1, .curl_due_us = -1};
	*out = (struct load_totals){0};
	for (size_t i = 0; i < n; i++)
		v[i].sent_us = -1;
	raise_file_limit();
	int rc = open_fds(&r, why);
	if (rc)
		goto fail_fds;
	r.multi = curl_multi_init();
	if (!r.multi) {
		rc = err_why(why, -ENOMEM, "libcurl cannot be initialized");
		goto fail_fds;
	}
	r.headers = headers_new(c->api_key);
	curl_multi_setopt(r.multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(r.multi, CURLMOPT_SOCKETDATA, &r);
	curl_multi_setopt(r.multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(r.multi, CURLMOPT_TIMERDATA, &r);
	int64_t cpu = clock_thread_cpu_us();
	r.start_us = clock_us();
	loop(&r, out);
	out->duration_us = clock_us() - r.start_us;
	out->cpu_us = clock_thread_cpu_us() - cpu;
	out->max_running = r.max_running;
	for (size_t i = 0; i < r.n_slots; i++)
		slot_free(r.slots[i]);
	free(r.slots);
	curl_multi_cleanup(r.multi);
	curl_slist_free_all(r.headers);
fail_fds:
	if (r.timer_fd >= 0)
		close(r.timer_fd);
	if (r.epoll_fd >= 0)
		close(r.epoll_fd);
	return rc;
}

/* ---- single calls ---- */

static size_t collect(char *p, size_t size, size_t n, void *ctx)
{
	struct buf *b = ctx;
	if (b->len + size * n > REPLY_MAX)
		return CURL_WRITEFUNC_ERROR;
	buf_put(b, p, size * n);
	return size * n;
}

int load_call(const char *url, const char *socket, const char *api_key, const char *body, json_t **out,
	      struct why *why)
{
	struct buf reply = {0};
	char error[CURL_ERROR_SIZE] = "";
	struct load_chunk chunk = {0};
	long status = 0;
	int rc = 0;
	CURL *easy = curl_easy_init();
	char *where = socket ? xasprintf("unix:%s, %s", socket, url) : xstrdup(url);
	struct curl_slist *headers = headers_new(api_key);
	if (!easy)
		abort(); /* out of memory, as in xmalloc */
	*out = NULL;
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)CALL_TIMEOUT_MS);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &reply);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
	if (body)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	CURLcode result = curl_easy_perform(easy);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		rc = err_why(why, -ECONNREFUSED, "%s: %s", where,
			     *error ? error : curl_easy_strerror(result));
	else if (json_parse(reply.p ? reply.p : "", reply.len, out, NULL) == 0)
		load_chunk_read(*out, &chunk);
	if (!rc && (status != 200 || chunk.error))
		rc = err_why(why, -EREMOTEIO, "%s: HTTP %ld%s%s", where, status, chunk.error ? ": " : "",
			     chunk.error ? chunk.error : "");
	else if (!rc && !*out)
		rc = err_why(why, -EPROTO, "%s: the reply is not JSON", where);
	if (rc) {
		json_decref(*out);
		*out = NULL;
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(easy);
	buf_fini(&reply);
	free(where);
	return rc;
}
