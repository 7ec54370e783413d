/* step_probe.h - measures for bench_step.c when the device is busy, and with which operations. */
#ifndef QUERN_TESTS_GPU_STEP_PROBE_H
#define QUERN_TESTS_GPU_STEP_PROBE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_STEPS = 1024, PROBE_COPIES = 16 * PROBE_STEPS, PROBE_STAMPS = 1024, PROBE_NAMES = 32 };

/* Figures of the recorded steps, in milliseconds of device time:
 *
 *     | step: batch_set ... copy | kernels | copy ... event |   gap   | step ...
 *     '-------------------- busy_ms -----------------------'  idle_ms
 *
 * copy_ms: the part of busy_ms in which the step's stream waited for copies, with idle multiprocessors. */
struct probe_figures {
	int n_steps, n_copies;
	double busy_ms, idle_ms, copy_ms;
};

/* One kind of operation of a step: its name, calls per step, and their total time, without the time of the
 * stamps themselves. */
struct probe_operation {
	const char *name;
	int calls;
	double us;
};

/* Set whether graphs record a stamp of device time after every operation.  Call it before a device is
 * opened. */
void probe_stamps(bool on);
/* After probe_stop(): get the operations of the recorded steps in the order of a step, and the time in us
 * between two stamps with nothing between them.  Returns the number of operations. */
int probe_operations(struct probe_operation out[PROBE_NAMES], double *empty_us);

/* Start recording steps, at most PROBE_STEPS, each from its first upload until its queued work is done.  A
 * profiler that waits for cudaProfilerStart() records the same steps. */
void probe_start(void);
/* Wait for the recorded steps and compute the figures. */
void probe_stop(struct probe_figures *out);

#ifdef __cplusplus
}
#endif

#endif
