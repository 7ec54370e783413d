/* dependent.h - launches that may begin before earlier launches of the stream are done (programmatic
 * dependent launch): the runtime's part, and the race detector's.
 *
 *     stream    first ............ done
 *     early            second  | wait .......... done          | griddep wait
 *     early                      third    | wait ........
 *
 * The emulator runs the launches one after another.  The detector knows which earlier launches may still be
 * running.  For an early launch before its wait: all since the last launch that was not early.  After its
 * wait: those that its predecessor has not waited for.  Reading data that one of them wrote is an error, and
 * so is any write to device memory before the wait.  Memory that none of them wrote (weights) may be read at
 * once. */
#ifndef QUERN_TESTS_CUDASIM_DEPENDENT_H
#define QUERN_TESTS_CUDASIM_DEPENDENT_H

#include "tests/cudasim/sim.h"

typedef enum { cudaLaunchAttributeProgrammaticStreamSerialization = 6 } cudaLaunchAttributeID;

typedef union {
	int programmaticStreamSerializationAllowed;
} cudaLaunchAttributeValue;

typedef struct {
	cudaLaunchAttributeID id;
	cudaLaunchAttributeValue val;
} cudaLaunchAttribute;

typedef struct {
	dim3 grid, block; /* gridDim and blockDim are macros here */
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
} cudaLaunchConfig_t;

/* Queue a launch as cudasim_enqueue() does; early: with the attribute. */
void cudasim_enqueue_early(bool early, cudaStream_t s, const void *kernel, dim3 grid, dim3 block, size_t smem,
			   std::function<void()> body);

template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... args)
{
	bool early = false;
	for (unsigned i = 0; i < c->numAttrs; i++)
		early |= c->attrs[i].val.programmaticStreamSerializationAllowed != 0;
	std::tuple<std::decay_t<P>...> kept(static_cast<P>(args)...);
	cudasim_enqueue_early(early, c->stream, (const void *)kernel, c->grid, c->block, c->dynamicSmemBytes,
			      [kernel, kept] { std::apply(kernel, kept); });
	return cudaPeekAtLastError();
}

#ifdef CUDASIM_RACE

/* Record work on a stream that is ordered after all earlier work of the stream; NULL: on every stream. */
void race_stream_op(const void *stream);
/* Set the stream of the next launch. */
void race_depends(const void *stream, bool early);
/* race_grid_wait: a thread waits for the earlier launches.  race_is_early, race_check_early: the detector's
 * checks of accesses to device memory. */
void race_grid_wait(void);
bool race_is_early(void);
void race_check_early(const void *p, uint32_t launch, int t, bool writes);

#else

static inline void race_stream_op(const void *)
{
}

static inline void race_depends(const void *, bool)
{
}

static inline void race_grid_wait(void)
{
}

#endif

#endif
