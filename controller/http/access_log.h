/* access_log.h - one line of JSON for each HTTP request that ended: client, path, status, the jobs that it
 * became, their times and how they ended.  Never contents, never keys.  Owns: the file. */
#ifndef QUERN_CONTROLLER_HTTP_ACCESS_LOG_H
#define QUERN_CONTROLLER_HTTP_ACCESS_LOG_H

#include "controller/http/exchange.h"

#include <stddef.h>

struct access_log;

/* path: a file that is appended to (mode 0640 when it is made), or "-" for stdout.  -errno with
 * the reason. */
int access_log_open(const char *path, struct access_log **out, char *why, size_t why_n);
void access_log_close(struct access_log *a); /* NULL is fine */

/* Any thread; the caller holds x->lock.  One write(2): a line that the disk does not take is lost, and the
 * first of these logged.  A file that was moved away (logrotate) is opened again within a second.  cut: the
 * client did not take all of the reply.  a NULL: does nothing. */
void access_log_write(struct access_log *a, const struct exchange *x, bool cut);

#endif
