/* tsan.h - annotations for ThreadSanitizer: memory that one thread passes to another through a library that
 * was built without it (a pointer in a ZeroMQ message).
 * No code without the sanitizer. */
#ifndef QUERN_BASE_TSAN_H
#define QUERN_BASE_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

#ifdef TSAN
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#else
#define __tsan_acquire(p) ((void)(p))
#define __tsan_release(p) ((void)(p))
#endif

/* Call tsan_hand_over() before the thread gives up what p points at, and tsan_take_over() in the other thread
 * after it has received p. */
static inline void tsan_hand_over(void *p)
{
	__tsan_release(p);
}

static inline void tsan_take_over(void *p)
{
	__tsan_acquire(p);
}

#endif
