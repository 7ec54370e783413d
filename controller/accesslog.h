/* accesslog.h - one line of JSON for each HTTP request that ended: who asked for what, which jobs
 * it became, what they took and how they ended.  Never contents, never keys.  Owns: the file. */
#ifndef QUERN_CONTROLLER_ACCESSLOG_H
#define QUERN_CONTROLLER_ACCESSLOG_H

#include "controller/exchange.h"

#include <stddef.h>

struct accesslog;

/* path: a file that is appended to (mode 0640 when it is made), or "-" for stdout.  -errno with
 * the reason. */
int accesslog_open(const char *path, struct accesslog **out, char *why, size_t why_n);
void accesslog_close(struct accesslog *a); /* NULL is fine */

/* Any thread.  A file that was moved away (logrotate) is begun anew within a second.  One write(2); a line
 * that the disk does not take is lost, and counted in the log. The caller holds x->lock.  cut: the client did
 * not take all of the reply.  a NULL: nothing. */
void accesslog_write(struct accesslog *a, const struct exchange *x, bool cut);

#endif
