/* inject.h - calls of the system that fail when they are told to.
 * Linked into a program with AddressSanitizer's shared library (gcc), or without sanitizers, inject.c
 * stands before the allocator, read, write and send for the whole process: for our code and for the libraries whose
 * failures we have to take (jansson, SQLite, PCRE2, msgpack-c, libmicrohttpd; libzmq's sockets).
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

/* Once, before anything else: finds out which code belongs to whom. */
void inject_init(void);

/* From here on the nth call of this kind fails, counted over all threads; 0: none does. */
void inject_arm(enum inject_kind kind, unsigned long nth);
/* No call fails any more.  Did one? */
bool inject_disarm(void);
/* Calls since inject_arm(), which inject_disarm() ends. */
unsigned long inject_count(enum inject_kind kind);

/* What this thread calls while on is neither counted nor fails: it plays a client. */
void inject_pause(bool on);

/* A folder of the attempt's own, in memory where there is such a file system: what fails here is told
 * to, and a disk that syncs would only make it slow.  One at a time, by the process that forks. */
enum { INJECT_DIR_SIZE = 64 };
void inject_dir_new(char dir[INJECT_DIR_SIZE]);
void inject_dir_free(const char *dir); /* with the files in it */
/* The one made last. */
const char *inject_dir(void);

#endif
