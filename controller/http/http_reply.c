#include "controller/http/http_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "controller/http/api_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 16 << 10 /* bytes of a stream read at once */ };

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
	if (MHD_add_response_header(r, name, value) != MHD_YES)
		log_warn("http", "reply header not added header=\"%s\"", name);
}

static void add_number(struct MHD_Response *r, const char *name, int64_t x)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRId64, x);
	add_header(r, name, text);
}

/* Add what is left of the key's limits, as OpenAI's headers. */
static void add_limits(struct MHD_Response *r, const struct exchange *x)
{
	struct api_key_left left;
	api_key_left(x->key, clock_us(), &left);
	if (left.requests >= 0) {
		add_number(r, "x-ratelimit-limit-requests", left.max_requests);
		add_number(r, "x-ratelimit-remaining-requests", left.requests);
	}
	if (left.tokens >= 0) {
		add_number(r, "x-ratelimit-limit-tokens", left.max_tokens);
		add_number(r, "x-ratelimit-remaining-tokens", left.tokens);
	}
}

/* Add headers for pages of the origins that --cors-origin names. */
static void add_cors(struct MHD_Response *r, const struct exchange *x)
{
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, x->origin);
	add_header(r, MHD_HTTP_HEADER_VARY, "Origin");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_EXPOSE_HEADERS,
		   "x-request-id, request-id, x-quern-ignored, openai-processing-ms, retry-after");
}

/* Add a preflight's headers.  requested: the headers that the page will send; official clients have many of
 * their own. */
static void add_preflight(struct MHD_Response *r, const char *requested)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
	bool good = requested && strlen(requested) < 1024 && strspn(requested, plain) == strlen(requested);
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, DELETE");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
		   good ? requested : "authorization, content-type");
	add_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
}

/* Add the headers of every reply.  Names of ignored fields come from the client, so only printable ASCII gets
 * into a header. */
static void add_about(struct MHD_Response *r, const struct exchange *x)
{
	char value[sizeof x->ignored];
	size_t n = 0;
	for (; n + 1 < sizeof value && x->ignored[n]; n++)
		value[n] = x->ignored[n] >= 0x20 && x->ignored[n] < 0x7f ? x->ignored[n] : '?';
	value[n] = '\0';
	if (n)
		add_header(r, "x-quern-ignored", value);
	const char *id = x->request_id[0] ? x->request_id : x->id;
	if (id[0])
		add_header(r, "x-request-id", id);
	if (x->drawn_id[0])
		add_header(r, "request-id", x->drawn_id);
	if (x->closing)
		add_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
	if (x->key)
		add_limits(r, x);
	if (x->origin[0])
		add_cors(r, x);
	/* The client's next request opens a new connection, which a load balancer may send to another
	 * service. */
	if (atomic_load(&x->host->draining))
		add_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
}

static void add_page_headers(struct MHD_Response *r, const struct exchange *x)
{
	add_header(r, "Content-Security-Policy", x->policy);
	add_header(r, "X-Content-Type-Options", "nosniff");
	add_header(r, "Referrer-Policy", "no-referrer");
	/* A cached copy would have an old nonce. */
	add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
}

static enum MHD_Result send_reply(struct exchange *x, struct MHD_Connection *c)
{
	pthread_mutex_lock(&x->lock);
	bool dead = x->dead;
	size_t n = x->out.len;
	char *json = buf_take(&x->out);
	unsigned status = x->status;
	pthread_mutex_unlock(&x->lock);
	struct MHD_Response *r = NULL;
	if (!dead && x->content_read)
		r = MHD_create_response_from_callback(x->content_bytes, x->content_part, x->content_read, x,
						      NULL);
	else if (!dead)
		r = MHD_create_response_from_buffer(n, json, MHD_RESPMEM_MUST_FREE);
	if (!r || x->content_read)
		free(json);
	if (!r)
		return MHD_NO;
	if (status != MHD_HTTP_NO_CONTENT)
		add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type ? x->type : "application/json");
	if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
		add_number(r, MHD_HTTP_HEADER_RETRY_AFTER, x->retry_s ? x->retry_s : 1);
	if (status == MHD_HTTP_UNAUTHORIZED)
		add_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (x->allow)
		add_header(r, MHD_HTTP_HEADER_ALLOW, x->allow);
	if (x->vary)
		add_header(r, MHD_HTTP_HEADER_VARY, x->vary);
	if (x->policy[0])
		add_page_headers(r, x);
	add_about(r, x);
	if (x->preflight)
		add_preflight(r, http_header(c, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS));
	add_number(r, "openai-processing-ms", (clock_us() - x->started_us) / 1000);
	enum MHD_Result rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result send_stream(struct exchange *x, struct MHD_Connection *c)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, exchange_read, x, NULL);
	if (!r)
		return MHD_NO;
	add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type ? x->type : "text/event-stream; charset=utf-8");
	add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	/* Otherwise nginx buffers the stream. */
	add_header(r, "X-Accel-Buffering", "no");
	add_about(r, x);
	enum MHD_Result rc = MHD_queue_response(c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return rc;
}

enum MHD_Result http_respond(struct exchange *x, struct MHD_Connection *c)
{
	if (exchange_wait(x))
		return MHD_YES;
	pthread_mutex_lock(&x->lock);
	enum exchange_phase phase = x->dead ? EXCHANGE_READING : x->phase;
	pthread_mutex_unlock(&x->lock);
	switch (phase) {
	case EXCHANGE_REPLY:
		return send_reply(x, c);
	case EXCHANGE_STREAM:
		return send_stream(x, c);
	case EXCHANGE_READING:
	case EXCHANGE_WAITING:
		break;
	}
	return MHD_NO; /* closes the connection */
}
