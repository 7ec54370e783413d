/* capture.h - captures in flight, as the runtime's calls see them (graph.cc). */
#ifndef QUERN_TESTS_CUDASIM_CAPTURE_H
#define QUERN_TESTS_CUDASIM_CAPTURE_H

#include "tests/cudasim/sim.h"

bool cudasim_captured(cudaStream_t s);
/* Record work given to a captured stream; cudasim_push() queues work on the runtime's own queue. */
void cudasim_capture_work(cudaStream_t s, std::function<void()> body);
void cudasim_push(cudaStream_t s, std::function<void()> body);
/* Queue one node of a graph's launch, which is not counted as a launch itself. */
void cudasim_push_of_graph(cudaStream_t s, std::function<void()> body);

/* Return cudaSuccess, or the error of a call that is not allowed: during any capture (allocating, waiting for
 * the device), or on a captured stream or event, which invalidates the capture. */
cudaError_t cudasim_capture_forbids(const char *what);
cudaError_t cudasim_capture_forbids_on(cudaStream_t s, const char *what);
cudaError_t cudasim_capture_forbids_event(cudaEvent_t e, const char *what);

/* Handle the call if it belongs to a capture; returns whether it did. */
bool cudasim_capture_record(cudaEvent_t e, cudaStream_t s);
bool cudasim_capture_wait(cudaStream_t s, cudaEvent_t e, cudaError_t *result);
void cudasim_capture_forget(cudaEvent_t e); /* the event is destroyed */

#endif
