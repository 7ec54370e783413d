/* dependent.h - launches that may begin before those before them in the stream are done (programmatic
 * dependent launch): the runtime's part, and what the detector of races makes of it.
 *
 *     stream    first ............ done
 *     early            second  | wait .......... done          | griddep wait
 *     early                      third    | wait ........
 *
 * The emulator runs them one after another.  The detector knows which launches need not be done yet: for an
 * early launch all since the last one that was not, until its wait; and behind the wait those that its
 * predecessor has not waited for.  A read of what one of them wrote is an error, and so is any write to
 * device memory before the wait.  What none of them wrote (weights) may be read at once. */
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

/* As cudasim_enqueue(), with the attribute or without. */
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

/* Something begins on a stream, all of which stands behind what was there; NULL: on every stream. */
void race_stream_op(const void *stream);
/* The next launch is of this stream. */
void race_depends(const void *stream, bool early);
/* A thread waits for the launches before; what the detector asks of accesses to device memory. */
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
