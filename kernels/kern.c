/* kern.c - finds the tables of a device by its name. */
#include "kernels/kern.h"
#include "kernels/coll.h"
#include "kernels/cpu/coll.h"
#include "kernels/cpu/cpu.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

/* Parse "name" or "name:N", where N has at most four digits and no sign. */
static bool parse(const char *device, const char *name, int *index)
{
	size_t n = strlen(name);
	if (strncmp(device, name, n))
		return false;
	*index = -1;
	if (!device[n])
		return true;
	const char *p = device + n + 1;
	if (device[n] != ':' || !isdigit((unsigned char)*p) || strlen(p) > 4 || p[strspn(p, "0123456789")])
		return false;
	*index = atoi(p);
	return true;
}

/* $QUERN_CUDA_LIBRARY, or <folder of the program>/../lib/libquern-cuda.so. */
static int library_path(char *out, size_t n, struct why *why)
{
	const char *named = getenv("QUERN_CUDA_LIBRARY");
	char exe[PATH_MAX];
	if (named && named[0]) {
		if (snprintf(out, n, "%s", named) >= (int)n)
			return err_why(why, -ENODEV, "QUERN_CUDA_LIBRARY is too long for a path");
		return 0;
	}
	ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (len < 0)
		return err_why(why, -ENODEV, "cannot find the CUDA kernels: /proc/self/exe is not readable");
	exe[len] = 0;
	char *slash = strrchr(exe, '/');
	if (slash)
		*slash = 0;
	if (snprintf(out, n, "%s/../lib/libquern-cuda.so", exe) >= (int)n)
		return err_why(why, -ENODEV, "cannot find the CUDA kernels: the program's path is too long");
	return 0;
}

/* Load the shared object, for the life of the process. */
static int open_library(void **lib, char *path, size_t path_n, struct why *why)
{
	int e = library_path(path, path_n, why);
	if (e)
		return e;
	if (access(path, F_OK))
		return err_why(why, -ENODEV,
			       "the CUDA kernels are not there (%s): install quern-cuda, or build them with "
			       "`make cuda`, or use --device cpu",
			       path);
	*lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*lib) {
		const char *reason = dlerror();
		return err_why(why, -ENODEV,
			       "the CUDA kernels cannot be loaded: %s; install the NVIDIA driver and CUDA "
			       "runtime, or use "
			       "--device cpu",
			       reason ? reason : path);
	}
	return 0;
}

static int open_cuda(const struct kern_ops **ops, struct why *why)
{
	char path[PATH_MAX + 32];
	void *lib;
	int e = open_library(&lib, path, sizeof path, why);
	if (e)
		return e;
	const struct kern_ops *found = dlsym(lib, "kern_cuda_ops");
	if (!found || found->abi != KERN_ABI) {
		e = err_why(why, -ENODEV,
			    "%s is of another version of quern (interface %d, wanted %d): build it again "
			    "with `make cuda`",
			    path, found ? found->abi : 0, KERN_ABI);
		dlclose(lib);
		return e;
	}
	*ops = found;
	return 0;
}

int kern_find(const char *device, const struct kern_ops **ops, int *index, struct why *why)
{
	if (parse(device, "cpu", index)) {
		*ops = &kern_cpu_ops;
		return 0;
	}
	if (parse(device, "cuda", index))
		return open_cuda(ops, why);
	return err_why(why, -EINVAL, "'%.64s' is not a device: use cpu, cpu:NODE, cuda or cuda:NUMBER",
		       device);
}

static int find_nccl(const struct coll_ops **ops, struct why *why)
{
	char path[PATH_MAX + 32];
	void *lib;
	int e = open_library(&lib, path, sizeof path, why);
	if (e)
		return e;
	*ops = dlsym(lib, "coll_nccl_ops");
	if (!*ops || (*ops)->abi != COLL_ABI)
		return err_why(
			why, -ENOTSUP,
			"%s was built without NCCL: GPUs cannot serve a model together; install NCCL's "
			"headers and library and build it again with `make cuda`",
			path);
	return 0;
}

int kern_find_coll(const char *device, const struct coll_ops **ops, struct why *why)
{
	int index;
	if (parse(device, "cuda", &index))
		return find_nccl(ops, why);
	*ops = &coll_shm_ops;
	return 0;
}
