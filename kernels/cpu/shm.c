#include "kernels/cpu/shm.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"

enum { WAIT_MS = 20, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static const uint32_t magic = 0x6e727571; /* "qurn" */
static const char prefix[] = "quern-";

/* "shm:" PLACE ":" NAME; the place is equal for processes that can meet. */
enum { PLACE_SIZE = 64, NAME_DIGITS = 32 };

struct coll_rendezvous {
	int fd; /* the listening socket */
	char text[COLL_RENDEZVOUS_SIZE];
};

struct shm_hello { /* sent by a rank that connects */
	uint32_t magic, version;
	int32_t rank, n_ranks;
	uint64_t epoch, bytes;
};

struct shm_welcome { /* the answer, sent with the memory's descriptor */
	uint32_t magic, version;
	uint64_t epoch, bytes;
};

/* ---- the place ---- */

/* Name this boot of this machine and its network namespace, within which abstract names are visible. */
static int find_place(char *out, size_t n, struct why *why)
{
	struct stat st;
	char id[40] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t got = read(fd, id, sizeof id - 1);
		id[got > 0 ? got : 0] = '\0';
		id[strcspn(id, "\n")] = '\0';
		close(fd);
	}
	if (!id[0] || id[strspn(id, "0123456789abcdef-")] || stat("/proc/self/ns/net", &st) < 0)
		return err_why(why, -ENOTSUP, "/proc does not identify this machine");
	snprintf(out, n, "%s.%llu", id, (unsigned long long)st.st_ino);
	return 0;
}

static socklen_t address(const char *name, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s%s", prefix, name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Return the name in a meet's text; NULL and the reason if this process cannot meet there. */
static const char *parse_rendezvous(const char *text, struct why *why, int *rc)
{
	char place[PLACE_SIZE];
	const char *colon;
	if ((*rc = find_place(place, sizeof place, why)))
		return NULL;
	*rc = -EINVAL;
	if (strncmp(text, "shm:", 4) || !(colon = strchr(text + 4, ':')) ||
	    strlen(colon + 1) != NAME_DIGITS || strspn(colon + 1, "0123456789abcdef") != NAME_DIGITS) {
		err_why(why, *rc, "'%.120s' is not a place where workers of a host meet", text);
		return NULL;
	}
	if ((size_t)(colon - (text + 4)) != strlen(place) || memcmp(text + 4, place, strlen(place))) {
		*rc = err_why(why, -ENOTSUP,
			      "rank 0 is on another host, or in another network name space: the workers of "
			      "a group share memory and must run on one host, in one of them");
		return NULL;
	}
	*rc = 0;
	return colon + 1;
}

int shm_rendezvous_new(struct coll_rendezvous **out, char *text, struct why *why)
{
	unsigned char random[NAME_DIGITS / 2];
	char place[PLACE_SIZE], name[NAME_DIGITS + 1];
	struct sockaddr_un addr;
	int rc = find_place(place, sizeof place, why);
	if (rc)
		return rc;
	if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
		return err_why(why, -EIO, "no random numbers: %s", strerror(errno));
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(name + 2 * i, 3, "%02x", random[i]);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, address(name, &addr)) < 0 ||
	    listen(fd, COLL_RANKS_MAX) < 0) {
		rc = err_why(why, -errno, "the meeting socket cannot be created: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	struct coll_rendezvous *m = xcalloc(1, sizeof *m);
	m->fd = fd;
	snprintf(m->text, sizeof m->text, "shm:%s:%s", place, name);
	snprintf(text, COLL_RENDEZVOUS_SIZE, "%s", m->text);
	*out = m;
	return 0;
}

void shm_rendezvous_free(struct coll_rendezvous *m)
{
	if (!m)
		return;
	close(m->fd);
	free(m);
}

/* ---- the peer's identity ---- */

static int check_user(int fd, int64_t *pid, struct why *why)
{
	struct ucred peer;
	socklen_t n = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return err_why(why, -errno, "the peer's user cannot be determined: %s", strerror(errno));
	if (peer.uid != geteuid())
		return err_why(why, -EACCES, "a process of user %u, not of %u", (unsigned)peer.uid,
			       (unsigned)geteuid());
	*pid = peer.pid;
	return 0;
}

bool shm_hung_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};
	return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP);
}

static bool cancelled(const struct coll_args *a)
{
	return a->cancelled && a->cancelled(a->cancelled_arg);
}

/* Wait until there is something to read (0), or the wait is cancelled. */
static int wait_input(int fd, const struct coll_args *a, struct why *why)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (cancelled(a))
			return err_why(why, -ECANCELED, "joining the group was cut short");
		if (poll(&p, 1, WAIT_MS) > 0)
			return 0;
	}
}

/* ---- memory ---- */

static int memory_new(size_t bytes, int *fd, struct why *why)
{
	*fd = memfd_create("quern-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return err_why(why, -errno, "no shared memory: %s", strerror(errno));
	if (ftruncate(*fd, (off_t)bytes) == 0 && fcntl(*fd, F_ADD_SEALS, SEALS) == 0)
		return 0;
	int rc = err_why(why, -errno, "no shared memory of %zu bytes: %s", bytes, strerror(errno));
	close(*fd);
	return rc;
}

/* Map another process's memory: only if it has the right size and is sealed, so that it cannot shrink. */
static int memory_map(struct shm_joined *j, int fd, size_t bytes, struct why *why)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes)
		return err_why(why, -EPROTO, "rank 0 sent memory that is not sealed, or not of %zu bytes",
			       bytes);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return err_why(why, -ENOMEM, "out of memory: %zu bytes shared with the group", bytes);
	j->base = p;
	j->bytes = bytes;
	return 0;
}

/* ---- rank 0 ---- */

static void hang_up(struct shm_joined *j, int rank)
{
	if (j->fd[rank] >= 0)
		close(j->fd[rank]);
	j->fd[rank] = -1;
}

/* Check a connected process: a rank of this group is recorded; any other is refused. */
static void admit(struct shm_joined *j, const struct coll_args *a, size_t bytes, int fd)
{
	struct shm_hello h;
	struct why why = {"it is not a rank of this version"};
	int64_t pid = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	/* A rank sends its hello as soon as it has connected. */
	bool ok = check_user(fd, &pid, &why) == 0 && poll(&p, 1, 50 * WAIT_MS) > 0 &&
		  recv(fd, &h, sizeof h, MSG_DONTWAIT) == (ssize_t)sizeof h && h.magic == magic &&
		  h.version == COLL_ABI;
	if (ok && (h.epoch != a->epoch || h.n_ranks != a->n_ranks || h.rank < 1 || h.rank >= a->n_ranks ||
		   h.bytes != bytes)) {
		err_why(&why, 0, "it claims rank %d of %d, epoch %llu", h.rank, h.n_ranks,
			(unsigned long long)h.epoch);
		ok = false;
	}
	if (!ok) {
		log_warn("group", "connection refused pid=%lld reason=\"%s\"", (long long)pid, why.text);
		close(fd);
		return;
	}
	hang_up(j, h.rank); /* a rank that connects again has given up its first connection */
	j->fd[h.rank] = fd;
	j->pid[h.rank] = pid;
}

static int n_here(const struct shm_joined *j, const struct coll_args *a)
{
	int n = 1;
	for (int r = 1; r < a->n_ranks; r++)
		n += j->fd[r] >= 0;
	return n;
}

static int await_ranks(struct shm_joined *j, const struct coll_args *a, size_t bytes, struct why *why)
{
	while (n_here(j, a) < a->n_ranks) {
		struct pollfd p = {.fd = (*a->mine)->fd, .events = POLLIN};
		if (cancelled(a))
			return err_why(why, -ECANCELED, "waiting for %d of %d ranks was cut short",
				       a->n_ranks - n_here(j, a), a->n_ranks);
		if (poll(&p, 1, WAIT_MS) > 0) {
			int fd = accept4(p.fd, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0)
				admit(j, a, bytes, fd);
		}
		for (int r = 1; r < a->n_ranks; r++)
			if (j->fd[r] >= 0 && shm_hung_up(j->fd[r]))
				return err_why(why, -ECONNRESET, "rank %d ended while the group met", r);
	}
	return 0;
}

static int send_welcome(int to, const struct coll_args *a, size_t bytes, int memory)
{
	struct shm_welcome w = {magic, COLL_ABI, a->epoch, bytes};
	struct iovec iov = {&w, sizeof w};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl = {.bytes = {0}};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &memory, sizeof memory);
	return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof w ? 0 : -ECONNRESET;
}

static int host_group(struct shm_joined *j, const struct coll_args *a, size_t bytes, struct why *why)
{
	int memory = -1;
	assert(a->mine && *a->mine);
	if (strcmp(a->rendezvous, (*a->mine)->text))
		return err_why(why, -ESTALE, "the group's meeting place is no longer this worker's");
	int rc = await_ranks(j, a, bytes, why);
	if (!rc)
		rc = memory_new(bytes, &memory, why);
	if (rc)
		return rc;
	rc = memory_map(j, memory, bytes, why);
	for (int r = 1; !rc && r < a->n_ranks; r++)
		if ((rc = send_welcome(j->fd[r], a, bytes, memory)))
			err_why(why, rc, "rank %d ended while the group met", r);
	close(memory);
	return rc;
}

/* ---- the other ranks ---- */

static int recv_welcome(int fd, const struct coll_args *a, size_t bytes, int *memory, struct why *why)
{
	struct shm_welcome w;
	struct iovec iov = {&w, sizeof w};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n <= 0)
		return err_why(why, -ECONNRESET, "rank 0 ended, or met other ranks, while the group met");
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*memory = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(memory, CMSG_DATA(c), sizeof *memory);
	if (n == (ssize_t)sizeof w && w.magic == magic && w.version == COLL_ABI && w.epoch == a->epoch &&
	    w.bytes == bytes && *memory >= 0)
		return 0;
	if (*memory >= 0)
		close(*memory);
	return err_why(why, -EPROTO, "rank 0 answered without a welcome");
}

static int join_group(struct shm_joined *j, const struct coll_args *a, size_t bytes, struct why *why)
{
	const struct shm_hello h = {magic, COLL_ABI, a->rank, a->n_ranks, a->epoch, bytes};
	struct sockaddr_un addr;
	int rc, memory = -1;
	const char *name = parse_rendezvous(a->rendezvous, why, &rc);
	if (!name)
		return rc;
	int fd = j->fd[0] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_why(why, -errno, "no socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&addr, address(name, &addr)) < 0)
		return err_why(why, -ESTALE, "rank 0 no longer waits at %.120s: %s", a->rendezvous,
			       strerror(errno));
	if ((rc = check_user(fd, &j->pid[0], why)))
		return err_prefix(why, rc, "at %.120s", a->rendezvous);
	if (send(fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h)
		return err_why(why, -ECONNRESET, "rank 0 ended while the group met");
	if ((rc = wait_input(fd, a, why)) || (rc = recv_welcome(fd, a, bytes, &memory, why)))
		return rc;
	rc = memory_map(j, memory, bytes, why);
	close(memory);
	return rc;
}

/* ---- all ranks ---- */

int shm_join(struct shm_joined *j, const struct coll_args *a, size_t bytes, struct why *why)
{
	*j = (struct shm_joined){0};
	for (int r = 0; r < COLL_RANKS_MAX; r++)
		j->fd[r] = -1;
	int rc = a->rank == 0 ? host_group(j, a, bytes, why) : join_group(j, a, bytes, why);
	if (a->mine) {
		shm_rendezvous_free(*a->mine);
		*a->mine = NULL;
	}
	if (rc)
		shm_leave(j);
	return rc;
}

void shm_leave(struct shm_joined *j)
{
	for (int r = 0; r < COLL_RANKS_MAX; r++)
		hang_up(j, r);
	if (j->base)
		munmap(j->base, j->bytes);
	j->base = NULL;
}
