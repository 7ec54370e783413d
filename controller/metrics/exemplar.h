/* exemplar.h - the last observation of a bucket that belongs to a trace: a sequence lock.
 *
 *     seq   0 | 1 ... 2 | 3 ... 4 |     odd: one thread writes
 *
 * Threads that come while another writes leave theirs out, and a reader whose seq has changed gets none: no
 * thread waits. */
#ifndef QUERN_CONTROLLER_METRICS_EXEMPLAR_H
#define QUERN_CONTROLLER_METRICS_EXEMPLAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXEMPLAR_TRACE = 16 };

/* Zeroed: none yet. */
struct exemplar {
	atomic_uint_fast64_t seq;
	atomic_uint_fast64_t trace[2], value, unix_us;
};

struct exemplar_value {
	uint8_t trace[EXEMPLAR_TRACE];
	uint64_t value, unix_us; /* of the observation */
};

/* Any thread, both. */
void exemplar_put(struct exemplar *e, const struct exemplar_value *v);
/* false: there is none, or it is being written. */
bool exemplar_get(const struct exemplar *e, struct exemplar_value *out);

#endif
