#include "controller/metrics/tracer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "controller/metrics/metrics.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	BATCH_SPANS = 512, /* a batch of this size is sent without waiting for more */
	TRIES = 5,
	PAUSE_MS = 500,   /* before the second try */
	STOP_MS = 2000,   /* to send the queued spans at shutdown */
	REPLY_MAX = 4096, /* bytes read of a collector's reply */
};

/* The spans of one request. */
struct item {
	struct item *next;
	struct buf spans;
	size_t n;
};

struct tracer {
	struct tracer_config cfg;
	struct metrics *metrics;
	pthread_t thread;
	CURL *curl;
	struct curl_slist *headers;
	bool failing; /* a failure was logged already */

	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t wake;
	struct item *first, **last;
	size_t n_spans, n_bytes;
	bool quit;
	int64_t quit_us; /* clock_us() when the thread gives up */
};

void tracer_draw(struct tracer *tracer, struct trace_context *t)
{
	if (!tracer)
		return;
	/* 53 random bits, as a fraction. */
	const double x = (double)(entropy_u64() >> 11) / 9007199254740992.0;
	trace_context_draw(t, x < tracer->cfg.rate);
}

void tracer_put(struct tracer *t, struct buf *spans, size_t n_spans)
{
	struct item *it = xcalloc(1, sizeof *it);
	it->spans = *spans;
	it->n = n_spans;
	*spans = (struct buf){0};
	pthread_mutex_lock(&t->lock);
	const bool room = !t->quit && t->n_spans + n_spans <= TRACER_SPANS_MAX &&
			  t->n_bytes + it->spans.len <= TRACER_BYTES_MAX;
	if (room) {
		*t->last = it;
		t->last = &it->next;
		t->n_bytes += it->spans.len;
		if (t->n_spans == 0 || (t->n_spans < BATCH_SPANS && t->n_spans + n_spans >= BATCH_SPANS))
			pthread_cond_signal(&t->wake);
		t->n_spans += n_spans;
	}
	pthread_mutex_unlock(&t->lock);
	if (room)
		return;
	metrics_add(t->metrics, METRIC_SPANS_DROPPED, n_spans);
	buf_fini(&it->spans);
	free(it);
}

/* --- the thread --- */

static void until(int64_t us, struct timespec *out)
{
	*out = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
}

/* Wait for a batch, or for the end.  Called with the lock held. */
static void wait_for_batch(struct tracer *t)
{
	struct timespec end;
	while (!t->quit && !t->first)
		pthread_cond_wait(&t->wake, &t->lock);
	until(clock_us() + t->cfg.batch_ms * (int64_t)1000, &end);
	while (!t->quit && t->n_spans < BATCH_SPANS)
		if (pthread_cond_timedwait(&t->wake, &t->lock, &end) == ETIMEDOUT)
			return;
}

/* Take the next batch as a request's body.  Return its number of spans; 0: the end. */
static size_t take_batch(struct tracer *t, struct buf *body)
{
	size_t n = 0;
	buf_clear(body);
	buf_puts(body, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
	buf_put(body, t->cfg.resource.p, t->cfg.resource.len);
	buf_puts(body, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"quern\",\"version\":\"" QUERN_VERSION
		       "\"},\"spans\":[");
	pthread_mutex_lock(&t->lock);
	wait_for_batch(t);
	while (t->first && n < BATCH_SPANS) {
		struct item *it = t->first;
		t->first = it->next;
		if (!t->first)
			t->last = &t->first;
		t->n_spans -= it->n;
		t->n_bytes -= it->spans.len;
		if (n)
			buf_putc(body, ',');
		buf_put(body, it->spans.p, it->spans.len);
		n += it->n;
		buf_fini(&it->spans);
		free(it);
	}
	pthread_mutex_unlock(&t->lock);
	buf_puts(body, "]}]}]}");
	return n;
}

static bool is_over(struct tracer *t)
{
	pthread_mutex_lock(&t->lock);
	const bool over = t->quit && clock_us() >= t->quit_us;
	pthread_mutex_unlock(&t->lock);
	return over;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	(void)a, (void)b, (void)c, (void)d;
	return is_over(user);
}

/* Read and ignore a collector's reply, up to REPLY_MAX bytes. */
static size_t on_reply(char *p, size_t size, size_t n, void *user)
{
	size_t *seen = user;
	(void)p;
	*seen += size * n;
	return *seen > REPLY_MAX ? 0 : size * n;
}

enum outcome { SENT, AGAIN, GIVEN_UP };

static enum outcome send_once(struct tracer *t, const struct buf *body, long *pause_ms, struct why *why)
{
	long status = 0;
	size_t seen = 0;
	curl_off_t retry_s = 0;
	char detail[CURL_ERROR_SIZE] = "";
	curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, body->p);
	curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
	curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, detail);
	curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, &seen);
	CURLcode rc = curl_easy_perform(t->curl);
	curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, NULL);
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	/* A long reply was cut off, but its status is known. */
	if (rc && !(rc == CURLE_WRITE_ERROR && status)) {
		err_why(why, -EIO, "%s", detail[0] ? detail : curl_easy_strerror(rc));
		return AGAIN;
	}
	if (status >= 200 && status < 300)
		return SENT;
	err_why(why, -EIO, "it replied %ld", status);
	if (status != 429 && (status < 502 || status > 504))
		return GIVEN_UP;
	curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &retry_s);
	if (retry_s > 0 && retry_s < 60)
		*pause_ms = (long)retry_s * 1000;
	return AGAIN;
}

/* Return false if the tracer was stopped meanwhile. */
static bool pause_for(struct tracer *t, long ms)
{
	struct timespec end;
	until(clock_us() + ms * 1000, &end);
	pthread_mutex_lock(&t->lock);
	while (!t->quit && pthread_cond_timedwait(&t->wake, &t->lock, &end) != ETIMEDOUT)
		;
	const bool quit = t->quit;
	pthread_mutex_unlock(&t->lock);
	return !quit;
}

static void send_batch(struct tracer *t, const struct buf *body, size_t n)
{
	struct why why = {""};
	enum outcome how = AGAIN;
	long pause_ms = PAUSE_MS;
	for (int i = 0; i < TRIES && how == AGAIN; i++) {
		if (i && !pause_for(t, pause_ms))
			break;
		pause_ms *= 2;
		how = send_once(t, body, &pause_ms, &why);
		if (how != SENT && !t->failing)
			log_warn("trace", "collector does not take spans url=%s reason=\"%s\"", t->cfg.url,
				 why.text);
		else if (how == SENT && t->failing)
			log_info("trace", "collector takes spans again url=%s", t->cfg.url);
		t->failing = how != SENT;
		if (is_over(t))
			break;
	}
	metrics_add(t->metrics, how == SENT ? METRIC_SPANS_SENT : METRIC_SPANS_FAILED, n);
}

static void *run(void *arg)
{
	struct tracer *t = arg;
	struct buf body = {0};
	for (size_t n; (n = take_batch(t, &body)) > 0;)
		send_batch(t, &body, n);
	buf_fini(&body);
	return NULL;
}

/* --- lifecycle --- */

static int set_up(struct tracer *t, struct why *why)
{
	CURL *c = t->curl;
	struct curl_slist *more = curl_slist_append(NULL, "Content-Type: application/json");
	/* Disable "Expect: 100-continue", which some collectors leave unanswered. */
	t->headers = more ? curl_slist_append(more, "Expect:") : NULL;
	for (size_t i = 0; t->headers && i < t->cfg.n_headers; i++) {
		more = curl_slist_append(t->headers, t->cfg.headers[i]);
		if (!more)
			return err_why(why, -ENOMEM, "tracing: no memory");
		t->headers = more;
	}
	if (!t->headers || curl_easy_setopt(c, CURLOPT_URL, t->cfg.url) ||
	    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") ||
	    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers) || curl_easy_setopt(c, CURLOPT_POST, 1L) ||
	    (t->cfg.ca && curl_easy_setopt(c, CURLOPT_CAINFO, t->cfg.ca)))
		return err_why(why, -EINVAL, "tracing: the address \"%s\" is not usable", t->cfg.url);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)t->cfg.timeout_ms);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_reply);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
	return 0;
}

static void tracer_free(struct tracer *t)
{
	curl_slist_free_all(t->headers);
	if (t->curl)
		curl_easy_cleanup(t->curl);
	tracer_config_fini(&t->cfg);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

int tracer_start(struct tracer_config *cfg, struct metrics *metrics, struct tracer **out, struct why *why)
{
	pthread_condattr_t monotonic;
	struct tracer *t = xcalloc(1, sizeof *t);
	t->cfg = *cfg;
	*cfg = (struct tracer_config){0};
	t->metrics = metrics;
	t->last = &t->first;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	t->curl = curl_easy_init();
	int rc = t->curl ? set_up(t, why) : err_why(why, -ENOMEM, "tracing: libcurl does not start");
	if (!rc && (rc = -pthread_create(&t->thread, NULL, run, t)))
		err_why(why, rc, "tracing: cannot start its thread");
	if (rc) {
		tracer_free(t);
		return rc;
	}
	log_info("trace", "sending spans url=%s service=%s rate=%g", t->cfg.url, t->cfg.service, t->cfg.rate);
	*out = t;
	return 0;
}

void tracer_stop(struct tracer *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	t->quit_us = clock_us() + STOP_MS * 1000;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	tracer_free(t);
}
