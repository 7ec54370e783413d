/* exemplar.h - the last observation of a bucket that belongs to a trace, behind a sequence lock.
 *
 *     seq   0 | 1 ... 2 | 3 ... 4 |     odd: one thread writes
 *
 * No thread waits: a thread that finds another thread writing drops its own observation, and a reader that
 * finds seq changed gets no exemplar. */
#ifndef QUERN_CONTROLLER_METRICS_EXEMPLAR_H
#define QUERN_CONTROLLER_METRICS_EXEMPLAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXEMPLAR_TRACE = 16 };

/* Zero-initialised is empty. */
struct exemplar {
	atomic_uint_fast64_t seq;
	atomic_uint_fast64_t trace[2], value, unix_us;
};

struct exemplar_value {
	uint8_t trace[EXEMPLAR_TRACE];
	uint64_t value, unix_us; /* unix_us: time of the observation */
};

/* Store or read an exemplar; any thread. */
void exemplar_put(struct exemplar *e, const struct exemplar_value *v);
/* False: there is none, or it is being written. */
bool exemplar_get(const struct exemplar *e, struct exemplar_value *out);

#endif
