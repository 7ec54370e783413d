/* request_cost.h - estimate from the bytes alone whether a request may be slow to prepare.
 * A schema of 1 KB may take a second to compile, and an id may refer to a conversation of megabytes.  Such
 * requests go to threads on which nothing else waits (base/work_pool.h).  Pure. */
#ifndef QUERN_CONTROLLER_REQUEST_REQUEST_COST_H
#define QUERN_CONTROLLER_REQUEST_REQUEST_COST_H

#include <stdbool.h>
#include <stddef.h>

/* Return true if the body, JSON or msgpack, may have a field that is compiled, or that refers to stored data.
 * false is exact: no such name occurs in the body, and no letter is written as an escape.  true may be a
 * false alarm: a text may contain such a word. */
bool request_is_costly(const char *body, size_t n);

#endif
