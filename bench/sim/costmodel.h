/* costmodel.h - how long a device works on a plan, estimated from its size.
 *
 *   step = base + max(memory, compute) + copies and swaps
 *   memory  = (weights + KV of every position that a run attends to) / achieved bandwidth
 *   compute = rows * FLOP per token / achieved FLOP rate
 *
 * Every row is counted as compute, those of decoding sequences too: a large batch is as slow as
 * its multiplications (where decode_row_us was measured, that counts instead).  The FLOP of attention are
 * left out. */
#ifndef QUERN_BENCH_SIM_COSTMODEL_H
#define QUERN_BENCH_SIM_COSTMODEL_H

#include "proto/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More blocks than any device has; less than the scheduler's tables can hold. */
enum { COSTMODEL_BLOCKS_MAX = 1 << 24 };
/* Eleven days: a sum of a million such steps still fits 64 bits of microseconds. */
#define COSTMODEL_STEP_MAX_US 1e12

struct costmodel {
	const char *name;
	double base_us;          /* launches, sampling, the result's way back */
	double bytes_per_s;      /* device memory, achieved */
	double flop_per_s;       /* achieved */
	double link_bytes_per_s; /* to host memory */
	double memory_bytes;
	/* the model */
	double weights_bytes;  /* read once per step */
	double flop_per_token; /* of a row: twice the parameters */
	double kv_token_bytes; /* K and V of one position, all layers */
	double decode_row_us;  /* of a run of one row, instead of its multiplications; 0: these */
};

/* A named device with Qwen3-8B AWQ.  -EINVAL: unknown; why lists the known ones. */
int costmodel_named(const char *name, struct costmodel *out, char *why, size_t why_n);

/* Blocks that fit into kv_bytes, at most COSTMODEL_BLOCKS_MAX; 0: none. */
uint32_t costmodel_blocks(const struct costmodel *c, double kv_bytes, uint32_t block_size);
/* 9/10 of the memory, less the weights. */
double costmodel_kv_bytes(const struct costmodel *c);

/* At most COSTMODEL_STEP_MAX_US. */
double costmodel_step_us(const struct costmodel *c, const struct plan *p, uint32_t block_size);

/* ---- devices with a model (`quern plan`): by a data sheet, probes of this CPU, or measurements ---- */

enum costmodel_source { COSTMODEL_DATA_SHEET, COSTMODEL_PROBED, COSTMODEL_MEASURED };

struct costmodel_model {
	double params;         /* that a token takes: of experts, the chosen ones */
	double stored_bytes;   /* in memory */
	double step_bytes;     /* that a step reads */
	double kv_token_bytes; /* K and V of one position */
	int n_layers, n_kv_heads;
	int max_position;
};

struct costmodel_device {
	struct costmodel cost; /* of one of them with the whole model */
	uint32_t count;
	bool cpu;
	enum costmodel_source source;
	char name[32];
	char mode[16]; /* of a CPU: --compute */
};

/* "H200x2", "h100", "cpu", "cpux4".  -EINVAL: why lists the known ones.  A CPU is described by a worker of
 * this machine. */
int costmodel_device_read(const char *text, struct costmodel_device *out, char *why, size_t why_n);
/* path: a model as `serve` takes it, once its device is known. */
int costmodel_model_read(const char *path, const struct costmodel_device *d, struct costmodel_model *out,
			 char *why, size_t why_n);
/* Puts the model into the device's cost model. */
void costmodel_load(struct costmodel_device *d, const struct costmodel_model *m);
/* The costs that `quern bench engine MODEL --json` has measured (one batch and a larger one), from its file.
 */
int costmodel_measured(struct costmodel_device *d, const char *path, char *why, size_t why_n);
/* One replica of tp of these devices. */
struct costmodel costmodel_replica(const struct costmodel_device *d, const struct costmodel_model *m,
				   uint32_t tp);

#endif
