/* access_log.h - write one line of JSON for each finished HTTP request: client, path, status, the request's
 * jobs, their times and how they ended.  Never contents, never keys.  Owns: the file. */
#ifndef QUERN_CONTROLLER_HTTP_ACCESS_LOG_H
#define QUERN_CONTROLLER_HTTP_ACCESS_LOG_H

#include "base/err.h"
#include "controller/http/exchange.h"

#include <stddef.h>

struct access_log;

/* Open the log.  path: a file to append to (created with mode 0640), or "-" for stdout.  -errno with the
 * reason. */
int access_log_open(const char *path, struct access_log **out, struct why *why);
void access_log_close(struct access_log *a); /* NULL is fine */

/* Write the line of x.  Any thread; the caller holds x->lock.  One write(2): a line that the disk does not
 * take is lost, and the first loss is logged.  A file that was moved away (logrotate) is reopened within a
 * second.  cut: the client did not receive the whole reply.  Does nothing if a is NULL. */
void access_log_write(struct access_log *a, const struct exchange *x, bool cut);

#endif
