#include "cli/client.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/terminal/term.h"
#include "controller/chat/reasoning.h"
#include "proto/mp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* A host that vanishes silently is detected within HEARTBEAT_TIMEOUT_MS. */
enum { HEARTBEAT_MS = 2000, HEARTBEAT_TIMEOUT_MS = 10000, LINGER_MS = 500 };

struct client {
	void *context;
	void *socket;     /* DEALER */
	void *monitor;    /* PAIR: the connection's events */
	struct buf bytes; /* the encoded request */
	uint64_t last_id;
	char endpoint[256];
	bool keyed;     /* uses CURVE */
	bool connected; /* the endpoint accepts connections */
	bool gone;      /* the connection was lost */
};

static void set_int(void *socket, int option, int value)
{
	zmq_setsockopt(socket, option, &value, sizeof value);
}

/* Return the next event of the connection; 0 if there is none. */
static uint16_t next_event(struct client *c)
{
	uint16_t event = 0;
	zmq_msg_t m;
	zmq_msg_init(&m);
	if (zmq_msg_recv(&m, c->monitor, ZMQ_DONTWAIT) >= (int)sizeof event)
		memcpy(&event, zmq_msg_data(&m), sizeof event);
	/* Discard the second part of the message, which names the endpoint. */
	bool more = zmq_msg_more(&m);
	zmq_msg_close(&m);
	while (more) {
		zmq_msg_init(&m);
		more = zmq_msg_recv(&m, c->monitor, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&m);
		zmq_msg_close(&m);
	}
	return event;
}

static int no_service(const struct client *c, int err, struct why *why)
{
	if (err == -ETIMEDOUT && c->connected)
		return err_why(
			why, err,
			"%s answers, but not as a job socket of quern: it may be its HTTP address, or the "
			"service hangs",
			c->endpoint);
	return err_why(why, err, "no service answers at %s; start one with: quern serve MODEL", c->endpoint);
}

/* Wait for the socket, the monitor or Ctrl-C.  -EINTR, -ETIMEDOUT or 0. */
static int wait_any(struct client *c, int64_t until_us, bool *readable)
{
	zmq_pollitem_t items[] = {{.socket = c->socket, .events = ZMQ_POLLIN},
				  {.socket = c->monitor, .events = ZMQ_POLLIN},
				  {.fd = interrupt_fd(), .events = ZMQ_POLLIN}};
	int64_t left = until_us < 0 ? -1 : until_us - clock_us();
	if (until_us >= 0 && left <= 0)
		return -ETIMEDOUT;
	int n = zmq_poll(items, interrupt_fd() >= 0 ? 3 : 2, left < 0 ? -1 : (long)(left / 1000 + 1));
	*readable = n > 0 && (items[0].revents & ZMQ_POLLIN);
	if (interrupt_pending())
		return -EINTR;
	return 0;
}

/* Report that the handshake was not completed. */
static int no_handshake(const struct client *c, uint16_t event, struct why *why)
{
	if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
		return err_why(why, -EACCES,
			       "the service at %s does not accept this key: its public half must be in the "
			       "service's --allow file",
			       c->endpoint);
	if (c->keyed)
		return err_why(why, -EPROTO,
			       "%s answers, but not as a job socket of quern with the key given by "
			       "--server-key",
			       c->endpoint);
	return err_why(why, -EPROTO,
		       "%s answers, but not as a job socket of quern, or it requires keys (--key, "
		       "--server-key)",
		       c->endpoint);
}

static int wait_connected(struct client *c, int timeout_ms, struct why *why)
{
	int64_t until = clock_us() + timeout_ms * (int64_t)1000;
	for (;;) {
		bool readable;
		int rc = wait_any(c, until, &readable);
		if (rc == -EINTR)
			return err_why(why, rc, "interrupted");
		if (rc)
			return no_service(c, rc, why);
		uint16_t event = next_event(c);
		switch (event) {
		case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
			return 0;
		case ZMQ_EVENT_CONNECTED:
			c->connected = true;
			break;
		case ZMQ_EVENT_CONNECT_RETRIED:
			return no_service(c, -ECONNREFUSED, why);
		case ZMQ_EVENT_DISCONNECTED:
		case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
		case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
		case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
			return no_handshake(c, event, why);
		default:
			break;
		}
	}
}

/* Complete an endpoint: a path becomes ipc://, HOST:PORT becomes tcp://.  A final slash of a tcp endpoint is
 * removed. */
static void complete_endpoint(const char *given, char *out, size_t n)
{
	const bool whole = strstr(given, "://") || strncmp(given, "unix:", 5) == 0;
	snprintf(out, n, "%s%s", whole ? "" : strchr(given, '/') ? "ipc://" : "tcp://", given);
	const size_t len = strlen(out);
	if (strncmp(out, "tcp://", 6) == 0 && out[len - 1] == '/')
		out[len - 1] = '\0';
}

static int bad_endpoint(const char *endpoint, struct why *why)
{
	if (strncmp(endpoint, "http", 4) == 0 || strncmp(endpoint, "unix:", 5) == 0)
		return err_why(why, -EINVAL,
			       "%s is HTTP's address; this command needs the job socket, tcp://HOST:PORT or "
			       "ipc://PATH, which quern serve prints as \"jobs\"",
			       endpoint);
	return err_why(why, -EINVAL, "%s is not an endpoint (%s); write tcp://HOST:PORT or ipc://PATH",
		       endpoint, zmq_strerror(errno));
}

int client_open(const char *endpoint, const struct client_keys *keys, int timeout_ms, struct client **out,
		struct why *why)
{
	struct client *c = xcalloc(1, sizeof *c);
	char events[64];
	int rc;
	complete_endpoint(endpoint, c->endpoint, sizeof c->endpoint);
	endpoint = c->endpoint;
	snprintf(events, sizeof events, "inproc://client-%p", (void *)c);
	c->context = zmq_ctx_new();
	c->socket = c->context ? zmq_socket(c->context, ZMQ_DEALER) : NULL;
	c->monitor = c->socket ? zmq_socket(c->context, ZMQ_PAIR) : NULL;
	if (!c->monitor) {
		rc = err_why(why, -errno, "cannot make a socket: %s", zmq_strerror(errno));
		goto fail;
	}
	set_int(c->monitor, ZMQ_LINGER, 0);
	set_int(c->socket, ZMQ_LINGER, 0);
	set_int(c->socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
	set_int(c->socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
	/* ZMQ_IMMEDIATE is not set, because it discards received but unread messages when the service ends,
	 * and these report how the jobs have ended. */
	set_int(c->socket, ZMQ_SNDHWM, 0); /* the sender bounds the requests in flight */
	set_int(c->socket, ZMQ_RCVHWM, 0); /* replies are requested, and their size is bounded */
	int64_t max = (int64_t)mp_limits_reply().bytes;
	zmq_setsockopt(c->socket, ZMQ_MAXMSGSIZE, &max, sizeof max);
	if (zmq_socket_monitor(c->socket, events, ZMQ_EVENT_ALL) < 0 || zmq_connect(c->monitor, events) < 0) {
		rc = err_why(why, -errno, "cannot watch a socket: %s", zmq_strerror(errno));
		goto fail;
	}
	c->keyed = keys && strncmp(endpoint, "tcp://", 6) == 0;
	rc = c->keyed ? curve_client(c->socket, &keys->own, keys->server.public) : 0;
	if (rc) {
		err_why(why, rc, "CURVE: %s", zmq_strerror(-rc));
		goto fail;
	}
	if (zmq_connect(c->socket, endpoint) < 0) {
		rc = bad_endpoint(endpoint, why);
		goto fail;
	}
	rc = wait_connected(c, timeout_ms, why);
	if (rc)
		goto fail;
	set_int(c->socket, ZMQ_LINGER, LINGER_MS);
	*out = c;
	return 0;
fail:
	client_close(c);
	return rc;
}

void client_close(struct client *c)
{
	const int before = errno;
	if (!c)
		return;
	if (c->monitor) {
		zmq_socket_monitor(c->socket, NULL, 0);
		zmq_close(c->monitor);
	}
	if (c->socket)
		zmq_close(c->socket);
	if (c->context)
		zmq_ctx_term(c->context);
	buf_fini(&c->bytes);
	free(c);
	errno = before;
}

static int gone_away(struct client *c, struct why *why)
{
	c->gone = true;
	/* Drop unsent requests: they must not reach the next process that listens there. */
	set_int(c->socket, ZMQ_LINGER, 0);
	return err_why(why, -ECONNRESET, "the service at %s has gone away", c->endpoint);
}

/* Handle all pending events, and return whether the connection was lost. */
static bool is_gone(struct client *c)
{
	for (uint16_t event; !c->gone && (event = next_event(c)) != 0;)
		c->gone = event == ZMQ_EVENT_DISCONNECTED;
	return c->gone;
}

int client_send(struct client *c, json_t *request, uint64_t *id, struct why *why)
{
	c->last_id++;
	json_object_set_new(request, "id", json_integer((json_int_t)c->last_id));
	if (id)
		*id = c->last_id;
	buf_clear(&c->bytes);
	mp_encode(&c->bytes, request);
	if (!is_gone(c) && zmq_send(c->socket, c->bytes.p, c->bytes.len, ZMQ_DONTWAIT) >= 0)
		return 0;
	return gone_away(c, why);
}

/* Receive a reply without waiting.  -EAGAIN: no message. */
static int take(struct client *c, json_t **reply, struct why *why)
{
	const struct mp_limits limits = mp_limits_reply();
	zmq_msg_t m;
	int rc;
	zmq_msg_init(&m);
	if (zmq_msg_recv(&m, c->socket, ZMQ_DONTWAIT) < 0) {
		rc = errno == EINTR ? -EAGAIN : -errno;
	} else {
		rc = mp_decode(zmq_msg_data(&m), zmq_msg_size(&m), &limits, reply, why);
		if (!rc && !json_is_object(*reply)) {
			json_decref(*reply);
			rc = err_why(why, -EBADMSG, "not a map");
		}
		if (rc)
			rc = err_prefix(why, -EBADMSG, "bad reply from %s", c->endpoint);
	}
	zmq_msg_close(&m);
	return rc;
}

int client_recv(struct client *c, int timeout_ms, json_t **reply, struct why *why)
{
	int64_t until = timeout_ms < 0 ? -1 : clock_us() + timeout_ms * (int64_t)1000;
	for (;;) {
		bool readable = false;
		int rc = take(c, reply, why);
		if (rc != -EAGAIN)
			return rc;
		if (c->gone)
			return gone_away(c, why);
		rc = wait_any(c, until, &readable);
		if (rc == -EINTR)
			return err_why(why, rc, "interrupted");
		if (rc)
			return err_why(why, rc, "the service at %s does not answer", c->endpoint);
		/* Deliver replies received before the connection was lost first. */
		if (!readable && is_gone(c)) {
			rc = take(c, reply, why);
			return rc != -EAGAIN ? rc : gone_away(c, why);
		}
	}
}

uint64_t client_reply_id(const json_t *reply)
{
	json_int_t id = json_integer_value(json_object_get(reply, "id"));
	return id > 0 ? (uint64_t)id : 0;
}

const char *client_reply_op(const json_t *reply)
{
	const char *op = json_string_value(json_object_get(reply, "op"));
	return op ? op : "";
}

void client_reply_error(const json_t *reply, struct why *why)
{
	const char *code = json_string_value(json_object_get(reply, "code"));
	const char *message = json_string_value(json_object_get(reply, "message"));
	err_why(why, 0, "%s (%s)", message ? message : "the service refused", code ? code : "no code");
}

int client_call(struct client *c, json_t *request, int timeout_ms, json_t **reply, struct why *why)
{
	uint64_t id;
	int rc = client_send(c, request, &id, why);
	if (rc)
		return rc;
	for (;;) {
		rc = client_recv(c, timeout_ms, reply, why);
		if (rc)
			return rc;
		if (client_reply_id(*reply) == id)
			break;
		json_decref(*reply); /* a late reply to an earlier request */
	}
	if (strcmp(client_reply_op(*reply), "error") == 0) {
		client_reply_error(*reply, why);
		json_decref(*reply);
		*reply = NULL;
		return -EREMOTEIO;
	}
	return 0;
}

int client_about(struct client *c, int timeout_ms, struct client_about *about, struct why *why)
{
	json_t *reply, *request = json_pack("{s:s}", "op", "ping");
	*about = (struct client_about){0};
	int rc = client_call(c, request, timeout_ms, &reply, why);
	json_decref(request);
	if (rc)
		return rc;
	const char *model = json_string_value(json_object_get(reply, "model"));
	const char *reasoning = json_string_value(json_object_get(reply, "reasoning"));
	snprintf(about->model, sizeof about->model, "%s", model ? model : "");
	about->chat = json_is_true(json_object_get(reply, "chat"));
	about->reasoning_open = reasoning && strcmp(reasoning, "open") == 0;
	const char *marks = json_string_value(json_object_get(reply, "reasoning_marks"));
	about->marks = marks ? reasoning_marks_named(marks) : NULL;
	about->reasoning = about->reasoning_open || (reasoning && strcmp(reasoning, "tagged") == 0);
	json_decref(reply);
	return 0;
}
