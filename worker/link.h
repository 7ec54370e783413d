/* link.h - a worker's connection to its controller: hello, loads, plans and results, and a beat every
 * 250 ms.  Protocol: proto/bus.h. */
#ifndef QUERN_WORKER_LINK_H
#define QUERN_WORKER_LINK_H

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
	const char *place;             /* as in step_args */
	const struct hot_options *hot; /* likewise */
	int send_experts_above;        /* likewise */
	const char *experts_compute;   /* of experts on the CPU beside a GPU; NULL: as the controller says */
	bool no_graphs;                /* as in step_args */
	uint32_t n_threads;            /* 0: as the controller or the device chooses */
	double memory_fraction;        /* of the device, for this worker; 0: its default (worker/cache.h) */
	struct tune_source tune;       /* for loads with --fast */
	struct trace *trace;           /* where the time of steps goes (trace.h), borrowed; NULL: no trace */
	enum experts_skew skew;        /* for measurements */
	int64_t least_step_us;         /* likewise: of a step (step.h) */
	int late_ms;                   /* in a group: a rank that is later than this is lost */
	int64_t grace_ms;              /* the longest time without a message from the controller */
	/* CURVE, both or none: our key, and the controller's public one. */
	const struct curve_key *key, *server_key;
	int64_t leave_ms;  /* after link_leave(): how long the controller may take to move its jobs */
	bool supervised;   /* a failure that the controller was told of is printed elsewhere */
	const char *cache; /* of models (store/cached.h), where one that is fetched goes to; NULL: nowhere */
	bool fetch;        /* from the controller, where this host has no such model */
	const char *token; /* of the supervisor that started us (local_token.h); NULL: none */
};

/* Serve until the controller sends stop or link_stop() is called (0), the controller is gone for longer
 * than the grace period (-ETIMEDOUT), or the worker cannot continue (another error).  Errors fill in why; if
 * supervised, it is "" where the controller has the reason. */
int link_run(const struct link_args *a, char *why, size_t why_n);

/* End link_run() soon; callable from a signal handler. */
void link_stop(void);

/* Ask the controller to move this worker's jobs to other replicas, and end link_run() when it has sent stop,
 * or after leave_ms.  A worker that serves nothing ends at once.  Callable from a signal handler. */
void link_leave(void);

#endif
