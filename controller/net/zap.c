#include "controller/net/zap.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"
#define ZAP_LOCAL    "local" /* domain of sockets on ipc:// */

enum {
	LIST_MAX = 4 << 20,    /* bytes of the list file */
	CHECK_MS = 250,        /* interval at which the file is checked for changes */
	FRAMES = 16,           /* frames read of a request; version 1.0 has 7 */
	TEXT_MAX = 256,        /* bytes of a text frame, with its NUL */
	KEY_BYTES = 32,        /* bytes of a public key */
	REFUSED_LOG_MAX = 100, /* lines logged about refusals per CHECK_MS */
};

/* Identifies a version of the file. */
struct version {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec changed, modified;
};

struct zap {
	struct curve_key key; /* the service's key; public "": none */
	char *path;           /* path of the list; NULL: none */
	void *socket;         /* REP */
	int wake;             /* eventfd */
	pthread_t thread;
	atomic_bool quit, reload;
	atomic_uint_fast64_t generation;
	struct version version; /* version of the list as last read; used by the thread only */
	unsigned n_refused;     /* refusals since the last check */
	pthread_mutex_t lock;   /* protects list and n_list */
	struct zap_entry *list; /* sorted by key */
	size_t n_list;
};

static void wake(const struct zap *z)
{
	uint64_t one = 1;
	/* The write must succeed, because nothing else wakes the thread.  EAGAIN: it is being woken
	 * already. */
	while (write(z->wake, &one, sizeof one) < 0 && errno != EAGAIN)
		;
}

/* ---- the list ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct zap_entry *)a)->public, ((const struct zap_entry *)b)->public);
}

/* Return the next word of (*s)[0..*n) and advance past it. */
static const char *next_word(const char **s, size_t *n, size_t *word_n)
{
	while (*n && strchr(" \t\r", **s))
		(*s)++, (*n)--;
	const char *word = *s;
	while (*n && !strchr(" \t\r", **s))
		(*s)++, (*n)--;
	*word_n = (size_t)(*s - word);
	return word;
}

static unsigned role_of(const char *s, size_t n)
{
	static const struct {
		const char *name;
		unsigned roles;
	} roles[] = {{"client", ZAP_CLIENT}, {"worker", ZAP_WORKER}, {"admin", ZAP_CLIENT | ZAP_ADMIN}};
	for (size_t i = 0; i < 3; i++)
		if (strlen(roles[i].name) == n && memcmp(roles[i].name, s, n) == 0)
			return roles[i].roles;
	return 0;
}

/* Parse one line; out->roles 0: empty or a comment. */
static int parse_line(const char *s, size_t n, struct zap_entry *out, struct why *why)
{
	size_t role_n, key_n;
	*out = (struct zap_entry){0};
	const char *role = next_word(&s, &n, &role_n);
	if (!role_n || *role == '#')
		return 0;
	const char *key = next_word(&s, &n, &key_n);
	out->roles = role_of(role, role_n);
	if (!out->roles)
		return err_why(why, -EINVAL, "a line must be: client, admin or worker, a public key, a name");
	if (!curve_valid(key, key_n))
		return err_why(why, -EINVAL, "the second word must be a public key of %d characters",
			       CURVE_CHARS);
	memcpy(out->public, key, key_n);
	return 0;
}

/* Sort by key; duplicate keys become one entry with all their roles. */
static size_t merge(struct zap_entry *list, size_t n)
{
	size_t kept = 0;
	qsort(list, n, sizeof *list, compare);
	for (size_t i = 0; i < n; i++) {
		if (kept && strcmp(list[kept - 1].public, list[i].public) == 0)
			list[kept - 1].roles |= list[i].roles;
		else
			list[kept++] = list[i];
	}
	return kept;
}

int zap_parse(const char *text, size_t n, struct zap_entry **out, size_t *out_n, struct why *why)
{
	struct zap_entry *list = NULL, e;
	size_t count = 0, room = 0;
	if (memchr(text, '\0', n))
		return err_why(why, -EINVAL, "not a text file");
	for (size_t line = 1; n; line++) {
		const char *end = memchr(text, '\n', n);
		size_t k = end ? (size_t)(end - text) : n;
		if (parse_line(text, k, &e, why)) {
			free(list);
			return err_prefix(why, -EINVAL, "line %zu", line);
		}
		if (e.roles && count == room) {
			room = room ? 2 * room : 16;
			list = xrealloc(list, room, sizeof *list);
		}
		if (e.roles)
			list[count++] = e;
		k += end != NULL;
		text += k, n -= k;
	}
	*out = list;
	*out_n = count ? merge(list, count) : 0;
	return 0;
}

static struct version version_of(const char *path)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return (struct version){0};
	return (struct version){st.st_dev, st.st_ino, st.st_size, st.st_ctim, st.st_mtim};
}

static bool same_version(const struct version *a, const struct version *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec &&
	       a->modified.tv_sec == b->modified.tv_sec && a->modified.tv_nsec == b->modified.tv_nsec;
}

static int read_list(struct zap *z, struct why *why)
{
	char *text;
	size_t n, n_list;
	struct zap_entry *list;
	struct stat st;
	/* Taken before the read: a concurrent write then counts as another version, and the file is read
	 * again. */
	z->version = version_of(z->path);
	int rc = stat(z->path, &st) == 0 && (st.st_mode & 022)
			 ? err_why(why, -EACCES, "%s: writable by other users; chmod go-w", z->path)
			 : file_read(z->path, LIST_MAX, &text, &n, why);
	if (rc)
		return rc;
	rc = zap_parse(text, n, &list, &n_list, why);
	free(text);
	if (rc)
		return err_prefix(why, rc, "%s", z->path);
	pthread_mutex_lock(&z->lock);
	free(z->list);
	z->list = list;
	z->n_list = n_list;
	pthread_mutex_unlock(&z->lock);
	atomic_fetch_add(&z->generation, 1);
	return 0;
}

/* Read the list again if it has changed.  On an error the previous list stays in force: a typing error must
 * not lock all peers out. */
static void check_list(struct zap *z)
{
	struct why why;
	bool requested = atomic_exchange(&z->reload, false);
	z->n_refused = 0;
	if (!z->path)
		return;
	struct version now = version_of(z->path);
	if (!requested && same_version(&now, &z->version))
		return;
	if (read_list(z, &why))
		log_error("zap", "previous list kept reason=\"%s\"", why.text);
	else
		log_info("zap", "list read again keys=%zu", z->n_list);
}

unsigned zap_roles(struct zap *z, const char *public)
{
	struct zap_entry wanted = {0};
	if (!public || strlen(public) != CURVE_CHARS || !z->key.public[0])
		return 0;
	if (strcmp(public, z->key.public) == 0)
		return ZAP_CLIENT | ZAP_WORKER | ZAP_ADMIN;
	memcpy(wanted.public, public, CURVE_SIZE);
	pthread_mutex_lock(&z->lock);
	const struct zap_entry *e =
		z->n_list ? bsearch(&wanted, z->list, z->n_list, sizeof wanted, compare) : NULL;
	unsigned roles = e ? e->roles : 0;
	pthread_mutex_unlock(&z->lock);
	return roles;
}

uint64_t zap_generation(const struct zap *z)
{
	return atomic_load(&z->generation);
}

void zap_reload(struct zap *z)
{
	atomic_store(&z->reload, true);
	wake(z);
}

bool zap_has_key(const struct zap *z)
{
	return z && z->key.public[0];
}

/* ---- requests ---- */

struct zap_request {
	char version[TEXT_MAX], id[TEXT_MAX], domain[TEXT_MAX], address[TEXT_MAX], mechanism[TEXT_MAX];
	size_t id_n;
	uint8_t credentials[KEY_BYTES];
	size_t credentials_n;
	int n; /* frames read */
};

/* Store one frame.  Frames: version, request id, domain, address, routing id, mechanism, credentials.  The
 * routing id is chosen by the peer and ignored. */
static void parse_frame(struct zap_request *q, const void *p, size_t n)
{
	char *const texts[] = {q->version, q->id, q->domain, q->address, NULL, q->mechanism};
	if (q->n < 6 && texts[q->n] && n < TEXT_MAX) {
		memcpy(texts[q->n], p, n);
		texts[q->n][n] = '\0';
		q->id_n = q->n == 1 ? n : q->id_n;
	}
	if (q->n == 6) {
		q->credentials_n = n;
		if (n == KEY_BYTES)
			memcpy(q->credentials, p, n);
	}
	q->n++;
}

/* Return whether the peer is this user or root.  address: "host:UID:GID:PID", libzmq's notation for
 * SO_PEERCRED on ipc://. */
static bool is_own_user(const char *address)
{
	unsigned long uid, gid, pid;
	int end = 0;
	const char *at = address + strlen(address);
	for (int colons = 0; colons < 3; colons++) {
		while (at > address && at[-1] != ':')
			at--;
		if (at == address)
			return false;
		at--;
	}
	if (sscanf(at, ":%lu:%lu:%lu%n", &uid, &gid, &pid, &end) != 3 || at[end])
		return false;
	return uid == 0 || uid == (unsigned long)geteuid();
}

/* Return NULL if the peer is accepted, with its public key in user; else the reason for the refusal. */
static const char *authenticate(struct zap *z, const struct zap_request *q, char user[CURVE_SIZE])
{
	user[0] = '\0';
	if (q->n < 6 || strcmp(q->version, "1.0") != 0)
		return "unknown version of ZAP";
	if (strcmp(q->domain, ZAP_LOCAL) == 0)
		return strcmp(q->mechanism, "NULL") == 0 && is_own_user(q->address) ? NULL : "another user";
	if (strcmp(q->mechanism, "CURVE") != 0 || q->credentials_n != KEY_BYTES ||
	    !zmq_z85_encode(user, q->credentials, KEY_BYTES))
		return "no key";
	unsigned needed = strcmp(q->domain, ZAP_BUS) == 0    ? ZAP_WORKER
			  : strcmp(q->domain, ZAP_JOBS) == 0 ? ZAP_CLIENT
							     : 0;
	return needed && (zap_roles(z, user) & needed) ? NULL : "the key is not in the list";
}

static void reply(struct zap *z, const struct zap_request *q)
{
	char user[CURVE_SIZE];
	const char *refused = authenticate(z, q, user);
	if (refused && z->n_refused++ < REFUSED_LOG_MAX)
		log_warn("zap", "peer refused socket=%s from=%s key=%s reason=\"%s\"", q->domain, q->address,
			 user[0] ? user : "none", refused);
	const char *frames[] = {
		"1.0", q->id, refused ? "400" : "200", refused ? refused : "OK", refused ? "" : user, ""};
	/* Every frame must be sent: a REP socket receives nothing before its reply is complete. */
	for (int i = 0; i < 6; i++)
		while (zmq_send(z->socket, frames[i], i == 1 ? q->id_n : strlen(frames[i]),
				i < 5 ? ZMQ_SNDMORE : 0) < 0 &&
		       (errno == EINTR || errno == EAGAIN) && !atomic_load(&z->quit))
			;
}

static bool read_request(struct zap *z, struct zap_request *q)
{
	int more = 1;
	*q = (struct zap_request){0};
	while (more) {
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, z->socket, q->n ? 0 : ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&m);
			return false;
		}
		if (q->n < FRAMES)
			parse_frame(q, zmq_msg_data(&m), zmq_msg_size(&m));
		more = zmq_msg_more(&m);
		zmq_msg_close(&m);
	}
	return true;
}

static void *zap_main(void *arg)
{
	struct zap *z = arg;
	struct zap_request q;
	while (!atomic_load(&z->quit)) {
		zmq_pollitem_t items[] = {{.socket = z->socket, .events = ZMQ_POLLIN},
					  {.fd = z->wake, .events = ZMQ_POLLIN}};
		uint64_t n;
		zmq_poll(items, 2, z->path ? CHECK_MS : -1);
		if ((items[1].revents & ZMQ_POLLIN) && read(z->wake, &n, sizeof n) < 0)
			log_warn("zap", "eventfd failed reason=\"%s\"", strerror(errno));
		check_list(z);
		while (!atomic_load(&z->quit) && read_request(z, &q))
			reply(z, &q);
	}
	return NULL;
}

/* ---- lifecycle ---- */

int zap_guard(struct zap *z, void *socket, const char *endpoint, const char *domain)
{
	if (!z)
		return 0;
	if (strncmp(endpoint, "ipc://", 6) == 0)
		return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, ZAP_LOCAL, strlen(ZAP_LOCAL)) ? -errno : 0;
	/* Without a ZAP handler libzmq accepts every peer that has a key: the thread must outlive the
	 * sockets. */
	return z->key.public[0] ? curve_server(socket, &z->key, domain) : 0;
}

static void zap_free(struct zap *z)
{
	if (z->socket)
		zmq_close(z->socket);
	if (z->wake >= 0)
		close(z->wake);
	curve_forget(&z->key);
	free(z->list);
	free(z->path);
	pthread_mutex_destroy(&z->lock);
	free(z);
}

int zap_start(void *zmq, const struct curve_key *key, const char *allow, struct zap **out, struct why *why)
{
	int zero = 0, rc = 0;
	struct zap *z = xcalloc(1, sizeof *z);
	pthread_mutex_init(&z->lock, NULL);
	z->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (z->wake < 0)
		rc = err_why(why, -errno, "ZAP: %s", strerror(errno));
	if (key)
		z->key = *key;
	if (!rc && allow) {
		z->path = xstrdup(allow);
		rc = read_list(z, why);
	}
	if (rc)
		goto fail;
	z->socket = zmq_socket(zmq, ZMQ_REP);
	if (!z->socket || zmq_setsockopt(z->socket, ZMQ_LINGER, &zero, sizeof zero) ||
	    zmq_bind(z->socket, ZAP_ENDPOINT)) {
		rc = err_why(why, -errno, "ZAP: %s", zmq_strerror(errno));
		goto fail;
	}
	rc = pthread_create(&z->thread, NULL, zap_main, z);
	if (rc) {
		rc = err_why(why, -rc, "ZAP thread: %s", strerror(rc));
		goto fail;
	}
	*out = z;
	return 0;
fail:
	zap_free(z);
	return rc;
}

void zap_stop(struct zap *z)
{
	if (!z)
		return;
	atomic_store(&z->quit, true);
	wake(z);
	pthread_join(z->thread, NULL);
	zap_free(z);
}
