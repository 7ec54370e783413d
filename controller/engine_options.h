/* engine_options.h - the engine's configuration from the command line. */
#ifndef QUERN_CONTROLLER_ENGINE_OPTIONS_H
#define QUERN_CONTROLLER_ENGINE_OPTIONS_H

#include "base/err.h"
#include "controller/fleet/engine_config.h"

#include <stddef.h>

struct opts;

/* Set *c to what the options say; the caller adds the model and the other parts.  -EINVAL with the reason. */
int engine_options(const struct opts *o, struct engine_config *c, struct why *why);

#endif
