#include "controller/fleet/model_server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "store/fingerprint.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	NICE = 10,
	WARN_US = 1000 * 1000, /* between two warnings caused by workers */
	ANSWERS_MAX = 64,      /* answers read ahead of the engine thread: 16 MiB */
};

/* Limits of unread bytes at the sockets: of one worker, and of all.  A worker that reads requests 4 MiB at a
 * time.  The last answer may exceed a limit.  A worker without unread answers gets one answer beyond the
 * total limit, so that other workers cannot keep it waiting. */
#define WORKER_UNREAD ((size_t)8 << 20)
#define ALL_UNREAD    ((size_t)64 << 20)

/* A worker with requests that were not answered, or answers that were not sent. */
struct tally {
	struct tally *next;
	uint64_t worker;
	uint32_t n; /* number of both */
	size_t unread;
};

struct asked {
	struct asked *next;
	struct tally *of;
	struct model_server *server;
	struct bus_want want;
	struct buf answer;
	bool forgotten; /* its worker was forgotten while the answer was made */
};

struct queue {
	struct asked *first, **last;
};

struct model_server {
	char *name, *records;
	struct store_files files;
	char quick_fingerprint[QUICK_FINGERPRINT_SIZE];
	struct checksums sums;
	pthread_t thread;
	int fd; /* eventfd, readable when there are answers */
	/* Used by the thread only: */
	struct manifest manifest; /* n is 0 until the checksums are known */
	int open;                 /* descriptor of the file that was read last; -1: none */
	uint32_t open_file;
	char *bytes; /* [BUS_CHUNK_MAX] */
	int64_t warned_us;
	atomic_bool stop;
	pthread_mutex_t lock; /* protects the following fields */
	pthread_cond_t wake;
	struct queue requests, answers;
	uint32_t n_answers;
	struct asked *busy; /* request being answered; NULL: none */
	struct tally *tallies;
	size_t unread;
	uint32_t n_users; /* the server itself, and each answer that was taken */
	char fingerprint[MANIFEST_FINGERPRINT];
};

/* ---- queues ---- */

static void put(struct queue *q, struct asked *a)
{
	a->next = NULL;
	*q->last = a;
	q->last = &a->next;
}

static struct asked *take(struct queue *q)
{
	struct asked *a = q->first;
	if (a && !(q->first = a->next))
		q->last = &q->first;
	return a;
}

/* ---- tallies, under the lock ---- */

static struct tally *tally_of(struct model_server *s, uint64_t worker)
{
	struct tally *t = s->tallies;
	while (t && t->worker != worker)
		t = t->next;
	if (!t) {
		t = xcalloc(1, sizeof *t);
		*t = (struct tally){.next = s->tallies, .worker = worker};
		s->tallies = t;
	}
	return t;
}

static void tally_drop(struct model_server *s, struct tally *t)
{
	struct tally **at = &s->tallies;
	if (--t->n)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	free(t);
}

static void asked_free(struct asked *a)
{
	struct model_server *s = a->server;
	s->unread -= a->answer.len;
	a->of->unread -= a->answer.len;
	tally_drop(s, a->of);
	buf_fini(&a->answer);
	free(a);
}

static bool may_answer(const struct model_server *s, const struct tally *t)
{
	return t->unread < WORKER_UNREAD && (s->unread < ALL_UNREAD || !t->unread);
}

/* Take the first request that may be answered now; NULL: none. */
static struct asked *take_request(struct model_server *s)
{
	struct asked **at = &s->requests.first, *a;
	if (s->n_answers >= ANSWERS_MAX)
		return NULL;
	while ((a = *at) && !may_answer(s, a->of))
		at = &a->next;
	if (!a)
		return NULL;
	*at = a->next;
	if (!a->next)
		s->requests.last = at;
	return a;
}

static uint32_t drop(struct queue *q, uint64_t worker)
{
	uint32_t n = 0;
	q->last = &q->first;
	for (struct asked *a; (a = *q->last);)
		if (a->of->worker == worker) {
			*q->last = a->next;
			asked_free(a);
			n++;
		} else {
			q->last = &a->next;
		}
	return n;
}

/* ---- the thread ---- */

/* Make the manifest; reads all files of which no record has the checksums. */
static int make_manifest(struct model_server *s, bool known, struct why *why)
{
	const int64_t t0 = clock_us();
	struct manifest m;
	char fingerprint[MANIFEST_FINGERPRINT];
	if (!known)
		log_info("model", "computing checksums files=%zu reason=\"a worker has no model files\"",
			 s->files.n);
	int rc = manifest_make(&m, &s->files, s->name, &s->sums, known, why);
	if (rc)
		return rc;
	manifest_fingerprint(&m, fingerprint);
	log_info("model", "checksums computed fingerprint=%s files=%u mib=%lld ms=%lld", fingerprint, m.n,
		 (long long)(m.bytes >> 20), (long long)((clock_us() - t0) / 1000));
	s->manifest = m;
	pthread_mutex_lock(&s->lock);
	memcpy(s->fingerprint, fingerprint, sizeof fingerprint);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void answer_list(struct model_server *s, struct buf *out)
{
	const struct manifest none = {0};
	struct why why = {""};
	int rc = s->manifest.n ? 0 : make_manifest(s, false, &why);
	if (rc)
		log_warn("model", "no worker can fetch the model reason=\"%s\"", why.text);
	bus_encode_files(rc ? &none : &s->manifest, rc ? why.text : "", out);
}

/* Open the file if it is still the file of which the checksums were made. */
static int open_file(struct model_server *s, uint32_t file, struct why *why)
{
	struct stat st;
	char *path = file_join(s->files.dir, s->files.files[file].name);
	int rc = 0;
	if (s->open < 0 || s->open_file != file) {
		if (s->open >= 0)
			close(s->open);
		s->open = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		s->open_file = file;
	}
	if (s->open < 0 || fstat(s->open, &st) < 0) {
		rc = err_why(why, -errno, "%s: %s", path, strerror(errno));
	} else {
		const struct store_id id = store_id_of(&st);
		if (!store_id_equal(&id, &s->files.files[file].id))
			rc = err_why(why, -EAGAIN,
				     "%s was changed or replaced since the service started: restart it",
				     path);
	}
	free(path);
	return rc;
}

static int read_chunk(struct model_server *s, const struct bus_want *w, struct bus_chunk *k, struct why *why)
{
	if (!s->manifest.n || w->file >= s->manifest.n || w->bytes == 0 || w->bytes > BUS_CHUNK_MAX ||
	    w->offset >= (uint64_t)s->manifest.files[w->file].size)
		return err_why(why, -EBADMSG, "bytes that no file has were asked for");
	int rc = open_file(s, w->file, why);
	for (k->n = 0; !rc && k->n < w->bytes;) {
		const ssize_t n = pread(s->open, s->bytes + k->n, w->bytes - k->n, (off_t)(w->offset + k->n));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = err_why(why, -errno, "%s: %s", s->manifest.files[w->file].name, strerror(errno));
		if (n <= 0)
			break;
		k->n += (uint32_t)n;
	}
	k->bytes = s->bytes;
	return rc ? rc : k->n ? 0 : err_why(why, -EIO, "%s is cut", s->manifest.files[w->file].name);
}

static void answer_chunk(struct model_server *s, const struct bus_want *w, struct buf *out)
{
	struct bus_chunk k = {.file = w->file < MANIFEST_FILES_MAX ? w->file : 0, .offset = w->offset};
	struct why why = {""};
	if (read_chunk(s, w, &k, &why)) {
		const int64_t now_us = clock_us();
		if (!s->warned_us || now_us - s->warned_us > WARN_US) {
			s->warned_us = now_us;
			log_warn("model", "chunk refused reason=\"%s\"", why.text);
		}
		k.n = 0;
	}
	bus_encode_chunk(&k, k.n ? "" : why.text, out);
}

static void *serve(void *arg)
{
	struct model_server *s = arg;
	setpriority(PRIO_PROCESS, 0, NICE); /* this thread only: it may read and hash gigabytes */
	pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stop)) {
		struct asked *a = s->busy = take_request(s);
		if (!a) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		if (a->want.file == BUS_WANT_LIST)
			answer_list(s, &a->answer);
		else
			answer_chunk(s, &a->want, &a->answer);
		pthread_mutex_lock(&s->lock);
		s->busy = NULL;
		s->unread += a->answer.len;
		a->of->unread += a->answer.len;
		if (a->forgotten) {
			asked_free(a);
			continue;
		}
		put(&s->answers, a);
		s->n_answers++;
		eventfd_write(s->fd, 1);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- lifecycle ---- */

/* Give up one use; the last user frees the server.  Called under the lock, which is released. */
static void server_leave(struct model_server *s)
{
	struct asked *a;
	const bool last = --s->n_users == 0;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	while ((a = take(&s->requests)) || (a = take(&s->answers)))
		asked_free(a);
	if (s->open >= 0)
		close(s->open);
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	manifest_fini(&s->manifest);
	store_files_fini(&s->files);
	free(s->bytes);
	free(s->name);
	free(s->records);
	free(s);
}

int model_server_start(struct model_server **out, const char *path, const char *name, const char *records,
		       struct why *why)
{
	struct model_server *s = xcalloc(1, sizeof *s);
	sigset_t all, before;
	struct why unknown;
	s->name = xstrdup(name);
	s->records = records ? xstrdup(records) : NULL;
	s->sums = (struct checksums){.records = s->records, .stop = &s->stop};
	s->open = s->fd = -1;
	s->n_users = 1;
	s->requests.last = &s->requests.first;
	s->answers.last = &s->answers.first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	int rc = store_files_list(path, &s->files, why);
	if (!rc)
		rc = store_files_quick_fingerprint(&s->files, s->quick_fingerprint, why);
	if (rc)
		goto fail;
	s->bytes = xmalloc(BUS_CHUNK_MAX);
	s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->fd < 0) {
		rc = err_why(why, -errno, "no eventfd: %s", strerror(errno));
		goto fail;
	}
	make_manifest(s, true, &unknown);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&s->thread, NULL, serve, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		rc = err_why(why, -rc, "no thread for the model's files: %s", strerror(rc));
		goto fail;
	}
	*out = s;
	return 0;

fail:
	pthread_mutex_lock(&s->lock);
	server_leave(s);
	return rc;
}

void model_server_stop(struct model_server *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	atomic_store(&s->stop, true);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&s->lock);
	server_leave(s);
}

/* ---- called by the engine's thread ---- */

const char *model_server_quick_fingerprint(const struct model_server *s)
{
	return s->quick_fingerprint;
}

void model_server_fingerprint(struct model_server *s, char out[MANIFEST_FINGERPRINT])
{
	pthread_mutex_lock(&s->lock);
	memcpy(out, s->fingerprint, MANIFEST_FINGERPRINT);
	pthread_mutex_unlock(&s->lock);
}

bool model_server_request(struct model_server *s, uint64_t worker, const struct bus_want *w)
{
	pthread_mutex_lock(&s->lock);
	struct tally *t = tally_of(s, worker);
	const bool fits = t->n < MODEL_SERVER_ASKED;
	if (fits) {
		struct asked *a = xcalloc(1, sizeof *a);
		*a = (struct asked){.of = t, .server = s, .want = *w};
		t->n++;
		put(&s->requests, a);
		pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	return fits;
}

int model_server_fd(const struct model_server *s)
{
	return s->fd;
}

/* The bytes have been written to the connection, or were dropped.  Any thread. */
static void release(void *bytes, void *answer)
{
	struct asked *a = answer;
	struct model_server *s = a->server;
	(void)bytes;
	pthread_mutex_lock(&s->lock);
	asked_free(a);
	pthread_cond_signal(&s->wake);
	server_leave(s);
}

bool model_server_take(struct model_server *s, struct model_answer *out)
{
	eventfd_t n;
	pthread_mutex_lock(&s->lock);
	struct asked *a = take(&s->answers);
	if (!a)
		eventfd_read(s->fd, &n);
	else if (s->n_answers-- == ANSWERS_MAX)
		pthread_cond_signal(&s->wake);
	s->n_users += a != NULL;
	if (a)
		*out = (struct model_answer){a->of->worker, a->answer.p, a->answer.len, release, a};
	pthread_mutex_unlock(&s->lock);
	return a != NULL;
}

void model_server_forget(struct model_server *s, uint64_t worker)
{
	pthread_mutex_lock(&s->lock);
	if (s->busy && s->busy->of->worker == worker)
		s->busy->forgotten = true;
	drop(&s->requests, worker);
	s->n_answers -= drop(&s->answers, worker);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}
