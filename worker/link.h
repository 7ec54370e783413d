/* link.h - a worker's connection to its controller: hello, loads, plans, results, and a heartbeat every 250
 * ms.
 * Protocol: proto/bus.h. */
#ifndef QUERN_WORKER_LINK_H
#define QUERN_WORKER_LINK_H

#include "base/err.h"
#include "proto/curve.h"
#include "worker/experts/expert_load.h"
#include "worker/tune.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hot_options;
struct trace;

struct link_args {
	const char *bus;               /* "ipc:///run/quern/bus", "tcp://host:port" */
	const char *device;            /* "cpu:0" */
	const char *isa;               /* NULL: the best */
	const char *place;             /* see step_args */
	const struct hot_options *hot; /* see step_args */
	int stream_above_rows;         /* see step_args */
	const char *experts_compute;   /* mode of host experts beside a GPU; NULL: as the controller says */
	bool no_graphs;                /* see step_args */
	uint32_t n_threads;            /* 0: chosen by the controller or the device */
	/* share of the device's memory for this worker; 0: the default (worker/cache.h) */
	double memory_fraction;
	struct tune_source tune; /* for loads with --fast */
	struct trace *trace;     /* times of steps (trace.h), borrowed; NULL: no trace */
	enum experts_skew skew;  /* for measurements */
	int64_t least_step_us;   /* for measurements: least time of a step (step.h) */
	int late_ms;             /* a rank of the group that is later than this is lost */
	int64_t grace_ms;        /* longest time without a message from the controller */
	/* CURVE keys, both or neither: this worker's key, and the controller's public key. */
	const struct curve_key *key, *server_key;
	int64_t leave_ms;  /* after link_leave(): how long the controller may take to move its jobs */
	bool supervised;   /* the supervisor prints failures that the controller was sent */
	const char *cache; /* folder for fetched models (store/cached.h); NULL: none */
	bool fetch;        /* fetch the model from the controller if this host lacks it */
	const char *token; /* token of the supervisor that started this worker (local_token.h); NULL: none */
};

/* Serve until the controller sends stop or link_stop() is called (0), the controller is silent for longer
 * than the grace period (-ETIMEDOUT), or the worker cannot continue (another error).  Errors fill in why;
 * if supervised, why is "" when the controller has received the reason. */
int link_run(const struct link_args *a, struct why *why);

/* End link_run() soon; callable from a signal handler. */
void link_stop(void);

/* Ask the controller to move this worker's jobs to other replicas.  link_run() ends when the controller has
 * sent stop, or after leave_ms; at once if the worker serves nothing.  Callable from a signal handler. */
void link_leave(void);

#endif
