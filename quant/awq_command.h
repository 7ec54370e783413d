/* awq_command.h - `quern quantize --type awq4` as a command line has it. */
#ifndef QUERN_QUANT_AWQ_COMMAND_H
#define QUERN_QUANT_AWQ_COMMAND_H

#include "base/options.h"
#include "quant/quantize.h"

#include <stddef.h>

extern const struct opt awq_command_options[];
extern const size_t awq_command_n_options;

/* As struct quantize_type.run. */
int awq_command(const struct quantize_options *q, const struct opts *o, char *why, size_t why_n);

#endif
