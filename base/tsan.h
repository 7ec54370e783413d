/* tsan.h - what ThreadSanitizer cannot see for itself: memory that one thread hands to another through a
 * library that was not built with it (a pointer in a ZeroMQ message).  No code without the sanitizer. */
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

/* Before the thread gives up what p points at, and after the other one has received p. */
static inline void tsan_hand_over(void *p)
{
	__tsan_release(p);
}

static inline void tsan_take_over(void *p)
{
	__tsan_acquire(p);
}

#endif
