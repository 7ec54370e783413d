/* flush.h - treats denormals as 0, as the instructions for BF16 do. */
#ifndef QUERN_KERNELS_CPU_BF16_FLUSH_H
#define QUERN_KERNELS_CPU_BF16_FLUSH_H

/* Treat denormals as 0 until flush_end(). */
static inline unsigned flush_begin(void)
{
	unsigned was = 0;
#if defined(__x86_64__)
	was = __builtin_ia32_stmxcsr();
	const unsigned flush = was | 0x8040;
	__asm__ volatile("ldmxcsr %0" ::"m"(flush) : "memory");
#endif
	return was;
}

static inline void flush_end(unsigned was)
{
#if defined(__x86_64__)
	__asm__ volatile("ldmxcsr %0" ::"m"(was) : "memory");
#else
	(void)was;
#endif
}

#endif
