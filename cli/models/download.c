#include "cli/models/download.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/models/part.h"
#include "cli/terminal/term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
	OPEN_FILES_MAX = DOWNLOAD_CONNECTIONS_MAX,
	SAVE_US = 1000000,
	PROGRESS_US = 100000,
	HASH_STEP = 8 << 20, /* bytes hashed between two checks of the network */
};
/* Space to leave free on the disk. */
static const int64_t margin = 64 << 20;

struct fetch {
	struct http_call call; /* must be first: http_wait() returns a pointer to it */
	struct part *part;     /* NULL: idle */
	struct part_piece *piece;
	int64_t before;  /* piece->done when the call began */
	bool whole_only; /* the server has sent a whole file although a range was requested */
	int nth;         /* retries without a byte received */
	struct why why;  /* reason for aborting a body */
};

struct run {
	struct download *d;
	struct http *h;
	struct part *open[OPEN_FILES_MAX]; /* NULL: a free slot */
	size_t next;                       /* index of the next file in the list to open */
	struct fetch fetches[DOWNLOAD_CONNECTIONS_MAX];
	int faults;       /* consecutive faults, without a byte received between them */
	int64_t pause_us; /* time before which no call begins, because of faults or the server's
			   * Retry-After */
	int64_t finished; /* bytes of finished files */
	int64_t total, saved_us, shown_us;
	struct why *why;
};

int download_check_space(const struct file_list *l, const char *dir, struct why *why)
{
	struct statvfs st;
	int64_t need = margin;
	for (size_t i = 0; i < l->n; i++) {
		bool finished;
		if (l->files[i].chosen)
			need += l->files[i].size - part_on_disk(dir, &l->files[i], &finished);
	}
	if (statvfs(dir, &st) < 0)
		return err_why(why, -errno, "%s: %s", dir, strerror(errno));
	const double have = (double)st.f_bavail * (double)st.f_frsize;
	char a[32], b[32];
	if (have >= (double)need)
		return 0;
	return err_why(why, -ENOSPC,
		       "the disk is too small: %s are still to fetch, and %s has %s free; remove models "
		       "(quern list, "
		       "quern rm), or set QUERN_MODELS to a directory on another disk",
		       term_bytes((double)need, a, sizeof a), dir, term_bytes(have, b, sizeof b));
}

/* ---- chunks ---- */

/* Check, before the first byte is stored, that the reply is what was requested. */
static int check_reply(struct fetch *f)
{
	const struct http_reply *r = &f->call.reply;
	const struct file_entry *file = f->part->file;
	if (file->etag[0] && r->etag[0] && strcmp(file->etag, r->etag) != 0)
		return err_why(&f->why, -ESTALE,
			       "%s has changed on the server while it was fetched; run the command again",
			       file->path);
	if (file->digest == DIGEST_SHA256 && r->linked[0] && strcmp(file->hex, r->linked) != 0)
		return err_why(&f->why, -ESTALE,
			       "%s: the server announces the checksum %.16s..., its list has %.16s...",
			       file->path, r->linked, file->hex);
	if (r->status == 206) {
		if (r->total != file->size)
			return err_why(&f->why, -EBADMSG,
				       "%s: the server's file has %" PRId64 " bytes, its list says %" PRId64,
				       file->path, r->total, file->size);
		if (r->from != f->call.from || r->to > f->call.to)
			return err_why(&f->why, -ERANGE,
				       "%s: the server sent another range than bytes %" PRId64 " to %" PRId64,
				       file->path, f->call.from, f->call.to);
		return 0;
	}
	if (f->call.from >= 0) {
		f->whole_only = true;
		return err_why(&f->why, -ERANGE, "%s: the server sends no ranges", file->path);
	}
	if (r->length >= 0 && r->length != file->size)
		return err_why(&f->why, -EBADMSG,
			       "%s: the server's file has %" PRId64 " bytes, its list says %" PRId64,
			       file->path, r->length, file->size);
	return 0;
}

static int take(struct http_call *c, const char *p, size_t n)
{
	struct fetch *f = (struct fetch *)c;
	const int64_t room = f->piece->to - f->piece->from - f->piece->done;
	if (f->piece->done == f->before) {
		int rc = check_reply(f);
		if (rc)
			return rc;
	}
	if ((int64_t)n > room)
		return err_why(&f->why, -ERANGE, "%s: the server sent more than was asked for",
			       f->part->file->path);
	return part_write(f->part, f->piece, p, n, &f->why);
}

static int begin(struct run *r, struct fetch *f, struct part *p, struct part_piece *piece)
{
	*f = (struct fetch){.part = p, .piece = piece, .before = piece->done};
	f->call.url = p->file->url;
	f->call.body = take;
	/* A server without ranges sends the file from its beginning. */
	if (!p->ranges)
		f->before = piece->done = 0;
	f->call.from = p->ranges ? piece->from + piece->done : -1;
	f->call.to = piece->to - 1;
	int rc = http_begin(r->h, &f->call, r->why);
	piece->busy = !rc;
	if (rc)
		f->part = NULL;
	return rc;
}

static void end(struct run *r, struct fetch *f)
{
	http_end(r->h, &f->call);
	f->piece->busy = false;
	f->part = NULL;
}

/* Start over with the file. */
static int restart(struct run *r, struct part *p, bool ranges)
{
	for (int i = 0; i < r->d->connections; i++)
		if (r->fetches[i].part == p)
			end(r, &r->fetches[i]);
	return part_restart(p, ranges, r->why);
}

/* Schedule a retry of an incomplete chunk, which will continue where it stopped. */
static int try_again(struct run *r, const struct fetch *f, int rc)
{
	const struct http_call *c = &f->call;
	if (f->piece->done > f->before)
		r->faults = 0;
	const int nth = r->faults++;
	if (nth >= HTTP_RETRIES + r->d->connections || c->reply.retry_after > HTTP_RETRY_AFTER_MAX)
		return rc;
	const int64_t at = clock_us() + (int64_t)http_delay_ms(c, nth / r->d->connections) * 1000;
	if (at > r->pause_us)
		r->pause_us = at;
	return 0;
}

static int ended(struct run *r, struct fetch *f)
{
	const struct http_call *c = &f->call;
	struct part *p = f->part;
	int rc = 0;
	r->d->received += f->piece->done - f->before;
	const bool all = f->piece->done == f->piece->to - f->piece->from;
	if (f->whole_only) {
		const bool first = p->ranges;
		end(r, f);
		return first ? restart(r, p, false) : 0;
	}
	if (c->given_up) {
		rc = err_why(r->why, c->given_up, "%s", f->why.text);
		if (rc == -ERANGE)
			rc = try_again(r, f, rc);
	} else if (c->code || c->reply.status / 100 != 2) {
		rc = http_why(c, r->why);
		/* A signed URL that a redirect led to has expired. */
		const bool expired = c->n_redirects > 0 && c->reply.status == 403;
		if (http_is_transient(c) || expired)
			rc = try_again(r, f, rc);
	} else if (!all) {
		rc = err_why(r->why, -EBADMSG, "%s: the server sent less than was asked for", p->file->path);
		rc = try_again(r, f, rc);
	} else {
		r->faults = 0;
	}
	end(r, f);
	return rc;
}

/* ---- files ---- */

static int open_next(struct run *r, struct part **out)
{
	const struct file_list *l = r->d->list;
	size_t place = 0;
	while (place < OPEN_FILES_MAX && r->open[place])
		place++;
	*out = NULL;
	for (; place < OPEN_FILES_MAX && r->next < l->n && !*out; r->next++) {
		const struct file_entry *f = &l->files[r->next];
		bool finished;
		if (!f->chosen)
			continue;
		r->d->unchecked += f->digest == DIGEST_NONE;
		part_on_disk(r->d->dir, f, &finished);
		if (finished) {
			r->finished += f->size;
			continue;
		}
		*out = r->open[place] = xcalloc(1, sizeof **out);
		int rc = part_open(*out, r->d->dir, f, r->why);
		if (rc)
			return rc;
	}
	return 0;
}

static int find_piece(struct run *r, struct part **p, struct part_piece **piece)
{
	for (size_t i = 0; i < OPEN_FILES_MAX; i++)
		if ((*p = r->open[i]) && (*piece = part_free_piece(*p)))
			return 0;
	int rc = open_next(r, p);
	*piece = !rc && *p ? part_free_piece(*p) : NULL;
	return rc;
}

static int begin_more(struct run *r)
{
	int rc = 0;
	for (int i = 0; i < r->d->connections && !rc && clock_us() >= r->pause_us; i++) {
		struct part *p;
		struct part_piece *piece;
		if (r->fetches[i].part)
			continue;
		rc = find_piece(r, &p, &piece);
		if (rc || !piece)
			break;
		rc = begin(r, &r->fetches[i], p, piece);
	}
	return rc;
}

/* Hash the next bytes of each open file, and finish the files that are complete.  *busy: there is more to
 * hash. */
static int settle(struct run *r, bool *busy)
{
	int rc = 0;
	*busy = false;
	for (size_t i = 0; i < OPEN_FILES_MAX && !rc; i++) {
		struct part *p = r->open[i];
		bool caught_up;
		if (!p)
			continue;
		rc = part_hash(p, HASH_STEP, &caught_up, r->why);
		*busy = *busy || !caught_up;
		if (rc || !caught_up || !part_is_complete(p))
			continue;
		rc = part_finish(p, r->why);
		if (rc == -EBADMSG && !p->corrupt_before) {
			p->corrupt_before = true;
			term_progress_end();
			term_note("%s; it is fetched again", r->why->text);
			rc = restart(r, p, p->ranges);
			continue;
		}
		if (rc == -EBADMSG) {
			restart(r, p, p->ranges);
			rc = -EBADMSG;
		}
		if (rc)
			continue;
		r->finished += p->file->size;
		part_close(p);
		free(p);
		r->open[i] = NULL;
	}
	return rc;
}

static int look_after(struct run *r, bool last)
{
	const int64_t now = clock_us();
	int64_t done = r->finished;
	const char *doing = "";
	int rc = 0;
	const bool save = last || now - r->saved_us >= SAVE_US;
	for (size_t i = OPEN_FILES_MAX; i-- > 0;) {
		struct part *p = r->open[i];
		if (!p || p->fd < 0)
			continue;
		done += part_done(p);
		doing = p->file->path;
		if (save && !rc)
			rc = part_save(p, r->why);
	}
	if (save)
		r->saved_us = now;
	if (r->d->progress && (last || now - r->shown_us >= PROGRESS_US)) {
		r->shown_us = now;
		r->d->progress(r->d->ctx, doing, done, r->total);
	}
	return rc;
}

static bool is_idle(const struct run *r)
{
	for (size_t i = 0; i < OPEN_FILES_MAX; i++)
		if (r->open[i])
			return false;
	return true;
}

static int step(struct run *r)
{
	bool busy;
	int rc = begin_more(r);
	if (!rc)
		rc = settle(r, &busy);
	if (rc)
		return rc;
	for (int n = 0; n < r->d->connections && !rc; n++) {
		struct http_call *c = http_wait(r->h, n || busy || is_idle(r) ? 0 : 50);
		if (!c)
			break;
		rc = ended(r, (struct fetch *)c);
	}
	return rc ? rc : look_after(r, false);
}

int download_run(struct http *h, struct download *d, struct why *why)
{
	struct run *r = xcalloc(1, sizeof *r);
	int rc = 0;
	*r = (struct run){.d = d, .h = h, .why = why};
	d->received = 0;
	d->unchecked = 0;
	file_list_chosen(d->list, &r->total);
	do {
		rc = interrupt_pending() ? err_why(why, -EINTR, "interrupted") : step(r);
	} while (!rc && !(is_idle(r) && r->next >= d->list->n));
	for (int i = 0; i < d->connections; i++)
		if (r->fetches[i].part) {
			d->received += r->fetches[i].piece->done - r->fetches[i].before;
			end(r, &r->fetches[i]);
		}
	struct why unheard;
	r->why = rc ? &unheard : why;
	const int saved = look_after(r, true);
	for (size_t i = 0; i < OPEN_FILES_MAX; i++)
		if (r->open[i]) {
			part_close(r->open[i]);
			free(r->open[i]);
		}
	free(r);
	return rc ? rc : saved;
}
