/* trace.c - marks of a step, and the file of its lines. */
#include "worker/trace.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 15 }; /* whole lines: workers append to one file */

struct trace {
	int fd;
	struct buf lines; /* not written yet */
	int64_t last_ns;  /* of the last mark */
	int64_t ns[TRACE_KINDS];
};

const char *trace_name(enum trace_kind k)
{
	static const char *const names[TRACE_KINDS] = {
		[TRACE_RESULT] = "result", [TRACE_MESSAGE] = "message", [TRACE_PREPARE] = "prepare",
		[TRACE_ROWS] = "rows",     [TRACE_LINEAR] = "linear",   [TRACE_ATTENTION] = "attention",
		[TRACE_GROUP] = "group",   [TRACE_HEAD] = "head",       [TRACE_SAMPLE] = "sample",
	};
	return names[k];
}

int trace_open(struct trace **out, const char *path, char *why, size_t why_n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_why(why, why_n, -errno, "cannot write the trace %s: %s", path, strerror(errno));
	struct trace *t = xcalloc(1, sizeof *t);
	t->fd = fd;
	t->last_ns = clock_ns();
	buf_reserve(&t->lines, 2 * FLUSH_BYTES);
	*out = t;
	return 0;
}

/* A trace that cannot be written (a full disk) is no reason to stop. */
static void flush(struct trace *t)
{
	const char *p = t->lines.p;
	for (size_t left = t->lines.len; left;) {
		ssize_t n = write(t->fd, p, left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		p += n;
		left -= (size_t)n;
	}
	buf_clear(&t->lines);
}

void trace_close(struct trace *t)
{
	if (!t)
		return;
	flush(t);
	close(t->fd);
	buf_fini(&t->lines);
	free(t);
}

void trace_load(struct trace *t, const struct trace_load *l)
{
	if (!t)
		return;
	buf_printf(&t->lines,
		   "{\"load\":1,\"pid\":%d,\"device\":\"%s\",\"mode\":\"%s\",\"isa\":\"%s\",\"threads\":%d,"
		   "\"layers_bytes\":%" PRId64 ",\"head_bytes\":%" PRId64 ",\"kv_token_bytes\":%" PRId64
		   ",\"layers_macs\":%" PRId64 ",\"head_macs\":%" PRId64 "}\n",
		   (int)getpid(), l->device, l->mode, l->isa, l->n_threads, l->layers_bytes, l->head_bytes,
		   l->kv_token_bytes, l->layers_macs, l->head_macs);
	flush(t);
}

void trace_add(struct trace *t, enum trace_kind k)
{
	const int64_t now = clock_ns();
	t->ns[k] += now - t->last_ns;
	t->last_ns = now;
}

void trace_end(struct trace *t, const struct trace_step *s)
{
	if (!t)
		return;
	buf_printf(&t->lines,
		   "{\"pid\":%d,\"number\":%" PRIu64 ",\"at_us\":%" PRId64 ",\"rows\":%" PRId64
		   ",\"seqs\":%" PRId64 ",\"samples\":%" PRId64 ",\"context\":%" PRId64 ",\"ns\":{",
		   (int)getpid(), s->number, t->last_ns / 1000, s->rows, s->seqs, s->samples, s->context);
	for (int k = 0; k < TRACE_KINDS; k++) {
		buf_printf(&t->lines, "%s\"%s\":%" PRId64, k ? "," : "", trace_name((enum trace_kind)k),
			   t->ns[k]);
		t->ns[k] = 0;
	}
	buf_puts(&t->lines, "}}\n");
	if (t->lines.len > FLUSH_BYTES)
		flush(t);
}
