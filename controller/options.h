/* options.h - the command line of quern-controller. */
#ifndef QUERN_CONTROLLER_OPTIONS_H
#define QUERN_CONTROLLER_OPTIONS_H

#include "base/options.h"

enum { CONTROLLER_N_OPTIONS = 69 };
extern const struct opt controller_options[CONTROLLER_N_OPTIONS];

#endif
