/* inject.h - system calls that fail on demand.
 * Linked into a program with AddressSanitizer's shared library (gcc), or without sanitizers, inject.c
 * interposes the allocator, read, write and send for the whole process: for quern's code and for libraries
 * that report such failures to it (jansson, SQLite, PCRE2, msgpack-c, libmicrohttpd; libzmq's sockets).
 * libzmq's and GnuTLS's own memory is left alone: they end the process when it is out. */
#ifndef QUERN_TESTS_INJECT_INJECT_H
#define QUERN_TESTS_INJECT_INJECT_H

#include <stdbool.h>

enum inject_kind {
	INJECT_ALLOC, /* malloc and its like, mmap: ENOMEM */
	INJECT_READ,  /* read, pread: EIO; recv: ECONNRESET */
	INJECT_WRITE, /* write, pwrite, fsync: ENOSPC */
	INJECT_SEND,  /* send, sendmsg: ECONNRESET; zmq_send, zmq_msg_send of ours: EAGAIN */
	INJECT_KINDS
};

/* Once, before anything else: finds the address ranges of the libraries. */
void inject_init(void);

/* From here on the nth call of this kind fails, counted over all threads; 0: none does. */
void inject_arm(enum inject_kind kind, unsigned long nth);
/* No call fails any more.  True: one did. */
bool inject_disarm(void);
/* Calls since inject_arm(), which inject_disarm() ends. */
unsigned long inject_count(enum inject_kind kind);

/* While on, calls of this thread are neither counted nor fail: it acts as a client. */
void inject_pause(bool on);

/* A folder for one attempt, in memory where there is such a file system: failures are injected, and syncing a
 * disk would only be slow.  One at a time, by the process that forks. */
enum { INJECT_DIR_SIZE = 64 };
void inject_dir_new(char dir[INJECT_DIR_SIZE]);
void inject_dir_free(const char *dir); /* with all that is in it */
/* The one made last, or set. */
const char *inject_dir(void);
void inject_dir_set(const char *dir);

#endif
