#include "controller/http/access_log.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/json_write.h"
#include "controller/http/api_keys.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHECK_US = 1000000 };

struct access_log {
	char *path;           /* NULL: stdout */
	pthread_mutex_t lock; /* guards the fields below */
	int fd;
	int64_t checked_us; /* clock_us() of the last check that the file is still at its path */
	bool failing;       /* the failure has been logged */
};

static int open_file(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

int access_log_open(const char *path, struct access_log **out, struct why *why)
{
	bool is_stdout = strcmp(path, "-") == 0;
	int fd = is_stdout ? STDOUT_FILENO : open_file(path);
	if (fd < 0)
		return err_why(why, -errno, "--access-log %s: %s", path, strerror(errno));
	struct access_log *a = xcalloc(1, sizeof *a);
	a->path = is_stdout ? NULL : xstrdup(path);
	a->fd = fd;
	pthread_mutex_init(&a->lock, NULL);
	*out = a;
	return 0;
}

void access_log_close(struct access_log *a)
{
	if (!a)
		return;
	if (a->path)
		close(a->fd);
	free(a->path);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* Reopen the file if it was moved away or removed.  Under the lock. */
static void follow(struct access_log *a)
{
	struct stat named, ours;
	int64_t now = clock_us();
	if (!a->path || now - a->checked_us < CHECK_US)
		return;
	a->checked_us = now;
	if (stat(a->path, &named) == 0 && fstat(a->fd, &ours) == 0 && named.st_ino == ours.st_ino &&
	    named.st_dev == ours.st_dev)
		return;
	int fd = open_file(a->path);
	if (fd < 0) {
		log_warn("http", "access log not reopened file=%s reason=\"%s\"", a->path, strerror(errno));
		return;
	}
	close(a->fd);
	a->fd = fd;
}

static void put_time(struct buf *b)
{
	struct timespec t;
	struct tm tm;
	char text[32];
	clock_gettime(CLOCK_REALTIME, &t);
	gmtime_r(&t.tv_sec, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(b, "{\"time\":\"%s.%03ldZ\"", text, t.tv_nsec / 1000000);
}

static void put_text(struct buf *b, const char *name, const char *value)
{
	if (!value[0])
		return;
	buf_printf(b, ",\"%s\":", name);
	json_write_str(b, value);
}

void access_log_write(struct access_log *a, const struct exchange *x, bool cut)
{
	if (!a)
		return;
	struct buf b = {0};
	put_time(&b);
	put_text(&b, "remote", x->remote);
	put_text(&b, "method", x->method);
	put_text(&b, "path", x->path);
	/* A request that was cut before its reply has no status. */
	if (x->status)
		buf_printf(&b, ",\"status\":%u", x->status);
	put_text(&b, "id", x->request_id[0] ? x->request_id : x->id);
	put_text(&b, "request", x->drawn_id);
	if (x->trace.remote || x->trace.sampled) {
		char trace[TRACE_ID_HEX];
		trace_context_hex(&x->trace, trace);
		put_text(&b, "trace", trace);
	}
	put_text(&b, "error", x->error);
	if (x->key) {
		char name[APIKEY_NAME_MAX];
		uint32_t share;
		api_key_name(x->key, name, &share);
		put_text(&b, "key", name);
	}
	char finish[EXCHANGE_FINISH_SIZE] = "";
	if (x->work && x->work->log)
		x->work->log(x, &b, finish);
	buf_printf(&b, ",\"total_ms\":%.3f", (double)(clock_us() - x->started_us) / 1000);
	put_text(&b, "finish", cut && !finish[0] ? "cut" : finish);
	buf_puts(&b, "}\n");
	pthread_mutex_lock(&a->lock);
	follow(a);
	bool ok = write(a->fd, b.p, b.len) == (ssize_t)b.len;
	if (!ok && !a->failing)
		log_warn("http", "access log lines lost reason=\"%s\"", strerror(errno));
	a->failing = !ok;
	pthread_mutex_unlock(&a->lock);
	buf_fini(&b);
}
