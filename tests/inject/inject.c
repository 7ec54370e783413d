#include "tests/inject/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zmq.h>

/* Kinds of a module's calls that may fail.  libmicrohttpd and libzmq read and write only sockets and event
 * descriptors.  Calls on event descriptors never fail in practice, and these libraries end the process if
 * they do, so only socket calls fail. */
enum { RANGES_MAX = 64, MEMORY = 1, FILES = 2, SOCKETS = 4 };

/* Address ranges of the program and of the libraries with calls that may fail. */
static struct range {
	uintptr_t start, end;
	int calls;
} ranges[RANGES_MAX];
static int n_ranges;

static atomic_bool armed, failed;
static enum inject_kind kind_to_fail;
static unsigned long nth_to_fail;
static atomic_ulong counts[INJECT_KINDS];
static _Thread_local bool paused;

/* For code that runs before the sanitizer is set up, as an interposed allocator does. */
#define EARLY __attribute__((no_sanitize("address", "undefined"), noinline))

static int calls_of_library(const char *path)
{
	static const struct {
		const char *name;
		int calls;
	} known[] = {{"libjansson", MEMORY},
		     {"libpcre2", MEMORY},
		     {"libmsgpack", MEMORY},
		     {"libsqlite3", MEMORY | FILES},
		     {"libmicrohttpd", MEMORY | SOCKETS},
		     {"libzmq", SOCKETS}};
	if (!path[0])
		return MEMORY | FILES | SOCKETS; /* the program itself */
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strstr(path, known[i].name))
			return known[i].calls;
	return 0;
}

static int add_module(struct dl_phdr_info *info, size_t size, void *arg)
{
	int calls = calls_of_library(info->dlpi_name);
	(void)size;
	(void)arg;
	for (int i = 0; calls && i < info->dlpi_phnum && n_ranges < RANGES_MAX; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && p->p_flags & PF_X)
			ranges[n_ranges++] = (struct range){info->dlpi_addr + p->p_vaddr,
							    info->dlpi_addr + p->p_vaddr + p->p_memsz, calls};
	}
	return 0;
}

void inject_init(void)
{
	dl_iterate_phdr(add_module, NULL);
}

void inject_arm(enum inject_kind kind, unsigned long nth)
{
	kind_to_fail = kind;
	nth_to_fail = nth;
	failed = false;
	for (int i = 0; i < INJECT_KINDS; i++)
		counts[i] = 0;
	armed = true;
}

bool inject_disarm(void)
{
	armed = false;
	return failed;
}

unsigned long inject_count(enum inject_kind kind)
{
	return counts[kind];
}

void inject_pause(bool on)
{
	paused = on;
}

static char last_dir[INJECT_DIR_SIZE];

void inject_dir_new(char dir[INJECT_DIR_SIZE])
{
	const char *in = access("/dev/shm", W_OK | X_OK) ? "/tmp" : "/dev/shm";
	snprintf(dir, INJECT_DIR_SIZE, "%s/quern-inject-XXXXXX", in);
	if (!mkdtemp(dir)) {
		perror("sweep: a folder");
		exit(2);
	}
	snprintf(last_dir, sizeof last_dir, "%s", dir);
}

void inject_dir_free(const char *dir)
{
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		char name[512];
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
		if (unlink(name) && errno == EISDIR)
			inject_dir_free(name);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

const char *inject_dir(void)
{
	return last_dir;
}

void inject_dir_set(const char *dir)
{
	snprintf(last_dir, sizeof last_dir, "%s", dir);
}

static EARLY bool fails(enum inject_kind kind, const void *caller, int calls, int error)
{
	bool counted = false;
	if (!atomic_load(&armed) || paused)
		return false;
	for (int i = 0; i < n_ranges; i++)
		counted |= (uintptr_t)caller >= ranges[i].start && (uintptr_t)caller < ranges[i].end &&
			   ranges[i].calls & calls;
	if (!counted || atomic_fetch_add(&counts[kind], 1) + 1 != nth_to_fail || kind != kind_to_fail)
		return false;
	failed = true;
	errno = error;
	return true;
}

/* The next definition of a function: the sanitizer's, or without a sanitizer the C library's. */
#ifdef __SANITIZE_ADDRESS__
#define BEHIND(type, name, params, args) type __interceptor_##name params;
#define behind(name)                     __interceptor_##name
#else
#define BEHIND(type, name, params, args)                                                                     \
	static type behind_##name params                                                                     \
	{                                                                                                    \
		static type(*f) params;                                                                      \
		void *next_ = f ? NULL : dlsym(RTLD_NEXT, #name);                                            \
		if (next_)                                                                                   \
			memcpy(&f, &next_, sizeof f);                                                        \
		return f args;                                                                               \
	}
#define behind(name)         behind_##name
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t a, size_t n);
#define behind_malloc        __libc_malloc /* dlsym() itself allocates */
#define behind_calloc        __libc_calloc
#define behind_realloc       __libc_realloc
#define behind_aligned_alloc __libc_memalign
static int behind_posix_memalign(void **p, size_t a, size_t n)
{
	void *q = __libc_memalign(a, n);
	*p = q ? q : *p;
	return q ? 0 : ENOMEM;
}
#endif

/* Define functions of the same names: the loader prefers the program's. */
#define INSTEAD(type, name, params, args, kind, calls, error, none)                                          \
	type name params;                                                                                    \
	EARLY type name params                                                                               \
	{                                                                                                    \
		return fails(kind, __builtin_return_address(0), calls, error) ? (none) : behind(name) args;  \
	}

#ifdef __SANITIZE_ADDRESS__
BEHIND(void *, malloc, (size_t n), (n))
BEHIND(void *, calloc, (size_t n, size_t m), (n, m))
BEHIND(void *, realloc, (void *p, size_t n), (p, n))
BEHIND(void *, aligned_alloc, (size_t a, size_t n), (a, n))
BEHIND(int, posix_memalign, (void **p, size_t a, size_t n), (p, a, n))
#endif
BEHIND(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at))
BEHIND(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
BEHIND(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
BEHIND(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at))
BEHIND(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
BEHIND(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
BEHIND(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
BEHIND(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at))
BEHIND(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
BEHIND(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))

INSTEAD(void *, malloc, (size_t n), (n), INJECT_ALLOC, MEMORY, ENOMEM, NULL)
INSTEAD(void *, calloc, (size_t n, size_t m), (n, m), INJECT_ALLOC, MEMORY, ENOMEM, NULL)
INSTEAD(void *, realloc, (void *p, size_t n), (p, n), INJECT_ALLOC, MEMORY, ENOMEM, NULL)
INSTEAD(void *, aligned_alloc, (size_t a, size_t n), (a, n), INJECT_ALLOC, MEMORY, ENOMEM, NULL)
INSTEAD(int, posix_memalign, (void **p, size_t a, size_t n), (p, a, n), INJECT_ALLOC, MEMORY, ENOMEM, ENOMEM)
INSTEAD(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at),
	INJECT_ALLOC, MEMORY, ENOMEM, MAP_FAILED)
INSTEAD(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n), INJECT_READ, FILES, EIO, -1)
INSTEAD(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), INJECT_READ, FILES, EIO, -1)
INSTEAD(ssize_t, pread64, (int fd, void *p, size_t n, off64_t at), (fd, p, n, at), INJECT_READ, FILES, EIO,
	-1)
INSTEAD(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags), INJECT_READ, SOCKETS,
	ECONNRESET, -1)
INSTEAD(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), INJECT_WRITE, FILES, ENOSPC, -1)
INSTEAD(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), INJECT_WRITE, FILES,
	ENOSPC, -1)
INSTEAD(ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t at), (fd, p, n, at), INJECT_WRITE, FILES,
	ENOSPC, -1)
INSTEAD(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags), INJECT_SEND, SOCKETS,
	ECONNRESET, -1)
INSTEAD(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), INJECT_SEND, SOCKETS,
	ECONNRESET, -1)

/* The sanitizer does not interpose these functions; the linker wraps them (-Wl,--wrap). */
#define WRAPPED(type, name, params, args, kind, error)                                                       \
	type __real_##name params;                                                                           \
	type __wrap_##name params;                                                                           \
	type __wrap_##name params                                                                            \
	{                                                                                                    \
		return fails(kind, __builtin_return_address(0), SOCKETS | FILES, error)                      \
			       ? -1                                                                          \
			       : __real_##name args;                                                         \
	}

WRAPPED(int, fsync, (int fd), (fd), INJECT_WRITE, EIO)
WRAPPED(int, zmq_send, (void *s, const void *p, size_t n, int flags), (s, p, n, flags), INJECT_SEND, EAGAIN)
WRAPPED(int, zmq_msg_send, (zmq_msg_t * m, void *s, int flags), (m, s, flags), INJECT_SEND, EAGAIN)
