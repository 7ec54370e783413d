/* progress.h - progress and remaining time of a long run: a bar on a terminal, log lines elsewhere. */
#ifndef QUERN_QUANT_PROGRESS_H
#define QUERN_QUANT_PROGRESS_H

#include <stdint.h>

struct progress {
	int64_t begun_us, told_us; /* start, last report; clock_us() */
	double from, done;         /* fraction done, 0 to 1, at the start and now */
};

/* done: fraction that an earlier run did, which this run resumes. */
void progress_begin(struct progress *p, double done);
void progress_step(struct progress *p, double done, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p); /* call before printing anything else */

#endif
