/* step_probe.h - when the device is at work, as the benchmark of steps sees it. */
#ifndef QUERN_TESTS_GPU_STEP_PROBE_H
#define QUERN_TESTS_GPU_STEP_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_STEPS = 1024 };

/* From now on every step is noted, PROBE_STEPS of them at most: from its first upload until all that
 * it queued is done. */
void probe_start(void);
/* Of what was noted, when the device has done it: milliseconds of work, and between the steps. */
void probe_stop(int *n_steps, double *busy_ms, double *idle_ms);

#ifdef __cplusplus
}
#endif

#endif
