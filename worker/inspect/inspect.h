/* inspect.h - `quern-worker --inspect`: what a kind of device offers, and which kernels it would use.
 * `quern inspect cpu|gpu` starts it and reads what it prints. */
#ifndef QUERN_WORKER_INSPECT_INSPECT_H
#define QUERN_WORKER_INSPECT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>

/* kind: "cpu" (the whole machine) or "gpu" (every GPU that opens); probe: of a CPU also what it measures of
 * bandwidth and peaks, in about a second.  Prints a JSON array with an object per
 * device to stdout, or {"error": REASON} when none opens.  Returns the exit status. */
int inspect_devices(const char *kind, bool probe);

/* Does this device open, with the smallest sizes?  If not, why. */
bool inspect_opens(const char *device, char *why, size_t why_n);

#endif
