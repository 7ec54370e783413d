/* costmodel.h - estimates how long a device takes for a plan, from the plan's size.
 *
 *   step = base + max(memory, compute) + copies and swaps
 *   memory  = (weights + KV of every position that a run attends to, in each kind) / achieved bandwidth
 *   compute = rows * FLOP per token / achieved FLOP rate
 *
 * Every row counts as compute, also the rows of decoding sequences: a large batch is as slow as its
 * multiplications.  If decode_row_us was measured, it replaces the compute of decode rows.  The FLOP of
 * attention are left out. */
#ifndef QUERN_BENCH_SIM_COSTMODEL_H
#define QUERN_BENCH_SIM_COSTMODEL_H

#include "base/err.h"
#include "proto/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Upper limit of blocks: more than any device has, less than the scheduler's tables can hold. */
enum { COSTMODEL_BLOCKS_MAX = 1 << 24 };
/* Eleven days.  The sum of a million such steps still fits in 64 bits of microseconds. */
#define COSTMODEL_STEP_MAX_US 1e12

struct costmodel {
	const char *name;
	double base_us;          /* launches, sampling, returning the result */
	double bytes_per_s;      /* device memory, achieved */
	double flop_per_s;       /* achieved */
	double link_bytes_per_s; /* to host memory */
	double memory_bytes;
	/* Figures of the model. */
	double weights_bytes;  /* read once per step */
	double flop_per_token; /* for one row: twice the parameters */
	double kv_token_bytes; /* K and V of one position, all kinds of layers */
	struct kinds kinds;    /* kinds of layers; a block holds K and V of one kind; n 0: one kind */
	double decode_row_us;  /* time of a run of one row, in place of its FLOP; 0: use the FLOP */
};

/* Find a named device, with Qwen3-8B AWQ.  -EINVAL: unknown; why lists the known names. */
int costmodel_named(const char *name, struct costmodel *out, struct why *why);

/* Return the kinds of layers; never 0. */
const struct kinds *costmodel_kinds(const struct costmodel *c);
/* Return the bytes of a block. */
double costmodel_block_bytes(const struct costmodel *c, uint32_t block_size);
/* Return the number of blocks that fit in kv_bytes, at most COSTMODEL_BLOCKS_MAX; 0: none. */
uint32_t costmodel_blocks(const struct costmodel *c, double kv_bytes, uint32_t block_size);
/* Return the bytes for KV: 9/10 of the memory, less the weights. */
double costmodel_kv_bytes(const struct costmodel *c);

/* Return the time of a step, at most COSTMODEL_STEP_MAX_US. */
double costmodel_step_us(const struct costmodel *c, const struct plan *p, uint32_t block_size);

/* ---- devices with a model (`quern plan`): from a data sheet, probes of this CPU, or measurements ---- */

enum costmodel_source { COSTMODEL_DATA_SHEET, COSTMODEL_PROBED, COSTMODEL_MEASURED };

struct costmodel_model {
	double params;         /* parameters used per token; of experts, the chosen ones only */
	double stored_bytes;   /* bytes in memory */
	double step_bytes;     /* bytes read per step */
	double kv_token_bytes; /* K and V of one position; unused places of kinds count */
	struct kinds kinds;
	int n_layers, n_kv_heads;
	int max_position;
};

struct costmodel_device {
	struct costmodel cost; /* cost model of one such device with the whole model */
	uint32_t count;
	bool cpu;
	enum costmodel_source source;
	char name[32];
	char mode[16]; /* for a CPU: --compute */
};

/* Parse "H200x2", "h100", "cpu", "cpux4".  -EINVAL: why lists the known names.  A CPU is described by running
 * a worker on this machine. */
int costmodel_device_read(const char *text, struct costmodel_device *out, struct why *why);
/* Read a model's figures for device d.  path: a model as `serve` takes it. */
int costmodel_model_read(const char *path, const struct costmodel_device *d, struct costmodel_model *out,
			 struct why *why);
/* Put the model into the device's cost model. */
void costmodel_load(struct costmodel_device *d, const struct costmodel_model *m);
/* Read the costs measured by `quern bench engine MODEL --json` (batch size one and a larger one) from its
 * file. */
int costmodel_measured(struct costmodel_device *d, const char *path, struct why *why);
/* Return the cost model of one replica on tp of these devices. */
struct costmodel costmodel_replica(const struct costmodel_device *d, const struct costmodel_model *m,
				   uint32_t tp);

#endif
