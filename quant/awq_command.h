/* awq_command.h - command-line options of `quern quantize --type awq4`. */
#ifndef QUERN_QUANT_AWQ_COMMAND_H
#define QUERN_QUANT_AWQ_COMMAND_H

#include "base/options.h"
#include "quant/quantize.h"

#include <stddef.h>

/* Run the command: a struct quantize_type.run. */
int awq_command(const struct quantize_options *q, const struct opts *o, char *why, size_t why_n);

#endif
