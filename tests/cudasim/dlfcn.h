/* dlfcn.h - the libraries of the emulated machine (library.cc).  It replaces the system's header when the .cu
 * files are compiled for the emulated device, so that a real library of this machine never works on emulated
 * memory. */
#ifndef QUERN_TESTS_CUDASIM_DLFCN_H
#define QUERN_TESTS_CUDASIM_DLFCN_H

enum { RTLD_LOCAL = 0, RTLD_NOW = 2 };

void *cudasim_dlopen(const char *name, int mode);
void *cudasim_dlsym(void *lib, const char *name);

#define dlopen cudasim_dlopen
#define dlsym  cudasim_dlsym

#endif
