/* trace.c - collects the marks of a step, and writes them to the file. */
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

/* Steps are kept as numbers and formatted many at a time, since formatting a line takes as long as a wait
 * that it measures. */
enum { KEPT = 128 };

struct kept {
	struct trace_step step;
	int64_t at_ns;
	int64_t experts; /* experts read, in all layers */
	int64_t ns[TRACE_KINDS];
};

struct trace {
	int fd;
	struct buf lines;       /* text being written */
	struct kept kept[KEPT]; /* [n_kept] not written yet; the next entry collects the current marks */
	int n_kept;
	int64_t last_ns; /* time of the last mark */
};

const char *trace_name(enum trace_kind k)
{
	static const char *const names[TRACE_KINDS] = {
		[TRACE_RESULT] = "result", [TRACE_MESSAGE] = "message", [TRACE_PREPARE] = "prepare",
		[TRACE_ROWS] = "rows",     [TRACE_LINEAR] = "linear",   [TRACE_ATTENTION] = "attention",
		[TRACE_GROUP] = "group",   [TRACE_HEAD] = "head",       [TRACE_MASK] = "mask",
		[TRACE_SAMPLE] = "sample",
	};
	return names[k];
}

int trace_open(struct trace **out, const char *path, struct why *why)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_why(why, -errno, "cannot write the trace %s: %s", path, strerror(errno));
	struct trace *t = xcalloc(1, sizeof *t);
	t->fd = fd;
	t->last_ns = clock_ns();
	*out = t;
	return 0;
}

static void add_line(struct trace *t, const struct kept *k)
{
	buf_printf(&t->lines,
		   "{\"pid\":%d,\"number\":%" PRIu64 ",\"at_us\":%" PRId64 ",\"rows\":%" PRId64
		   ",\"seqs\":%" PRId64 ",\"samples\":%" PRId64 ",\"context\":%" PRId64
		   ",\"experts\":%" PRId64 ",\"ns\":{",
		   (int)getpid(), k->step.number, k->at_ns / 1000, k->step.rows, k->step.seqs,
		   k->step.samples, k->step.context, k->experts);
	for (int i = 0; i < TRACE_KINDS; i++)
		buf_printf(&t->lines, "%s\"%s\":%" PRId64, i ? "," : "", trace_name((enum trace_kind)i),
			   k->ns[i]);
	buf_puts(&t->lines, "}}\n");
}

/* Write whole lines, since several workers append to one file.  An error (a full disk) only ends
 * the trace. */
static void flush(struct trace *t)
{
	for (int i = 0; i < t->n_kept; i++)
		add_line(t, &t->kept[i]);
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
	t->kept[0] = t->kept[t->n_kept];
	t->n_kept = 0;
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
		   ",\"layers_macs\":%" PRId64 ",\"head_macs\":%" PRId64 ",\"experts\":%" PRId64
		   ",\"expert_bytes\":%" PRId64 "}\n",
		   (int)getpid(), l->device, l->mode, l->isa, l->n_threads, l->layers_bytes, l->head_bytes,
		   l->kv_token_bytes, l->layers_macs, l->head_macs, l->experts, l->expert_bytes);
	flush(t);
}

void trace_experts(struct trace *t, int64_t n)
{
	if (t)
		t->kept[t->n_kept].experts += n;
}

void trace_add(struct trace *t, enum trace_kind k)
{
	const int64_t now = clock_ns();
	t->kept[t->n_kept].ns[k] += now - t->last_ns;
	t->last_ns = now;
}

void trace_end(struct trace *t, const struct trace_step *s)
{
	if (!t)
		return;
	struct kept *k = &t->kept[t->n_kept++];
	k->step = *s;
	k->at_ns = t->last_ns;
	t->kept[t->n_kept] = (struct kept){0};
	if (t->n_kept == KEPT - 1)
		flush(t);
}
