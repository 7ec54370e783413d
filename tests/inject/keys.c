/* keys.c - the paths of keys: create, write and read them; read the list of allowed clients, reload it while
 * the service runs, and look clients up.  This thread, paused, acts as the clients. */
#include "base/clock.h"
#include "base/err.h"
#include "controller/http/api_keys.h"
#include "controller/net/zap.h"
#include "proto/curve.h"
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

/* This thread's own sends must not fail. */
int __real_zmq_send(void *s, const void *p, size_t n, int flags);

enum { ALLOW_MS = 3000, READ_AGAIN_MS = 3000 };

int keys_files(struct why *why)
{
	struct curve_key key, back;
	char path[128];
	int rc = curve_generate(&key, why);
	if (!rc)
		rc = curve_write(&key, inject_dir(), "k", why);
	snprintf(path, sizeof path, "%s/k.key", inject_dir());
	return rc ? rc : curve_read(path, true, &back, why);
}

int keys_api(struct why *why)
{
	static const char text[] = "0123456789abcdef0123 name=ann share=2 requests-per-minute=60\n"
				   "abcdef0123456789abcd name=bob tokens-per-minute=1000\n";
	struct api_keys *k = NULL;
	char path[64];
	int fd = memfd_create("keys", MFD_CLOEXEC);
	inject_pause(true);
	if (fd < 0 || write(fd, text, sizeof text - 1) < 0 || fchmod(fd, 0600))
		abort();
	inject_pause(false);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int rc = api_keys_open(path, &k, why);
	if (!rc)
		api_keys_close(k);
	close(fd);
	return rc;
}

/* ---- allowed clients ---- */

static struct curve_key service, clients[2];

void keys_prepare(void)
{
	struct why why;
	if (curve_generate(&service, &why) || curve_generate(&clients[0], &why) ||
	    curve_generate(&clients[1], &why)) {
		fprintf(stderr, "sweep: %s\n", why.text);
		exit(2);
	}
}

static void write_list(const char *path, int n)
{
	FILE *f = fopen(path, "w");
	if (!f || fchmod(fileno(f), 0600))
		abort();
	for (int i = 0; i < n; i++)
		fprintf(f, "client %s name%d\n", clients[i].public, i);
	fclose(f);
}

/* Check that a message of this client arrives. */
static int check_allowed(void *zmq, void *router, const struct curve_key *key, struct why *why)
{
	int zero = 0;
	char endpoint[128], part[256];
	size_t n = sizeof endpoint;
	zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &n);
	void *s = zmq_socket(zmq, ZMQ_DEALER);
	zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero);
	int rc = curve_client(s, key, service.public) || zmq_connect(s, endpoint) ? -errno : 0;
	if (!rc) {
		__real_zmq_send(s, "x", 1, 0);
		rc = zmq_recv(router, part, sizeof part, 0) < 0 ? -EACCES : 0;
	}
	if (!rc)
		zmq_recv(router, part, sizeof part, 0);
	zmq_close(s);
	return rc ? err_why(why, rc, "a client of the list was rejected: %s", zmq_strerror(-rc)) : 0;
}

static int read_again(struct zap *z, const char *path, struct why *why)
{
	uint64_t before = zap_generation(z);
	write_list(path, 2);
	inject_pause(false);
	zap_reload(z);
	inject_pause(true);
	for (int ms = 0; ms < READ_AGAIN_MS; ms += 10) {
		if (zap_generation(z) != before)
			return 0;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return err_why(why, -EIO, "the list was not read again");
}

int keys_allow(struct why *why)
{
	struct zap *z = NULL;
	char path[128];
	int ms = ALLOW_MS;
	inject_pause(true);
	snprintf(path, sizeof path, "%s/allow", inject_dir());
	write_list(path, 1);
	void *zmq = zmq_ctx_new();
	inject_pause(false);
	int rc = zap_start(zmq, &service, path, &z, why);
	inject_pause(true);
	void *router = rc ? NULL : zmq_socket(zmq, ZMQ_ROUTER);
	if (!rc) {
		zmq_setsockopt(router, ZMQ_RCVTIMEO, &ms, sizeof ms);
		rc = zap_guard(z, router, "tcp://127.0.0.1:*", ZAP_JOBS);
		if (!rc && zmq_bind(router, "tcp://127.0.0.1:*"))
			rc = -errno;
		if (rc)
			err_why(why, rc, "no socket: %s", zmq_strerror(-rc));
	}
	if (!rc)
		rc = check_allowed(zmq, router, &clients[0], why);
	if (!rc)
		rc = read_again(z, path, why);
	if (!rc)
		rc = check_allowed(zmq, router, &clients[1], why);
	if (router)
		zmq_close(router);
	inject_pause(false);
	zap_stop(z);
	zmq_ctx_term(zmq);
	return rc;
}
