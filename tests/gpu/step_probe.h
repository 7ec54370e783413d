/* step_probe.h - measures for bench_step.c when the device is busy. */
#ifndef QUERN_TESTS_GPU_STEP_PROBE_H
#define QUERN_TESTS_GPU_STEP_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_STEPS = 1024 };

/* Starts recording steps, PROBE_STEPS at most: each from its first upload until its queued work is done. */
void probe_start(void);
/* Waits for the recorded steps: milliseconds of work, and between the steps. */
void probe_stop(int *n_steps, double *busy_ms, double *idle_ms);

#ifdef __cplusplus
}
#endif

#endif
