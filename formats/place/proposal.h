/* proposal.h - propose a placement of a mixture's experts on a machine with a GPU: the first layers'
 * experts on the GPU, as many as fit with everything else and room for K and V; the other layers' in host
 * memory.
 *
 *     | all else | experts of layers 0 to k | K and V, scratch |      host: | experts of the others |
 *
 * Bytes are estimates: file sizes for the GPU, with F32 as 16 bits, and packed.h for the host.
 * Pure. */
#ifndef QUERN_FORMATS_PLACE_PROPOSAL_H
#define QUERN_FORMATS_PLACE_PROPOSAL_H

#include "formats/place/packed.h"

enum { PROPOSAL_OPTIONS = 96 };

struct proposal {
	bool fits;            /* everything but the experts fits; if not, the other fields are meaningless */
	int n_sparse, n_cpu;  /* layers with experts; layers with host experts */
	int last;             /* last layer with experts on the GPU; -1: none */
	int64_t device_bytes; /* bytes of weights on the GPU */
	int64_t hot_bytes;    /* bytes of experts among them, which --hot-experts may use instead of whole
			       * layers */
	int64_t room_bytes;   /* bytes left on the GPU for K, V and scratch */
	int64_t host_bytes;   /* bytes of host experts */
	/* Bytes read per token from each. */
	int64_t device_token_bytes, host_token_bytes;
	char options[PROPOSAL_OPTIONS]; /* options for serve; "": none needed */
};

/* gpu_bytes: GPU memory that the worker may use.  mode: of the host experts. */
void proposal_make(struct proposal *out, const struct model_config *c, const struct weights *w,
		   int64_t gpu_bytes, enum packed_mode mode);

#endif
