#include "kernels/cpu/cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* About 5 us of one core: waking a thread that sleeps costs as much. */
static const int64_t work_worth_waking = 16384;

void cpu_run(struct kern_dev *d, int n_tasks, int64_t work, cpu_fn *fn, void *arg)
{
	int n = d->n_threads < n_tasks ? d->n_threads : n_tasks;
#ifdef _OPENMP
	if (n > 1 && work >= work_worth_waking) {
		/* Dynamic: on a shared machine a core may be away for a while. */
#pragma omp parallel for num_threads(n) schedule(dynamic, 1)
		for (int i = 0; i < n_tasks; i++)
			fn(arg, i, omp_get_thread_num());
		return;
	}
#endif
	(void)n;
	(void)work;
	for (int i = 0; i < n_tasks; i++)
		fn(arg, i, 0);
}
