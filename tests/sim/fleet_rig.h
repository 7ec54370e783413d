/* fleet_rig.h - the engine thread between a simulated front end and any number of simulated workers on its
 * real bus.  Each worker computes on a simulated device (device.h), so every token is known.  A worker can be
 * made to die, to hang, or to lose a plan or a result.
 * The rig owns its workers and peers: rig_free() ends them. */
#ifndef QUERN_TESTS_SIM_FLEET_RIG_H
#define QUERN_TESTS_SIM_FLEET_RIG_H

#include "controller/fleet/engine.h"
#include "proto/bus.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
	RIG_SLOTS = 4,
	RIG_BLOCKS = 64,
	RIG_CONTEXT = 256,
	RIG_JOBS = 64,
	RIG_OUTPUTS = 4,
	RIG_OUT = 240,
	RIG_WORKERS = 16,
	RIG_PEERS = ENGINE_WORKERS_MAX + 1,
};

/* A job as the front end sees it. */
struct rig_job {
	uint32_t n_prompt, max_tokens, first, n; /* prompt: first, first + 1, ...; n outputs */
	struct {
		uint32_t tokens[RIG_OUT], n;
	} out[RIG_OUTPUTS];
	uint32_t n_out; /* sum over all outputs */
	bool accepted, refused, done, class_changed;
	enum code code;
	char why[256];
};

struct rig {
	void *zmq, *events, *commands;
	struct engine *engine;
	struct rig_job jobs[RIG_JOBS];
	struct engine_status status; /* filled by rig_status() */
	bool status_here, ready;
	char unready_why[256];         /* reason in the last ENGINE_STATE that was not ready */
	uint64_t account;              /* account of the next jobs; 0: none */
	struct constraint *constraint; /* structured output of the next jobs, owned; NULL: none */
	const char *order_device; /* device for new workers in the next rig_order(); NULL: as at the start */
	bool order_here;
	enum code order;
	char order_why[256];
	/* Notices, recorded on the engine thread. */
	pthread_mutex_t lock;
	uint32_t n_scale, scale_workers, n_retire, n_lost, n_failed, n_keep, n_turned; /* n_turned counts
										        * READY and UNREADY */
	char scale_device[32];
	int64_t lost_pid, keep_pids[4]; /* from the last LOST and KEEP */
	uint32_t n_kept;
	atomic_bool hold; /* READY and UNREADY hold the engine thread until the test clears this */
	struct fake_worker *workers[RIG_WORKERS]; /* [n_workers] owned */
	void *peers[RIG_PEERS];                   /* [n_peers] owned */
	uint32_t n_workers, n_peers;
};

/* cfg: settings that differ from the rig's; NULL: none. */
struct rig *rig_new(const struct engine_config *cfg);
/* End the engine, if rig_free() has not done so. */
void rig_end_engine(struct rig *r);
void rig_free(struct rig *r);

/* ---- the front end ---- */

/* Submit a job.  Prompt tokens are first, first + 1, ...: jobs with the same `first` share a prefix. */
void rig_submit(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt, uint32_t max_tokens);
void rig_submit_n(struct rig *r, uint64_t job, uint32_t first, uint32_t n_prompt, uint32_t max_tokens,
		  uint32_t n);
/* Submit jobs [from, to), all with different prompts. */
void rig_submit_many(struct rig *r, uint64_t from, uint64_t to, uint32_t n_prompt, uint32_t max_tokens);
/* Submit a job from before a restart of the controller: its first n_had tokens were computed in that numerics
 * class.  rig_finish() takes these tokens into account. */
void rig_resume(struct rig *r, uint64_t job, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_had,
		const char *numerics, bool durable);
/* Take events until the job has ended; abort unless its tokens are those of an undisturbed run. */
void rig_finish(struct rig *r, uint64_t job);
void rig_finish_many(struct rig *r, uint64_t from, uint64_t to);
void rig_wait_end(struct rig *r, uint64_t job);               /* done, refused or failed */
void rig_wait_failed(struct rig *r, uint64_t job, enum code); /* failed with this code */
void rig_wait_accepted(struct rig *r, uint64_t job);          /* accepted or refused */
void rig_wait_tokens(struct rig *r, uint64_t job, uint32_t n);
void rig_wait_ready(struct rig *r, bool ready);
void rig_request_status(struct rig *r); /* does not wait for the reply */
const struct engine_status *rig_status(struct rig *r);
/* Poll the status until n replicas are in that state. */
void rig_wait_replicas(struct rig *r, uint32_t n, const char *state);
void rig_order(struct rig *r, enum engine_cmd_kind kind, uint64_t what, int64_t wait_us);
enum code rig_wait_order(struct rig *r);
void rig_expect_order(struct rig *r); /* aborts unless the order succeeds */
/* Read a counter of notices under the lock. */
uint32_t rig_notices(struct rig *r, const uint32_t *counter);

/* ---- workers ---- */

/* Faults and properties of a fake worker.  Plans are counted from 1; 0: never. */
struct fake_config {
	const char *host, *device, *numerics; /* NULL: "here", "cpu", "class a" */
	uint32_t n_blocks;                    /* 0: RIG_BLOCKS */
	int64_t pid;                          /* 0: 1 */
	const char *token;                    /* the supervisor's token; NULL: none */
	const char *compute;                  /* mode that the worker picks for "auto"; NULL: "f32" */
	int step_us;                          /* duration of a step, also as reported */
	uint32_t row_us;                      /* added to the reported duration for each prompt row */
	bool fail_load;                       /* the worker cannot load the model */
	int die_at;                           /* exit at this plan, without a result */
	uint64_t die_of;                      /* exit at the first plan that names this job; 0: none */
	int hang_at;                          /* hang at this plan and send nothing, ... */
	int hang_ms;                          /* ... for this long; 0: for ever */
	int stuck_at;                         /* hang at this plan, while heartbeats continue */
	int lose_plan;                        /* drop this plan on arrival */
	int lose_result;                      /* drop the result of this plan */
	int garbage_at;                       /* send garbage as the result of this plan */
};

struct fake_worker {
	struct fake_config c;
	atomic_int step_us;
	atomic_bool dies;         /* set by the test: exit at the next plan */
	atomic_bool leaves;       /* set by the test: request to leave in heartbeats */
	atomic_bool hello_again;  /* set by the test: send hello, as after an interrupted connection */
	atomic_int n_plans;       /* executed */
	atomic_int n_group_plans; /* plans executed since the last load */
	atomic_int n_loads, n_results;
	atomic_int n_seqs; /* sequences received in plans */
	atomic_uint rank;
	atomic_bool end;     /* the worker must exit, or has exited */
	atomic_bool stopped; /* has received stop */
	bool joined;         /* its thread has been joined */
	struct rig *rig;
	char bus[256]; /* a copy: the engine may end before the thread connects */
	pthread_t thread;
};

/* Start a worker; c NULL: without faults. */
struct fake_worker *rig_worker(struct rig *r, const struct fake_config *c);
void rig_end_worker(struct fake_worker *w);  /* ends it without a message; waits until it has exited */
void rig_join_worker(struct fake_worker *w); /* waits until it has exited by itself */
/* Wait until W has received stop: a scale order completes when the stops are sent. */
void rig_wait_stopped(struct fake_worker *w);

/* ---- peers: send any messages, under any routing id ---- */

void *rig_peer(struct rig *r, const char *identity);
void rig_peer_send(void *peer, const struct bus_msg *m);
void rig_peer_hello(void *peer, const char *device, const char *host);
void rig_peer_ready(void *peer, const struct bus_load *load);
/* Receive the next message other than a heartbeat.  load: filled if the message is a load; may be NULL. */
enum bus_type rig_peer_recv(void *peer, struct bus_load *load);
/* Make a peer that has sent hello and received its load. */
void *rig_loading_peer(struct rig *r, const char *identity, struct bus_load *load);

#endif
