/* status_fields.h - the table of counters of a replica and of the service.
 * The sums over replicas, the job socket's status, the page's live stream and /metrics all iterate over it: a
 * new counter is a member of struct engine_counts, its value in the fleet, and one row here.
 *
 *   sched_stats --> engine_counts of each replica --sum--> engine_counts of the service
 *                         |                                   |
 *                     job socket, page                job socket, /metrics */
#ifndef QUERN_CONTROLLER_MESSAGE_STATUS_FIELDS_H
#define QUERN_CONTROLLER_MESSAGE_STATUS_FIELDS_H

#include "controller/message/engine_msg.h"

#include <stddef.h>

enum status_type { STATUS_U32, STATUS_U64, STATUS_DOUBLE };

enum {
	STATUS_TOTAL = 1, /* counts since start: stays in the sum when its replica is removed */
	STATUS_MEAN = 2,  /* a mean: not summed, but averaged with weight n_steps */
};

struct status_field {
	const char *map;    /* job socket's status: key of the enclosing map; NULL: the top level */
	const char *key;    /* job socket's status: key */
	const char *live;   /* live stream: key in a replica, or NULL */
	const char *metric; /* /metrics: name without the prefix, or NULL */
	const char *help;   /* /metrics: help text */
	enum status_type type;
	unsigned flags;
	size_t offset; /* in struct engine_counts */
};

/* Rows in the order of the job socket's status; the fields of a map are adjacent. */
extern const struct status_field status_fields[];
extern const size_t n_status_fields;

uint64_t status_uint(const struct status_field *f, const struct engine_counts *c); /* not a STATUS_DOUBLE */
double status_number(const struct status_field *f, const struct engine_counts *c);

/* Add all counters except means; totals_only: only STATUS_TOTAL counters. */
void engine_counts_add(struct engine_counts *sum, const struct engine_counts *c, bool totals_only);

#endif
