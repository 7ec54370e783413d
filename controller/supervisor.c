#include "controller/supervisor.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct supervisor {
	int out;              /* a pipe; -1: none */
	int wake[2];          /* pipe, with a byte per notice; -1: not open */
	pthread_mutex_t lock; /* protects the following fields */
	struct buf pending;   /* bytes of all lines that are not written yet, in order */
	bool ready;           /* set by supervisor_on_ready(), cleared by supervisor_flush() */
	struct supervisor_ready state;
	bool served; /* a replica has served */
};

struct supervisor *supervisor_new(int out)
{
	struct supervisor *s = xcalloc(1, sizeof *s);
	s->out = out;
	s->wake[0] = s->wake[1] = -1;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

int supervisor_open(struct supervisor *s)
{
	return pipe(s->wake) ? -errno : 0;
}

void supervisor_free(struct supervisor *s)
{
	if (!s)
		return;
	for (int i = 0; i < 2; i++)
		if (s->wake[i] >= 0)
			close(s->wake[i]);
	buf_fini(&s->pending);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* --- the pipe --- */

/* Write pending bytes while the pipe accepts them without blocking.  Called with the lock held. */
static void push(struct supervisor *s)
{
	struct pollfd out = {.fd = s->out, .events = POLLOUT};
	size_t done = 0;
	/* A pipe that polls as writable accepts PIPE_BUF bytes at once. */
	while (done < s->pending.len && poll(&out, 1, 0) == 1) {
		const size_t left = s->pending.len - done;
		ssize_t n = write(s->out, s->pending.p + done, left < PIPE_BUF ? left : PIPE_BUF);
		if (n < 0) {
			log_warn("main", "ready-fd not written reason=\"%s\"", strerror(errno));
			done = s->pending.len; /* the supervisor has gone */
			break;
		}
		done += (size_t)n;
	}
	if (done) {
		memmove(s->pending.p, s->pending.p + done, s->pending.len - done);
		s->pending.len -= done;
	}
}

/* Append LINE (takes it) and write what the pipe accepts.  Called with the lock held. */
static void push_line(struct supervisor *s, json_t *line)
{
	char *text = s->out >= 0 && line ? json_dumps(line, JSON_COMPACT) : NULL;
	json_decref(line);
	if (!text)
		return;
	buf_puts(&s->pending, text);
	buf_putc(&s->pending, '\n');
	free(text);
	push(s);
}

/* Wait until all lines are written. */
static void push_all(struct supervisor *s)
{
	struct pollfd out = {.fd = s->out, .events = POLLOUT};
	for (;;) {
		pthread_mutex_lock(&s->lock);
		push(s);
		const bool left = s->pending.len > 0;
		pthread_mutex_unlock(&s->lock);
		if (!left)
			return;
		poll(&out, 1, -1);
	}
}

/* --- the engine's thread --- */

static json_t *scale_line(const struct engine_notice *n)
{
	json_t *scale = json_pack("{s:I}", "workers", (json_int_t)n->n_workers);
	json_t *devices = json_array();
	for (uint32_t i = 0; i < n->n_devices; i++)
		json_array_append_new(devices, json_string(n->devices[i]));
	if (n->n_devices)
		json_object_set(scale, "devices", devices);
	json_decref(devices);
	if (n->memory_fraction > 0)
		json_object_set_new(scale, "memory_fraction", json_real(n->memory_fraction));
	return json_pack("{s:o}", "scale", scale);
}

static json_t *keep_line(const struct engine_notice *n)
{
	json_t *pids = json_array();
	for (uint32_t i = 0; i < n->n_pids; i++)
		json_array_append_new(pids, json_integer((json_int_t)n->pids[i]));
	return json_pack("{s:o}", "keep", pids);
}

static json_t *loading_line(const struct engine_loading *l)
{
	return json_pack("{s:{s:I,s:s,s:I,s:I,s:f}}", "loading", "workers", (json_int_t)l->n_workers, "doing",
			 l->doing, "done", (json_int_t)l->done, "total", (json_int_t)l->total, "seconds",
			 (double)l->us / 1e6);
}

static json_t *failed_line(const char *why)
{
	return json_pack("{s:o}", "failed", json_string_lossy(why));
}

static void wake_main(const struct supervisor *s)
{
	if (write(s->wake[1], "x", 1) < 0)
		log_warn("main", "notices not written reason=\"%s\"", strerror(errno));
}

void supervisor_notice(void *user, const struct engine_notice *n)
{
	struct supervisor *s = user;
	json_t *line = NULL;
	pthread_mutex_lock(&s->lock);
	switch (n->kind) {
	case ENGINE_NOTICE_READY:
		s->served = true;
		break;
	case ENGINE_NOTICE_UNREADY:
		break;
	case ENGINE_NOTICE_FAILED:
		/* Only a failed start is reported; the fleet handles later failures. */
		if (!s->served)
			line = failed_line(n->why);
		break;
	case ENGINE_NOTICE_LOST:
		if (n->pid)
			line = json_pack("{s:I}", "lost", (json_int_t)n->pid);
		break;
	case ENGINE_NOTICE_SCALE:
		line = scale_line(n);
		break;
	case ENGINE_NOTICE_KEEP:
		line = keep_line(n);
		break;
	case ENGINE_NOTICE_LOADING:
		if (!s->served)
			line = loading_line(n->loading);
		break;
	case ENGINE_NOTICE_RETIRE:
		line = json_pack("{s:I}", "retire", (json_int_t)n->pid);
		break;
	}
	push_line(s, line);
	pthread_mutex_unlock(&s->lock);
	wake_main(s);
}

/* --- the front end's thread --- */

void supervisor_on_ready(void *user, uint32_t max_context, uint64_t full_kv_bytes)
{
	struct supervisor *s = user;
	pthread_mutex_lock(&s->lock);
	s->ready = true;
	s->state = (struct supervisor_ready){max_context, full_kv_bytes};
	pthread_mutex_unlock(&s->lock);
	wake_main(s);
}

/* --- the main thread --- */

int supervisor_fd(const struct supervisor *s)
{
	return s->wake[0];
}

bool supervisor_is_there(const struct supervisor *s)
{
	return s->out >= 0;
}

void supervisor_write(struct supervisor *s, json_t *line)
{
	pthread_mutex_lock(&s->lock);
	push_line(s, line);
	pthread_mutex_unlock(&s->lock);
	push_all(s);
}

void supervisor_error(struct supervisor *s, const char *why)
{
	supervisor_write(s, json_pack("{s:o}", "error", json_string_lossy(why)));
}

bool supervisor_flush(struct supervisor *s, struct supervisor_ready *out)
{
	char bytes[64];
	if (read(s->wake[0], bytes, sizeof bytes) <= 0)
		return false;
	pthread_mutex_lock(&s->lock);
	bool ready = s->ready;
	*out = s->state;
	s->ready = false;
	pthread_mutex_unlock(&s->lock);
	push_all(s);
	return ready;
}
