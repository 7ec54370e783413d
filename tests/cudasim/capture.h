/* capture.h - what the runtime's calls ask of the captures under way (graph.cc). */
#ifndef QUERN_TESTS_CUDASIM_CAPTURE_H
#define QUERN_TESTS_CUDASIM_CAPTURE_H

#include "tests/cudasim/sim.h"

bool cudasim_captured(cudaStream_t s);
/* Work that a captured stream was given; the runtime's own queue. */
void cudasim_capture_work(cudaStream_t s, std::function<void()> body);
void cudasim_push(cudaStream_t s, std::function<void()> body);
/* One of the many that a launch of a graph gives it: not counted as a launch. */
void cudasim_push_of_graph(cudaStream_t s, std::function<void()> body);

/* cudaSuccess, or the error of a call that no capture under way allows (allocating, waiting for the
 * device), that a captured stream or event does not: the capture is void then. */
cudaError_t cudasim_capture_forbids(const char *what);
cudaError_t cudasim_capture_forbids_on(cudaStream_t s, const char *what);
cudaError_t cudasim_capture_forbids_event(cudaEvent_t e, const char *what);

/* Is it the capture's affair?  Then it was done. */
bool cudasim_capture_record(cudaEvent_t e, cudaStream_t s);
bool cudasim_capture_wait(cudaStream_t s, cudaEvent_t e, cudaError_t *result);
void cudasim_capture_forget(cudaEvent_t e); /* it ends */

#endif
