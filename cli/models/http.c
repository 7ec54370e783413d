#include "cli/models/http.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/version.h"
#include "cli/terminal/term.h"

#include <assert.h>
#include <ctype.h>
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
	REDIRECTS_MAX = 8,
	CONNECT_S = 20,
	STALL_S = 30,          /* seconds without a byte */
	UNREACHED_RETRIES = 2, /* retries while no server has replied: the name may be wrong */
	DELAY_FIRST_MS = 250,
	DELAY_MAX_MS = 16000,
};

struct http {
	CURLM *multi;
	struct http_settings s;
	bool token_safe;
};

static bool is_local(const char *origin)
{
	const char *host = strstr(origin, "://") + 3;
	const size_t n = strcspn(host, *host == '[' ? "]" : ":");
	return (n == 9 && strncmp(host, "localhost", 9) == 0) || (n >= 7 && strncmp(host, "127.", 4) == 0) ||
	       strncmp(host, "[::1]", 5) == 0;
}

static void settings_free(struct http_settings *s)
{
	if (s->token)
		explicit_bzero((char *)s->token, strlen(s->token));
	free((char *)s->token);
	free((char *)s->token_origin);
	free((char *)s->ca);
}

int http_open(const struct http_settings *s, struct http **out, struct why *why)
{
	if (s->ca && access(s->ca, R_OK) < 0)
		return err_why(why, -errno, "%s: %s", s->ca, strerror(errno));
	for (const char *p = s->token; p && *p; p++)
		if (*p <= 0x20 || *p >= 0x7f)
			return err_why(
				why, -EINVAL,
				"the token (HF_TOKEN or QUERN_TOKEN) has characters that no token has");
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return err_why(why, -EIO, "libcurl cannot be initialised");
	struct http *h = xcalloc(1, sizeof *h);
	h->s = (struct http_settings){.token = s->token ? xstrdup(s->token) : NULL,
				      .token_origin = s->token_origin ? xstrdup(s->token_origin) : NULL,
				      .ca = s->ca ? xstrdup(s->ca) : NULL};
	h->token_safe = s->token && (strncmp(s->token_origin, "https:", 6) == 0 || is_local(s->token_origin));
	h->multi = curl_multi_init();
	if (!h->multi) {
		settings_free(&h->s);
		free(h);
		return err_why(why, -ENOMEM, "libcurl cannot be initialised");
	}
	*out = h;
	return 0;
}

void http_close(struct http *h)
{
	if (!h)
		return;
	curl_multi_cleanup(h->multi);
	settings_free(&h->s);
	free(h);
}

/* ---- receiving ---- */

static void reply_reset(struct http_reply *r)
{
	char linked[DIGEST_HEX];
	memcpy(linked, r->linked, sizeof linked);
	*r = (struct http_reply){.length = -1, .from = -1, .to = -1, .total = -1};
	memcpy(r->linked, linked, sizeof linked);
}

/* Get the text after a header's name; false if it is another header. */
static bool header_is(const char *line, const char *name, const char **value)
{
	const size_t n = strlen(name);
	if (strncasecmp(line, name, n) != 0 || line[n] != ':')
		return false;
	*value = line + n + 1 + strspn(line + n + 1, " \t");
	return true;
}

static void read_etag(const char *v, char *out, size_t n)
{
	const size_t len = strlen(v);
	if (*v == '"' && len >= 2 && v[len - 1] == '"' && len - 2 < n)
		snprintf(out, n, "%.*s", (int)(len - 2), v + 1);
}

static void read_link(const char *v, char *out, size_t n)
{
	const char *end = strchr(v, '>');
	if (*v == '<' && end && strstr(end, "rel=\"next\"") && (size_t)(end - v) < n)
		snprintf(out, n, "%.*s", (int)(end - v - 1), v + 1);
}

static int64_t number(const char *v)
{
	char *end;
	errno = 0;
	const long long n = isdigit((unsigned char)*v) ? strtoll(v, &end, 10) : -1;
	return errno ? -1 : n;
}

static void read_range(const char *v, struct http_reply *r)
{
	long long from, to, total;
	if (sscanf(v, "bytes %lld-%lld/%lld", &from, &to, &total) == 3 && from >= 0 && to >= from &&
	    total > to) {
		r->from = from;
		r->to = to;
		r->total = total;
	} else if (sscanf(v, "bytes */%lld", &total) == 1 && total >= 0) {
		r->total = total;
	}
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
	struct http_call *c = ctx;
	struct http_reply *r = &c->reply;
	char line[SOURCE_URL_MAX + 64], etag[ETAG_SIZE] = "";
	const char *v;
	size_t len = size * n;
	while (len && (p[len - 1] == '\n' || p[len - 1] == '\r' || p[len - 1] == ' '))
		len--;
	if (len >= sizeof line)
		return size * n;
	memcpy(line, p, len);
	line[len] = '\0';
	if (strncmp(line, "HTTP/", 5) == 0) {
		reply_reset(r);
		sscanf(line, "HTTP/%*s %d", &r->status);
	} else if (header_is(line, "Content-Length", &v)) {
		r->length = number(v);
	} else if (header_is(line, "Content-Range", &v)) {
		read_range(v, r);
	} else if (header_is(line, "Retry-After", &v)) {
		const time_t at = isdigit((unsigned char)*v) ? -1 : curl_getdate(v, NULL);
		const int64_t s = at == -1 ? number(v) : (int64_t)at - clock_unix();
		r->retry_after = s > 0 ? (int)(s < INT32_MAX ? s : INT32_MAX) : 0;
	} else if (header_is(line, "ETag", &v)) {
		read_etag(v, r->etag, sizeof r->etag);
	} else if (header_is(line, "X-Linked-Etag", &v) && c->n_redirects == 0) {
		read_etag(v, etag, sizeof etag);
		file_list_hex(etag, 64, r->linked);
	} else if (header_is(line, "Link", &v)) {
		read_link(v, r->next, sizeof r->next);
	} else if (header_is(line, "X-Error-Message", &v)) {
		snprintf(r->error, sizeof r->error, "%.300s", v);
		r->error_header = true;
	}
	return size * n;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
	struct http_call *c = ctx;
	const size_t len = size * n;
	if (c->reply.status / 100 == 2) {
		c->given_up = c->body(c, p, len);
		return c->given_up ? 0 : len;
	}
	/* Keep the beginning of an error's body if it is text, but not if it is a page. */
	const size_t have = strlen(c->reply.error), room = sizeof c->reply.error - 1 - have;
	if (c->reply.status / 100 >= 4 && !c->reply.error_header && (have || *p != '<') &&
	    !memchr(p, '\0', len)) {
		memcpy(c->reply.error + have, p, len < room ? len : room);
		c->reply.error[have + (len < room ? len : room)] = '\0';
	}
	return len;
}

/* ---- calls ---- */

/* Set the headers, with the token if the address belongs to the token's origin. */
static void set_headers(struct http *h, struct http_call *c)
{
	char origin[SOURCE_URL_MAX], line[SOURCE_URL_MAX];
	struct curl_slist *list = NULL;
	if (h->token_safe && source_origin(c->at, origin, sizeof origin) &&
	    strcmp(origin, h->s.token_origin) == 0 &&
	    snprintf(line, sizeof line, "Authorization: Bearer %s", h->s.token) < (int)sizeof line)
		list = curl_slist_append(list, line);
	explicit_bzero(line, sizeof line);
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, list);
	curl_slist_free_all(c->headers);
	c->headers = list;
}

static void set_up(struct http *h, struct http_call *c)
{
	char range[64];
	CURL *e = c->easy;
	curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->detail);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* one connection per range */
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 256L << 10);
	if (h->s.ca)
		curl_easy_setopt(e, CURLOPT_CAINFO, h->s.ca);
	if (c->from >= 0) {
		snprintf(range, sizeof range, "%lld-%lld", (long long)c->from, (long long)c->to);
		curl_easy_setopt(e, CURLOPT_RANGE, range);
	}
}

int http_begin(struct http *h, struct http_call *c, struct why *why)
{
	assert(!c->easy);
	c->easy = curl_easy_init();
	if (!c->easy)
		return err_why(why, -ENOMEM, "libcurl has no memory for a request");
	c->http = h;
	c->headers = NULL;
	c->n_redirects = 0;
	c->code = c->given_up = 0;
	c->detail[0] = '\0';
	c->at = xstrdup(c->url);
	c->reply.linked[0] = '\0';
	reply_reset(&c->reply);
	set_up(h, c);
	curl_easy_setopt(c->easy, CURLOPT_URL, c->at);
	set_headers(h, c);
	if (curl_multi_add_handle(h->multi, c->easy)) {
		curl_easy_cleanup(c->easy);
		c->easy = NULL;
		return err_why(why, -EIO, "libcurl does not take the request");
	}
	return 0;
}

void http_end(struct http *h, struct http_call *c)
{
	if (!c->easy)
		return;
	curl_multi_remove_handle(h->multi, c->easy);
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	free(c->at);
	c->easy = c->headers = NULL;
	c->at = NULL;
}

/* Follow a redirect.  false: the reply is no redirect, or must not be followed. */
static bool redirect(struct http *h, struct http_call *c)
{
	char *to = NULL;
	const int s = c->reply.status;
	if (c->code || !(s == 301 || s == 302 || s == 303 || s == 307 || s == 308))
		return false;
	curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &to);
	if (!to || !source_is_url(to) || strlen(to) >= 4 * SOURCE_URL_MAX ||
	    c->n_redirects >= REDIRECTS_MAX ||
	    (strncasecmp(c->at, "https:", 6) == 0 && strncasecmp(to, "https:", 6) != 0))
		return false;
	char *at = xstrdup(to);
	curl_multi_remove_handle(h->multi, c->easy);
	free(c->at);
	c->at = at;
	c->n_redirects++;
	curl_easy_setopt(c->easy, CURLOPT_URL, c->at);
	set_headers(h, c);
	return curl_multi_add_handle(h->multi, c->easy) == 0;
}

static struct http_call *next_ended(struct http *h)
{
	CURLMsg *m;
	int left;
	while ((m = curl_multi_info_read(h->multi, &left))) {
		struct http_call *c;
		if (m->msg != CURLMSG_DONE)
			continue;
		CURL *easy = m->easy_handle;
		const int code = (int)m->data.result;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, &c);
		c->code = code;
		if (!redirect(h, c))
			return c;
	}
	return NULL;
}

struct http_call *http_wait(struct http *h, int timeout_ms)
{
	const int64_t until = clock_us() + (int64_t)timeout_ms * 1000;
	for (;;) {
		int running;
		curl_multi_perform(h->multi, &running);
		struct http_call *c = next_ended(h);
		const int64_t left = until - clock_us();
		if (c || left <= 0 || interrupt_pending())
			return c;
		struct curl_waitfd fd = {.fd = interrupt_fd(), .events = CURL_WAIT_POLLIN};
		curl_multi_poll(h->multi, &fd, fd.fd >= 0, (int)(left / 1000) + 1, NULL);
	}
}

/* ---- errors ---- */

bool http_is_transient(const struct http_call *c)
{
	const int s = c->reply.status;
	if (c->given_up)
		return false;
	switch (c->code) {
	case CURLE_OK:
		return s == 408 || s == 425 || s == 429 || (s >= 500 && s != 501 && s != 505);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_OUT_OF_MEMORY:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return false;
	default:
		return true;
	}
}

int http_delay_ms(const struct http_call *c, int nth)
{
	const int s = c->reply.retry_after;
	if (!c->code && s > 0)
		return (s < HTTP_RETRY_AFTER_MAX ? s : HTTP_RETRY_AFTER_MAX) * 1000;
	const int delay = DELAY_FIRST_MS << (nth < 8 ? nth : 8);
	return delay < DELAY_MAX_MS ? delay : DELAY_MAX_MS;
}

/* Errors show only the origin, because a redirect's address may hold a signature. */
static void origin_of(const struct http_call *c, char *out, size_t n)
{
	if (!source_origin(c->at ? c->at : c->url, out, n))
		snprintf(out, n, "the server");
}

static int why_status(const struct http_call *c, const char *said, struct why *why)
{
	const struct http *h = c->http;
	const int s = c->reply.status;
	char origin[SOURCE_URL_MAX];
	origin_of(c, origin, sizeof origin);
	if (s == 401)
		return err_why(
			why, -EACCES, "%s: HTTP 401: %s%s%s", c->url,
			!h->s.token ? "the model needs a token, or does not exist: check its name, and set "
				      "HF_TOKEN (of the hub) or QUERN_TOKEN (of any server)"
			: !h->token_safe
				? "the token is not sent over plain http to another machine; use https"
				: "the token (HF_TOKEN or QUERN_TOKEN) is not accepted: is it complete, and "
				  "of this server?",
			*said ? ": " : "", said);
	if (s == 403)
		return err_why(
			why, -EACCES,
			"%s: HTTP 403: access is refused%s; if the model asks to accept its terms, do that "
			"on its page in a browser%s%s%s",
			c->url, h->s.token ? " to this token" : "", h->s.token ? "" : ", and set HF_TOKEN",
			*said ? ": " : "", said);
	if (s == 404 || s == 410)
		return err_why(
			why, -ENOENT,
			"%s: HTTP %d: it is not there; check the name, the revision and the server%s%s",
			c->url, s, *said ? ": " : "", said);
	if (s == 429)
		return err_why(why, -EAGAIN, "%s: HTTP 429: too many requests%s; try again later%s", origin,
			       c->reply.retry_after > HTTP_RETRY_AFTER_MAX
				       ? ", and more than 10 minutes to wait"
				       : "",
			       h->s.token ? "" : ", or set HF_TOKEN: known users may send more");
	if (s / 100 == 3)
		return err_why(why, -ELOOP, "%s: HTTP %d: redirected %s", c->url, s,
			       c->n_redirects >= REDIRECTS_MAX ? "more than 8 times"
							       : "to where it is not followed: from https to "
								 "http, or to no address of HTTP");
	return err_why(why, s >= 500 ? -EAGAIN : -EPROTO, "%s: HTTP %d%s%s", origin, s, *said ? ": " : "",
		       said);
}

int http_why(const struct http_call *c, struct why *why)
{
	char origin[SOURCE_URL_MAX];
	const char *detail = c->detail[0] ? c->detail : curl_easy_strerror((CURLcode)c->code);
	if (!c->code)
		return why_status(c, c->reply.error, why);
	origin_of(c, origin, sizeof origin);
	switch (c->code) {
	case CURLE_PEER_FAILED_VERIFICATION:
		return err_why(
			why, -EACCES,
			"%s: its certificate is not trusted (%s); for an authority of your own: --ca FILE, "
			"and check this machine's date",
			origin, detail);
	case CURLE_SSL_CACERT_BADFILE:
		return err_why(why, -EINVAL, "--ca: %s", detail);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return err_why(
			why, -EHOSTUNREACH,
			"%s: %s; is this machine online, and the name right (--endpoint, HF_ENDPOINT)?",
			origin, detail);
	case CURLE_OPERATION_TIMEDOUT:
		return err_why(why, -ETIMEDOUT, "%s: no answer for %d s", origin, STALL_S);
	default:
		return err_why(why, -ECONNABORTED, "%s: %s", origin, detail);
	}
}

/* ---- small replies ---- */

struct small {
	struct buf *out;
	size_t max;
};

static int take_small(struct http_call *c, const char *p, size_t n)
{
	const struct small *s = c->ctx;
	if (n > s->max - (s->out->len < s->max ? s->out->len : s->max))
		return -EFBIG;
	buf_put(s->out, p, n);
	return 0;
}

static int take_nothing(struct http_call *c, const char *p, size_t n)
{
	(void)c;
	(void)p;
	(void)n;
	return -ECANCELED;
}

static int pause_ms(int ms)
{
	struct pollfd fd = {.fd = interrupt_fd(), .events = POLLIN};
	poll(&fd, fd.fd >= 0, ms);
	return interrupt_pending() ? -EINTR : 0;
}

static int get_once(struct http *h, struct http_call *c, struct why *why)
{
	int rc = http_begin(h, c, why);
	while (!rc && http_wait(h, 1000) != c)
		if (interrupt_pending())
			rc = err_why(why, -EINTR, "interrupted");
	return rc;
}

int http_get(struct http *h, const char *url, size_t max, struct buf *out, struct http_reply *reply,
	     struct why *why)
{
	struct small s = {out, max};
	const size_t before = out ? out->len : 0;
	s.max += before;
	for (int nth = 0;; nth++) {
		struct http_call c = {.url = url, .from = max ? -1 : 0, .ctx = &s};
		c.body = max ? take_small : take_nothing;
		int rc = get_once(h, &c, why);
		const bool ok = !rc && ((!c.code && c.reply.status / 100 == 2) || c.given_up == -ECANCELED ||
					(!max && c.reply.status == 416));
		bool again = false;
		if (!rc && !ok) {
			again = http_is_transient(&c) &&
				nth < (c.reply.status ? HTTP_RETRIES : UNREACHED_RETRIES) &&
				c.reply.retry_after <= HTTP_RETRY_AFTER_MAX;
			rc = c.given_up == -EFBIG ? err_why(why, -EFBIG, "%s: more than %zu bytes", url, max)
						  : http_why(&c, why);
		}
		if (reply)
			*reply = c.reply;
		const int delay = http_delay_ms(&c, nth);
		http_end(h, &c);
		if (!again)
			return rc;
		if (out)
			out->len = before;
		if (pause_ms(delay))
			return err_why(why, -EINTR, "interrupted");
	}
}
