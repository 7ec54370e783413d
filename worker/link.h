/* link.h - a worker's connection to its controller: says what it is, loads what it is told,
 * carries out plans, shows every 250 ms that it lives.  Protocol: proto/bus.h. */
#ifndef QUERN_WORKER_LINK_H
#define QUERN_WORKER_LINK_H

#include "proto/curve.h"
#include "worker/tune.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link_args {
	const char *bus;    /* "ipc:///run/quern/bus", "tcp://host:port" */
	const char *device; /* "cpu:0" */
	const char *isa;    /* NULL: the best */
	bool no_graphs;     /* as in step_args */
	uint32_t n_threads; /* 0: as the controller or the device chooses */
	double memory_fraction; /* of the device, for this worker; 0: its default (worker/cache.h) */
	struct tune_source tune; /* should it be told to be fast */
	int late_ms;        /* of a group: how late another rank may be before it is given up */
	int64_t grace_ms;   /* how long without a sign of the controller */
	/* CURVE, both or none: our key, and the controller's public one. */
	const struct curve_key *key, *server_key;
};

/* Serve until the controller says stop or link_stop() is called (0), the controller is gone for
 * longer than the grace period (-ETIMEDOUT), or the worker cannot go on; why says what. */
int link_run(const struct link_args *a, char *why, size_t why_n);

/* End link_run() soon; callable from a signal handler. */
void link_stop(void);

#endif
