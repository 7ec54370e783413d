/* fleet_rig.h - the engine's thread between a pretended front end and any number of pretended
 * workers on its real bus.  Each worker computes on a simulated device (device.h), so that every
 * token is known; it can be told to die, to hang, or to lose a plan or a result. */
#ifndef QUERN_TESTS_SIM_FLEET_RIG_H
#define QUERN_TESTS_SIM_FLEET_RIG_H

#include "controller/engine.h"
#include "proto/bus.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RIG_SLOTS = 4, RIG_BLOCKS = 64, RIG_CONTEXT = 256, RIG_JOBS = 64, RIG_OUT = 240 };

/* What came of a job. */
struct rig_job {
	uint32_t n_prompt, max_tokens, first;   /* prompt: first, first + 1, ... */
	uint32_t out[RIG_OUT], n_out;
	bool accepted, refused, done, class_changed;
	enum code code;
	char why[256];
};

struct rig {
	void *zmq, *events, *commands;
	struct engine *engine;
	struct rig_job jobs[RIG_JOBS];
	struct engine_status status;    /* of rig_status() */
	bool status_here, ready;
	const char *order_device;       /* of the next rig_order(): where new workers run; NULL: as at the start */
	bool order_here;
	enum code order;
	char order_why[256];
	/* Notices, on the engine's thread. */
	pthread_mutex_t lock;
	uint32_t n_scale, scale_workers, n_retire, n_lost, n_failed, n_keep;
	char scale_device[32];
};

/* cfg: what differs from the usual; NULL: nothing. */
struct rig *rig_new(const struct engine_config *cfg);
void rig_free(struct rig *r);

/* Prompt tokens are first, first + 1, ...: jobs with the same begin alike. */
void rig_submit(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt, uint32_t max_tokens);
/* Likewise of a job from before a crash: it has its first n_had tokens already, of that numerics class.
 * rig_finish() knows of them. */
void rig_resume(struct rig *r, uint64_t job, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_had,
		const char *numerics);
/* Takes events until the job has ended; aborts when its tokens are not the undisturbed ones. */
void rig_finish(struct rig *r, uint64_t job);
void rig_wait_end(struct rig *r, uint64_t job);         /* done or failed */
void rig_wait_tokens(struct rig *r, uint64_t job, uint32_t n);
void rig_wait_ready(struct rig *r, bool ready);
const struct engine_status *rig_status(struct rig *r);
/* Asks for the status until so many replicas are in that state. */
void rig_wait_replicas(struct rig *r, uint32_t n, const char *state);
void rig_order(struct rig *r, enum engine_cmd_kind kind, uint64_t what, int64_t wait_us);
enum code rig_wait_order(struct rig *r);

struct fake_worker {
	/* Before fake_start(): */
	const char *host, *device, *numerics;   /* NULL: "here", "cpu", "class a" */
	uint32_t n_blocks;              /* 0: RIG_BLOCKS */
	int64_t pid;                    /* 0: 1 */
	int die_at;                     /* this plan of it, counted from 1, is not answered, and it is gone; 0: never */
	uint64_t die_of;                /* the job that a plan of it may not name: it is gone likewise; 0: none */
	int hang_at;                    /* like die_at, but it stays and is silent */
	int hang_ms;                    /* ... for so long; 0: for ever */
	int stick_at;                   /* likewise, and it goes on to beat */
	int lose_plan, lose_result;     /* this plan is passed over as if it had not come; its result is not sent */
	int step_us;                    /* how long a step takes */
	/* While it runs: */
	atomic_bool dies;               /* set by the test: its next plan is not answered, and it is gone */
	atomic_int n_plans;             /* that it carried out */
	atomic_int n_group_plans;       /* of these, since it was told to load last */
	atomic_int n_loads, n_results;
	atomic_uint rank;
	atomic_bool hello_again;        /* to say hello once more, as after its connection broke */
	atomic_bool end;                /* to end it, without a word */
	atomic_bool stopped;            /* it was told to stop */
	struct rig *rig;
	pthread_t thread;
};
void fake_start(struct fake_worker *w, struct rig *r);
void fake_end(struct fake_worker *w);   /* and waits for it */

/* A peer of the bus that says what the test wants, under an identity of its choice. */
void *rig_peer(struct rig *r, const char *identity);
void rig_say(void *peer, const struct bus_msg *m);
/* The next message that is no beat; its load, if it is one, into load (may be NULL). */
enum bus_type rig_hear(void *peer, struct bus_load *load);

#endif
