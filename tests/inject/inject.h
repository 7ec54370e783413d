/* inject.h - system calls that fail on demand.
 * inject.c interposes the allocator, read, write and send for the whole process.  It is linked into a program
 * with AddressSanitizer's shared library (gcc), or without sanitizers.  Calls fail for quern's code and for
 * libraries that report such failures to quern: jansson, SQLite, PCRE2, msgpack-c, libmicrohttpd; and for
 * libzmq's sockets.  Allocations by libzmq and GnuTLS never fail: these libraries end the process when memory
 * is out. */
#ifndef QUERN_TESTS_INJECT_INJECT_H
#define QUERN_TESTS_INJECT_INJECT_H

#include <stdbool.h>

enum inject_kind {
	INJECT_ALLOC, /* malloc and its like, mmap: ENOMEM */
	INJECT_READ,  /* read, pread: EIO; recv: ECONNRESET */
	INJECT_WRITE, /* write, pwrite: ENOSPC; fsync: EIO */
	INJECT_SEND,  /* send, sendmsg: ECONNRESET; quern's zmq_send, zmq_msg_send: EAGAIN */
	INJECT_KINDS
};

/* Find the address ranges of the libraries.  Call once, before anything else. */
void inject_init(void);

/* Start counting; the nth call of this kind, over all threads, fails.  nth 0: no call fails. */
void inject_arm(enum inject_kind kind, unsigned long nth);
/* Stop injecting failures.  Return whether a call failed. */
bool inject_disarm(void);
/* Return the calls between inject_arm() and inject_disarm(). */
unsigned long inject_count(enum inject_kind kind);

/* While on, this thread's calls are neither counted nor fail: it acts as a client. */
void inject_pause(bool on);

/* Make a folder for one attempt, on a memory file system if there is one: syncing a real disk would only be
 * slow.  One folder at a time, made by the process that forks. */
enum { INJECT_DIR_SIZE = 64 };
void inject_dir_new(char dir[INJECT_DIR_SIZE]);
void inject_dir_free(const char *dir); /* with its content */
/* Return the folder last made or set. */
const char *inject_dir(void);
void inject_dir_set(const char *dir);

#endif
