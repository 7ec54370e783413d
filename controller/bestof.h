/* bestof.h - the best of the outputs of a job that samples more than it returns (best_of). */
#ifndef QUERN_CONTROLLER_BESTOF_H
#define QUERN_CONTROLLER_BESTOF_H

#include "controller/output.h"

/* Of n outputs (at most PARAMS_N_MAX) that have ended, with log-probabilities, the n_keep of the
 * highest cumulative one stay, the highest first, numbered anew; of equals, the one that was
 * sampled with the lower index goes first.  The others are gone (output_fini). */
void bestof_choose(struct output *outputs, uint32_t n, uint32_t n_keep);

#endif
