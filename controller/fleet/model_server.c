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
	WARN_US = 1000 * 1000, /* between two warnings that a worker can cause */
	ANSWERS_MAX = 64,      /* read ahead of the engine thread: 16 MiB */
};

struct asked {
	struct asked *next;
	uint64_t worker;
	struct bus_want want;
	struct buf answer;
};

struct queue {
	struct asked *first, **last;
};

struct model_server {
	char *name, *records;
	struct store_files files;
	char sketch[SKETCH_SIZE];
	struct checksums sums;
	pthread_t thread;
	int fd; /* eventfd */
	/* of the thread */
	struct manifest manifest; /* n is 0 until it is known */
	int open;                 /* the file that was read last; -1: none */
	uint32_t open_file;
	char *bytes; /* [BUS_CHUNK_MAX] */
	int64_t warned_us;
	atomic_bool stop;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t wake;
	struct queue requests, answers;
	uint32_t n_answers;
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

static void asked_free(struct asked *a)
{
	buf_fini(&a->answer);
	free(a);
}

static uint32_t count(const struct queue *q, uint64_t worker)
{
	uint32_t n = 0;
	for (const struct asked *a = q->first; a; a = a->next)
		n += a->worker == worker;
	return n;
}

static uint32_t drop(struct queue *q, uint64_t worker)
{
	uint32_t n = 0;
	q->last = &q->first;
	for (struct asked *a; (a = *q->last);)
		if (a->worker == worker) {
			*q->last = a->next;
			asked_free(a);
			n++;
		} else {
			q->last = &a->next;
		}
	return n;
}

/* ---- the thread ---- */

/* Reads all files, where no record has their checksums. */
static int make_manifest(struct model_server *s, bool known, char *why, size_t why_n)
{
	const int64_t t0 = clock_us();
	struct manifest m;
	char fingerprint[MANIFEST_FINGERPRINT];
	if (!known)
		log_info("model", "checksums of the model's files, for a worker that has none: files=%zu",
			 s->files.n);
	int rc = manifest_make(&m, &s->files, s->name, &s->sums, known, why, why_n);
	if (rc)
		return rc;
	manifest_fingerprint(&m, fingerprint);
	log_info("model", "fingerprint=%s files=%u mib=%lld ms=%lld", fingerprint, m.n,
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
	char why[512] = "";
	int rc = s->manifest.n ? 0 : make_manifest(s, false, why, sizeof why);
	if (rc)
		log_warn("model", "no worker can fetch the model: %s", why);
	bus_encode_files(rc ? &none : &s->manifest, rc ? why : "", out);
}

/* Opens the file, if it is still the one that the checksums are of. */
static int open_file(struct model_server *s, uint32_t file, char *why, size_t why_n)
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
		rc = err_why(why, why_n, -errno, "%s: %s", path, strerror(errno));
	} else {
		const struct store_id id = store_id_of(&st);
		if (!store_id_equal(&id, &s->files.files[file].id))
			rc = err_why(why, why_n, -EAGAIN,
				     "%s was changed or replaced since the service started: restart it",
				     path);
	}
	free(path);
	return rc;
}

static int read_chunk(struct model_server *s, const struct bus_want *w, struct bus_chunk *k, char *why,
		      size_t why_n)
{
	if (!s->manifest.n || w->file >= s->manifest.n || w->bytes == 0 || w->bytes > BUS_CHUNK_MAX ||
	    w->offset >= (uint64_t)s->manifest.files[w->file].size)
		return err_why(why, why_n, -EBADMSG, "bytes that no file has were asked for");
	int rc = open_file(s, w->file, why, why_n);
	for (k->n = 0; !rc && k->n < w->bytes;) {
		const ssize_t n = pread(s->open, s->bytes + k->n, w->bytes - k->n, (off_t)(w->offset + k->n));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = err_why(why, why_n, -errno, "%s: %s", s->manifest.files[w->file].name,
				     strerror(errno));
		if (n <= 0)
			break;
		k->n += (uint32_t)n;
	}
	k->bytes = s->bytes;
	return rc ? rc : k->n ? 0 : err_why(why, why_n, -EIO, "%s is cut", s->manifest.files[w->file].name);
}

static void answer_chunk(struct model_server *s, const struct bus_want *w, struct buf *out)
{
	struct bus_chunk k = {.file = w->file < MANIFEST_FILES_MAX ? w->file : 0, .offset = w->offset};
	char why[512] = "";
	if (read_chunk(s, w, &k, why, sizeof why)) {
		const int64_t now_us = clock_us();
		if (!s->warned_us || now_us - s->warned_us > WARN_US) {
			s->warned_us = now_us;
			log_warn("model", "a worker gets no part of the model: %s", why);
		}
		k.n = 0;
	}
	bus_encode_chunk(&k, k.n ? "" : why, out);
}

static void *serve(void *arg)
{
	struct model_server *s = arg;
	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread: it may read and hash gigabytes */
	pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stop)) {
		struct asked *a = s->n_answers < ANSWERS_MAX ? take(&s->requests) : NULL;
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
		put(&s->answers, a);
		s->n_answers++;
		eventfd_write(s->fd, 1);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- lifecycle ---- */

static void server_free(struct model_server *s)
{
	struct asked *a;
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
		       char *why, size_t why_n)
{
	struct model_server *s = xcalloc(1, sizeof *s);
	sigset_t all, before;
	char unknown[512];
	s->name = xstrdup(name);
	s->records = records ? xstrdup(records) : NULL;
	s->sums = (struct checksums){.records = s->records, .stop = &s->stop};
	s->open = s->fd = -1;
	s->requests.last = &s->requests.first;
	s->answers.last = &s->answers.first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, NULL);
	int rc = store_files_list(path, &s->files, why, why_n);
	if (!rc)
		rc = store_files_sketch(&s->files, s->sketch, why, why_n);
	if (rc)
		goto fail;
	s->bytes = xmalloc(BUS_CHUNK_MAX);
	s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (s->fd < 0) {
		rc = err_why(why, why_n, -errno, "no eventfd: %s", strerror(errno));
		goto fail;
	}
	make_manifest(s, true, unknown, sizeof unknown);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&s->thread, NULL, serve, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		rc = err_why(why, why_n, -rc, "no thread for the model's files: %s", strerror(rc));
		goto fail;
	}
	*out = s;
	return 0;

fail:
	server_free(s);
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
	server_free(s);
}

/* ---- for the engine's thread ---- */

const char *model_server_sketch(const struct model_server *s)
{
	return s->sketch;
}

void model_server_fingerprint(struct model_server *s, char out[MANIFEST_FINGERPRINT])
{
	pthread_mutex_lock(&s->lock);
	memcpy(out, s->fingerprint, MANIFEST_FINGERPRINT);
	pthread_mutex_unlock(&s->lock);
}

bool model_server_ask(struct model_server *s, uint64_t worker, const struct bus_want *w)
{
	pthread_mutex_lock(&s->lock);
	const bool fits = count(&s->requests, worker) + count(&s->answers, worker) < MODEL_SERVER_ASKED;
	if (fits) {
		struct asked *a = xcalloc(1, sizeof *a);
		a->worker = worker;
		a->want = *w;
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

bool model_server_take(struct model_server *s, uint64_t *worker, struct buf *out)
{
	eventfd_t n;
	pthread_mutex_lock(&s->lock);
	struct asked *a = take(&s->answers);
	if (!a)
		eventfd_read(s->fd, &n);
	else if (s->n_answers-- == ANSWERS_MAX)
		pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (!a)
		return false;
	*worker = a->worker;
	*out = a->answer;
	a->answer = (struct buf){0};
	asked_free(a);
	return true;
}

void model_server_forget(struct model_server *s, uint64_t worker)
{
	pthread_mutex_lock(&s->lock);
	drop(&s->requests, worker);
	s->n_answers -= drop(&s->answers, worker);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}
