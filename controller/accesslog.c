#include "controller/accesslog.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "controller/apikeys.h"
#include "controller/jsonw.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	LOOK_US = 1000000,
	JOBS_SHOWN = 16
}; /* of a request with many prompts: n_jobs tells how many there were */

struct accesslog {
	char *path;           /* NULL: stdout */
	pthread_mutex_t lock; /* what follows */
	int fd;
	int64_t looked_us; /* when it was last looked whether the file is still there */
	bool failing;      /* said so already */
};

static int open_file(const char *path)
{
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

int accesslog_open(const char *path, struct accesslog **out, char *why, size_t why_n)
{
	bool is_stdout = strcmp(path, "-") == 0;
	int fd = is_stdout ? STDOUT_FILENO : open_file(path);
	if (fd < 0)
		return err_why(why, why_n, -errno, "--access-log %s: %s", path, strerror(errno));
	struct accesslog *a = xcalloc(1, sizeof *a);
	a->path = is_stdout ? NULL : xstrdup(path);
	a->fd = fd;
	pthread_mutex_init(&a->lock, NULL);
	*out = a;
	return 0;
}

void accesslog_close(struct accesslog *a)
{
	if (!a)
		return;
	if (a->path)
		close(a->fd);
	free(a->path);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* Under the lock: a file that was moved away or removed is begun anew under its name. */
static void follow(struct accesslog *a)
{
	struct stat named, ours;
	int64_t now = clock_us();
	if (!a->path || now - a->looked_us < LOOK_US)
		return;
	a->looked_us = now;
	if (stat(a->path, &named) == 0 && fstat(a->fd, &ours) == 0 && named.st_ino == ours.st_ino &&
	    named.st_dev == ours.st_dev)
		return;
	int fd = open_file(a->path);
	if (fd < 0) {
		log_warn("http", "access log %s cannot be opened anew: %s", a->path, strerror(errno));
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
	jsonw_str(b, value);
}

static void put_ms(struct buf *b, const char *name, int64_t us)
{
	buf_printf(b, ",\"%s\":%.3f", name, (double)us / 1000);
}

static void put_jobs(struct buf *b, const struct exchange *x)
{
	size_t n = 0;
	buf_puts(b, ",\"jobs\":[");
	for (size_t i = 0; i < x->n_legs && n < JOBS_SHOWN; i++)
		if (x->legs[i].job[0]) {
			buf_puts(b, n++ ? "," : "");
			jsonw_str(b, x->legs[i].job);
		}
	buf_printf(b, "],\"n_jobs\":%zu,\"prompt_tokens\":%llu,\"cached_tokens\":%llu", x->n_accepted,
		   (unsigned long long)x->usage.prompt_tokens, (unsigned long long)x->usage.cached_tokens);
	/* Those of a job that did not end are known only as far as they were streamed. */
	uint64_t got = x->usage.completion_tokens ? x->usage.completion_tokens : x->streamed_tokens;
	buf_printf(b, ",\"completion_tokens\":%llu", (unsigned long long)got);
	if (x->n_done) {
		put_ms(b, "queued_ms", x->timing.queued_us);
		put_ms(b, "ttft_ms", x->timing.first_token_us);
	}
}

static void put_finish(struct buf *b, const struct exchange *x, bool cut)
{
	char finish[64] = "";
	for (int f = FINISH_STOP; f <= FINISH_ERROR; f++)
		if (x->finishes & 1u << f)
			snprintf(finish + strlen(finish), sizeof finish - strlen(finish), "%s%s",
				 finish[0] ? "," : "", finish_name((enum finish)f));
	put_text(b, "finish", cut && !finish[0] ? "cut" : finish);
}

void accesslog_write(struct accesslog *a, const struct exchange *x, bool cut)
{
	if (!a)
		return;
	struct buf b = {0};
	put_time(&b);
	put_text(&b, "remote", x->remote);
	put_text(&b, "method", x->method);
	put_text(&b, "path", x->path);
	/* One that was cut before its reply has none. */
	if (x->status)
		buf_printf(&b, ",\"status\":%u", x->status);
	put_text(&b, "id", x->request_id[0] ? x->request_id : x->shape.id);
	put_text(&b, "error", x->error);
	if (x->key) {
		char name[APIKEY_NAME_MAX];
		uint32_t share;
		apikey_who(x->key, name, &share);
		put_text(&b, "key", name);
	}
	if (x->handed_over)
		put_jobs(&b, x);
	put_ms(&b, "total_ms", clock_us() - x->started_us);
	put_finish(&b, x, cut);
	buf_puts(&b, "}\n");
	pthread_mutex_lock(&a->lock);
	follow(a);
	bool ok = write(a->fd, b.p, b.len) == (ssize_t)b.len;
	if (!ok && !a->failing)
		log_warn("http", "access log: lines are lost: %s", strerror(errno));
	a->failing = !ok;
	pthread_mutex_unlock(&a->lock);
	buf_fini(&b);
}
