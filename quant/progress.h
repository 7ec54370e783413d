/* progress.h - how far a long run is, and how long it will take: a bar on a terminal, lines of the log
 * elsewhere. */
#ifndef QUERN_QUANT_PROGRESS_H
#define QUERN_QUANT_PROGRESS_H

#include <stdint.h>

struct progress {
	int64_t begun_us, told_us; /* clock_us() */
	double from, done;         /* of 0 to 1, at the beginning and now */
};

/* done: what was done before, by a run that this one goes on with. */
void progress_begin(struct progress *p, double done);
void progress_step(struct progress *p, double done, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p); /* before anything else is printed */

#endif
