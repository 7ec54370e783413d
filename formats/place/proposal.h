/* proposal.h - where a mixture's experts should be on a machine with a GPU of some memory: on it the first
 * layers', as many as fit beside all else and room for K and V; the others' in host memory.
 *
 *     | all else | experts of layers 0 to k | K and V, scratch |      host: | experts of the others |
 *
 * Bytes are estimates: those of the files, F32 in 16 bits on the GPU, and on the host as kept.h has them.
 * Pure. */
#ifndef QUERN_FORMATS_PLACE_PROPOSAL_H
#define QUERN_FORMATS_PLACE_PROPOSAL_H

#include "formats/place/kept.h"

enum { PROPOSAL_OPTIONS = 96 };

struct proposal {
	bool fits;            /* all else does; if not, the rest says nothing */
	int n_sparse, n_cpu;  /* layers with experts; those with experts in host memory */
	int last;             /* the last layer with experts on the GPU; -1: none */
	int64_t device_bytes; /* of weights on the GPU */
	int64_t hot_bytes;    /* of these, of experts: what --hot-experts may have instead of whole layers */
	int64_t room_bytes;   /* left on it for K and V, and scratch */
	int64_t host_bytes;   /* of experts in host memory */
	/* Of both what a token reads. */
	int64_t device_token_bytes, host_token_bytes;
	char options[PROPOSAL_OPTIONS]; /* of serve; "": none are needed */
};

/* gpu_bytes: that the worker may use of its device.  mode: of the experts in host memory. */
void proposal_make(struct proposal *out, const struct model_config *c, const struct weights *w,
		   int64_t gpu_bytes, enum kept_mode mode);

#endif
