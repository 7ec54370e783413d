/* foreign.h - options of vLLM's, llama.cpp's and SGLang's servers, mapped to options of `quern serve`. */
#ifndef QUERN_CLI_FOREIGN_H
#define QUERN_CLI_FOREIGN_H

#include "base/options.h"

/* An option is an alias only if its meaning is exactly the same. */
extern const struct opt_alias foreign_options[];
extern const size_t foreign_n_options;

#endif
