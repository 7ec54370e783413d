/* inspect.h - `quern-worker --inspect`: the capabilities of a kind of device, and the kernels it would use.
 * `quern inspect cpu|gpu` starts it and reads its output. */
#ifndef QUERN_WORKER_INSPECT_INSPECT_H
#define QUERN_WORKER_INSPECT_INSPECT_H

#include <stdbool.h>
#include <stddef.h>

/* Print a JSON array with one object per device to stdout, or {"error": REASON} if none opens; return the
 * exit status.  kind: "cpu" (the whole machine) or "gpu" (every GPU that opens); probe: for a CPU, also
 * measure bandwidth and peaks, in about a second. */
int inspect_devices(const char *kind, bool probe);

/* True if this device opens, with the smallest sizes; if not, why has the reason. */
bool inspect_opens(const char *device, char *why, size_t why_n);

#endif
