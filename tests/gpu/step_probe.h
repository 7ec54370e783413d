/* step_probe.h - measures for bench_step.c when the device is busy, and with what. */
#ifndef QUERN_TESTS_GPU_STEP_PROBE_H
#define QUERN_TESTS_GPU_STEP_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_STEPS = 1024, PROBE_COPIES = 16 * PROBE_STEPS };

/* Of the recorded steps, in milliseconds of the device:
 *
 *     | step: batch_set ... copy | kernels | copy ... event |   gap   | step ...
 *     '-------------------- busy_ms -----------------------'  idle_ms
 *
 * copy_ms: within busy_ms, the time of copies that the step's stream had to wait for; the multiprocessors are
 * idle then. */
struct probe_figures {
	int n_steps, n_copies;
	double busy_ms, idle_ms, copy_ms;
};

/* Starts recording steps, PROBE_STEPS at most: each from its first upload until its queued work is done. */
void probe_start(void);
/* Waits for the recorded steps. */
void probe_stop(struct probe_figures *out);

#ifdef __cplusplus
}
#endif

#endif
