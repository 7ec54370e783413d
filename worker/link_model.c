/* link_model.c - finds the model of a load: at the path that the controller names, in this host's cache, or
 * at the controller, which sends it in chunks.
 * Main thread.
 *
 *     path there, and the same model?  --yes--> it is opened
 *        | no
 *     want the list of files  -->  controller
 *     cache has a model with these checksums?  --yes--> it is opened
 *        | no
 *     want chunks, WINDOW at a time  -->  controller    (store/incoming.h stores them)
 *
 * During work on the disk the socket is lent to the beat thread, as during a load.  In between, this thread
 * receives the messages; those for the load, or for later, are put back at the end. */
#include "worker/link_impl.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "store/incoming.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	WINDOW = 16, /* chunks in flight: 4 MiB, a few milliseconds of a fast network */
	/* before missing chunks are requested again: the controller may have dropped the requests */
	STALL_MS = 30000,
	/* before the list is requested again: the controller may have to read the model for it */
	LIST_MS = 60000,
	LOCKED_MS = 500, /* between two checks whether another worker of this host has finished */
	LOG_MS = 5000,
	DAMAGED_MAX = 8, /* chunks with a wrong checksum before the connection is given up */
};

struct search {
	struct link *l;
	const struct bus_load *load;
	const char *root;
	char *records;
	struct checksums sums;
	struct manifest files;
	zmq_msg_t kept[STASH]; /* messages for later */
	int n_kept;
};

/* ---- messages ---- */

static void beat(struct link *l)
{
	if (clock_us() < l->next_beat_us)
		return;
	pthread_mutex_lock(&l->lock);
	l->loading = true;
	link_send_beat(l);
	l->loading = false;
	pthread_mutex_unlock(&l->lock);
}

/* Keep a message that is not about files.  -ECANCELED: it ends the search. */
static int keep(struct search *s, zmq_msg_t *m, int type)
{
	struct bus_msg b;
	if (type == BUS_BEAT)
		return bus_decode(zmq_msg_data(m), zmq_msg_size(m), &b, NULL) == 0 && b.beat.epoch == 0
			       ? -ECANCELED
			       : 0;
	if (s->n_kept == STASH) {
		log_warn("link", "message dropped waiting=%d", STASH);
		return 0;
	}
	zmq_msg_init(&s->kept[s->n_kept]);
	zmq_msg_move(&s->kept[s->n_kept++], m);
	return type == BUS_LOAD || type == BUS_STOP || type < 0 ? -ECANCELED : 0;
}

/* Receive BUS_FILES or BUS_CHUNK into m and return its type; 0: none until until_us; -ECANCELED: the load
 * is void. */
static int next_message(struct search *s, zmq_msg_t *m, int64_t until_us)
{
	struct link *l = s->l;
	for (;;) {
		if (link_take(l, m)) {
			const int type = bus_peek(zmq_msg_data(m), zmq_msg_size(m), NULL);
			if (type == BUS_FILES || type == BUS_CHUNK)
				return type;
			int rc = keep(s, m, type);
			if (rc)
				return rc;
			continue;
		}
		link_read_monitor(l);
		if (!l->welcome || l->unknown || link_stopping() || link_leaving() || link_grace_over(l))
			return -ECANCELED;
		beat(l);
		const int64_t now_us = clock_us();
		if (now_us >= until_us)
			return 0;
		int64_t ms = ((until_us < l->next_beat_us ? until_us : l->next_beat_us) - now_us) / 1000 + 1;
		zmq_pollitem_t items[] = {{l->sock, 0, ZMQ_POLLIN, 0}, {l->monitor, 0, ZMQ_POLLIN, 0}};
		zmq_poll(items, 2, ms < 0 ? 0 : ms > BUS_BEAT_MS ? BUS_BEAT_MS : (long)ms);
	}
}

static void put_back(struct search *s)
{
	while (s->n_kept) {
		zmq_msg_t *m = &s->kept[--s->n_kept];
		link_put_back(s->l, m);
		zmq_msg_close(m);
	}
}

static int want(struct search *s, uint32_t file, uint64_t offset, uint32_t bytes)
{
	const struct bus_msg m = {.type = BUS_WANT, .want = {s->load->epoch, file, offset, bytes}};
	return link_send(s->l, &m);
}

/* ---- work on the disk ---- */

/* Lend the socket to the beat thread, until work_end(). */
static void work_begin(struct link *l, enum bus_doing doing, int64_t total)
{
	loading_begin(&l->progress, total);
	loading_now(&l->progress, doing);
	link_lend(l, true);
}

static void work_end(struct link *l)
{
	link_reclaim(l);
}

/* ---- the path ---- */

/* Compare all contents, if the fingerprints of both models are known. */
static int check_contents(struct search *s, struct why *why)
{
	struct store_files l;
	struct manifest m;
	char fingerprint[MANIFEST_FINGERPRINT];
	int rc = 0;
	if (!s->load->fingerprint[0] || store_files_list(s->load->model, &l, NULL))
		return 0;
	if (!manifest_make(&m, &l, "", &s->sums, true, NULL)) {
		manifest_fingerprint(&m, fingerprint);
		if (strcmp(fingerprint, s->load->fingerprint) != 0)
			rc = err_why(why, -EINVAL,
				     "%s on this host is not the model that the controller serves: their "
				     "contents differ",
				     s->load->model);
		manifest_fini(&m);
	}
	store_files_fini(&l);
	return rc;
}

static int look_at_path(struct search *s, struct why *why)
{
	work_begin(s->l, BUS_DOING_OPEN, 0);
	int rc = store_files_check(s->load->model, s->load->quick_fingerprint, why);
	if (!rc)
		rc = check_contents(s, why);
	work_end(s->l);
	return rc;
}

/* ---- the cache ---- */

static int request_list(struct search *s, struct why *why)
{
	zmq_msg_t m;
	int rc = 0;
	loading_begin(&s->l->progress, 0);
	loading_now(&s->l->progress, BUS_DOING_WAIT);
	zmq_msg_init(&m);
	while (!rc) {
		if (want(s, BUS_WANT_LIST, 0, 0)) {
			rc = -ECANCELED;
			break;
		}
		const int64_t until_us = clock_us() + LIST_MS * 1000LL;
		while ((rc = next_message(s, &m, until_us)) == BUS_CHUNK)
			; /* from an earlier load */
	}
	if (rc == BUS_FILES)
		rc = bus_decode_files(zmq_msg_data(&m), zmq_msg_size(&m), &s->files, why);
	zmq_msg_close(&m);
	if (rc == -ENODATA)
		return err_prefix(why, rc, "the controller cannot give this worker the model");
	return rc;
}

static int look_in_cache(struct search *s, struct model_found *out, struct why *why)
{
	work_begin(s->l, BUS_DOING_CHECK, s->files.bytes);
	int rc = cached_find(s->root, &s->files, &s->sums, out->path, why);
	work_end(s->l);
	if (!rc)
		log_info("link", "model found in the cache path=%s", out->path);
	else if (why->text[0])
		log_warn("link", "model not taken from the cache reason=\"%s\"", why->text);
	return rc;
}

/* ---- the controller ---- */

struct pace {
	int64_t begun_us, logged_us, begun_bytes, last_us;
	int n_damaged;
};

static void report(struct search *s, const struct incoming *in, struct pace *p)
{
	const int64_t done = incoming_done(in), now_us = clock_us();
	atomic_store(&s->l->progress.done, (uint64_t)done);
	if (s->files.bytes)
		atomic_store(&s->l->permille, (unsigned)((double)done / (double)s->files.bytes * 1000));
	if (now_us - p->logged_us < LOG_MS * 1000LL && !incoming_is_complete(in))
		return;
	p->logged_us = now_us;
	log_info("link", "fetching the model mib=%lld total_mib=%lld mib_per_s=%.1f", (long long)(done >> 20),
		 (long long)(s->files.bytes >> 20),
		 (double)(done - p->begun_bytes) / (1 << 20) / ((double)(now_us - p->begun_us + 1) / 1e6));
}

/* Handle a received chunk. */
static int take_chunk(struct search *s, struct incoming *in, zmq_msg_t *m, struct pace *p, struct why *why)
{
	struct bus_chunk k;
	int rc = bus_decode_chunk(zmq_msg_data(m), zmq_msg_size(m), &k, why);
	if (rc == -ENODATA)
		return err_prefix(why, rc, "the controller cannot give this worker the model");
	if (rc && ++p->n_damaged < DAMAGED_MAX) {
		log_warn("link", "chunk requested again reason=\"%s\"", why->text);
		incoming_rewind(in);
		return 0;
	}
	if (rc)
		return rc;
	link_lend(s->l, true);
	rc = incoming_put(in, k.file, k.offset, k.bytes, k.n, why);
	link_reclaim(s->l);
	if (rc == 0)
		p->last_us = clock_us();
	return rc < 0 ? rc : 0;
}

static int pull(struct search *s, struct incoming *in, struct why *why)
{
	struct pace p = {.begun_us = clock_us(), .begun_bytes = incoming_done(in)};
	int rc = 0;
	loading_begin(&s->l->progress, s->files.bytes);
	loading_now(&s->l->progress, BUS_DOING_FETCH);
	p.last_us = p.begun_us;
	report(s, in, &p);
	while (!rc && !incoming_is_complete(in)) {
		uint32_t file, bytes;
		uint64_t offset;
		while (incoming_outstanding(in) < WINDOW && incoming_want(in, &file, &offset, &bytes))
			if (want(s, file, offset, bytes))
				return -ECANCELED;
		zmq_msg_t m;
		zmq_msg_init(&m);
		rc = next_message(s, &m, p.last_us + STALL_MS * 1000LL);
		if (rc == 0) {
			log_warn("link", "chunks requested again reason=\"none arrived\" ms=%d", STALL_MS);
			incoming_rewind(in);
			p.last_us = clock_us();
		} else if (rc == BUS_CHUNK) {
			rc = take_chunk(s, in, &m, &p, why);
			report(s, in, &p);
		} else if (rc > 0) {
			rc = 0; /* the list again: it was requested twice */
		}
		zmq_msg_close(&m);
	}
	return rc;
}

/* Start the fetch.  If another worker of this host is fetching the model, wait for its files. */
static int open_incoming(struct search *s, struct incoming **in, struct model_found *out, struct why *why)
{
	for (bool waits = false;; waits = true) {
		int rc = waits ? look_in_cache(s, out, why) : -ENOENT;
		if (rc != -ENOENT)
			return rc;
		work_begin(s->l, BUS_DOING_CHECK, s->files.bytes);
		rc = incoming_open(in, s->root, &s->files, &s->sums, why);
		work_end(s->l);
		if (rc != -EBUSY)
			return rc;
		if (!waits)
			log_info("link", "model wait reason=\"%s\"", why->text);
		loading_now(&s->l->progress, BUS_DOING_WAIT);
		const int64_t until_us = clock_us() + LOCKED_MS * 1000LL;
		zmq_msg_t m;
		zmq_msg_init(&m);
		while ((rc = next_message(s, &m, until_us)) > 0)
			;
		zmq_msg_close(&m);
		if (rc)
			return rc;
	}
}

static int fetch(struct search *s, struct model_found *out, struct why *why)
{
	struct incoming *in = NULL;
	int rc = open_incoming(s, &in, out, why);
	if (rc || !in)
		return rc;
	if (!(rc = pull(s, in, why))) {
		work_begin(s->l, BUS_DOING_CHECK, s->files.bytes);
		rc = incoming_publish(in, out->path, why);
		work_end(s->l);
	}
	if (!rc)
		log_info("link", "model fetched path=%s", out->path);
	incoming_close(in);
	atomic_store(&s->l->permille, 0);
	return rc;
}

/* ---- search ---- */

/* Handle a controller that sends no files.  Files missing at the path are reported when the model is
 * opened. */
static int without_files(const struct search *s, int rc, struct model_found *out, struct why *why)
{
	err_append(why, rc, "%s",
		   s->load->offers ? "; there is no place to fetch it to: set QUERN_MODELS, or give --cache"
		   : rc == -EINVAL
			   ? "; copy the controller's files there, or restart the service if its model "
			     "was replaced"
			   : "; the controller gives its files only to workers with keys (--curve-key) "
			     "or on ipc://: copy them there");
	(void)out;
	return rc;
}

static int search(struct search *s, struct model_found *out, struct why *why)
{
	int rc = look_at_path(s, why);
	if (!rc || rc == -ECANCELED) {
		snprintf(out->path, sizeof out->path, "%s", s->load->model);
		return rc;
	}
	if (!s->load->offers || !s->root)
		return without_files(s, rc, out, why);
	log_info("link", "model not at the controller's path reason=\"%s\"", why->text);
	if ((rc = request_list(s, why)))
		return rc;
	manifest_fingerprint(&s->files, out->fingerprint);
	if ((rc = look_in_cache(s, out, why)) != -ENOENT)
		return rc;
	if (!s->l->args->fetch)
		return err_why(
			why, -ENOENT,
			"the controller's model is neither at %s nor in %s, and --fetch never forbids to "
			"fetch it: copy it there, quern pull it, or leave --fetch out",
			s->load->model, s->root);
	return fetch(s, out, why);
}

/* Compute the model's own sketch, which the controller did not compare, for a comparison with a later load.
 * "": unknown. */
static void quick_fingerprint_own(struct link *l, const char *path, char out[BUS_QUICK_FINGERPRINT_SIZE])
{
	struct store_files files;
	work_begin(l, BUS_DOING_OPEN, 0);
	if (!store_files_list(path, &files, NULL)) {
		if (store_files_quick_fingerprint(&files, out, NULL))
			out[0] = '\0';
		store_files_fini(&files);
	}
	work_end(l);
}

bool link_model_unchanged(struct link *l)
{
	char now[BUS_QUICK_FINGERPRINT_SIZE] = "";
	const uint64_t epoch = l->epoch, ended = l->ended;
	quick_fingerprint_own(l, l->found.path, now);
	l->epoch = epoch; /* the new load's epoch; step has the previous one */
	l->ended = ended;
	const char *what = quick_fingerprint_difference(l->found.quick_fingerprint, now);
	if (what)
		log_warn("link", "model replaced since it was loaded, loading again path=%s reason=\"%s\"",
			 l->found.path, what);
	return !what;
}

int link_find_model(struct link *l, const struct bus_load *load, struct model_found *out, struct why *why)
{
	struct search s = {.l = l, .load = load, .root = l->args->cache};
	_Static_assert((int)BUS_QUICK_FINGERPRINT_SIZE >= (int)QUICK_FINGERPRINT_SIZE,
		       "a sketch fits a message");
	*out = (struct model_found){0};
	if (!load->quick_fingerprint[0]) {
		snprintf(out->path, sizeof out->path, "%s", load->model);
		quick_fingerprint_own(l, out->path, out->quick_fingerprint);
		return 0;
	}
	s.records = s.root ? cached_records(s.root) : NULL;
	s.sums = (struct checksums){.records = s.records, .bytes = &l->progress.done};
	int rc = search(&s, out, why);
	if (!rc && quick_fingerprint_is_known(load->quick_fingerprint))
		snprintf(out->quick_fingerprint, sizeof out->quick_fingerprint, "%s",
			 load->quick_fingerprint);
	else if (!rc)
		quick_fingerprint_own(l, out->path, out->quick_fingerprint);
	put_back(&s);
	manifest_fini(&s.files);
	free(s.records);
	loading_begin(&l->progress, 0);
	return rc;
}
