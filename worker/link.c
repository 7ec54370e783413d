/* link.c - handles the controller's messages: loads, plans, the end; and sends results.
 * Main thread.  link_socket.c has the socket and the heartbeats. */
#include "worker/link_impl.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "store/files.h"
#include "worker/tp_group.h"
#include "worker/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	HELLO_RETRY_MS = 20,
	/* Between the loss of a group and the next hello: time for the other ranks to notice the loss, and
	 * no busy loop if a group cannot form. */
	REGROUP_MS = 100,
	LOOK_MS = 20, /* between two checks for a lost rank, since its plans never notify */
	GUIDE_THREADS = 2,
	GONE_MS = 2000, /* a leaving worker waits this long for a silent controller */
};

/* ---- replies ---- */

static void send_failed(struct link *l, uint64_t epoch, const char *why)
{
	struct bus_msg m = {.type = BUS_FAILED, .failed.epoch = epoch};
	snprintf(m.failed.why, sizeof m.failed.why, "%.*s", (int)sizeof m.failed.why - 1, why);
	l->reported = link_send(l, &m) == 0;
}

static void set_progress(void *arg, unsigned permille)
{
	struct link *l = arg;
	atomic_store(&l->permille, permille);
}

static void send_ready(struct link *l, const struct bus_ready *r)
{
	const struct bus_msg m = {.type = BUS_READY, .ready = *r};
	/* If ready is lost, a new hello makes the controller resend the load; the weights are kept. */
	if (link_send(l, &m)) {
		l->hello_due = true;
		return;
	}
	log_info("link", "ready epoch=%llu blocks=%u host_blocks=%u load_ms=%u threads=%u isa=%s",
		 (unsigned long long)r->epoch, r->n_blocks, r->n_host_blocks, r->load_ms, r->n_threads,
		 r->isa);
}

/* Polled while a rank waits for another: true to give up. */
static bool called_away(void *arg)
{
	struct link *l = arg;
	return atomic_load(&l->calls) > 0 || atomic_load(&l->dismissed) || link_stopping();
}

/* Handle the loss of the group: keep the weights, and send a hello unless a load or stop was received. */
static void group_lost(struct link *l, const char *why)
{
	log_warn("link", "group lost reason=\"%s\"", why);
	if (atomic_load(&l->calls) > 0 || link_stopping())
		return;
	l->hello_due = true;
	l->hello_at_us = clock_us() + REGROUP_MS * 1000;
}

/* Join the other ranks of the group. */
static int join(struct link *l, const struct bus_load *load, struct bus_ready *ready, struct why *why)
{
	/* The connection may go down and up meanwhile; the next hello then has a new meeting place. */
	struct tp_group_rendezvous *mine = l->rendezvous;
	const struct step_group g = {
		.mine = &mine, .timeout_ms = l->args->late_ms, .cancelled = called_away, .cancelled_arg = l};
	l->rendezvous = NULL;
	link_lend(l, true);
	int rc = step_join(l->step, load, &g, ready, why);
	link_reclaim(l);
	tp_group_rendezvous_free(mine);
	return rc;
}

static int open_step(struct link *l, const struct bus_load *load, struct bus_ready *ready, struct why *why)
{
	log_info("link", "load model=%s epoch=%llu compute=%s fast=%s rank=%u ranks=%u", load->model,
		 (unsigned long long)load->epoch, load->compute[0] ? load->compute : "default",
		 load->fast ? "yes" : "no", load->rank, load->n_ranks ? load->n_ranks : 1);
	step_close(l->step);
	l->step = NULL;
	atomic_store(&l->permille, 0);
	loading_begin(&l->progress, 0);
	int rc = link_find_model(l, load, &l->found, why);
	if (rc)
		return rc;
	link_lend(l, true);
	const struct guide_work guide = {.n_threads = GUIDE_THREADS, .report = &l->masks};
	const struct step_args a = {
		.device = l->args->device,
		.isa = l->args->isa,
		.memory_fraction = l->args->memory_fraction,
		.place = l->args->place,
		.hot = l->args->hot,
		.stream_above_rows = l->args->stream_above_rows,
		.no_graphs = l->args->no_graphs,
		.load = load,
		.path = l->found.path,
		.tune = l->args->tune,
		.progress = set_progress,
		.progress_arg = l,
		.loading = &l->progress,
		.moves = &l->moves,
		.skew = l->args->skew,
		.least_us = l->args->least_step_us,
		.experts = &l->experts,
		.trace = l->args->trace,
		.draft_report = &l->drafts,
		.guide = &guide,
		.at_work = link_wake_sender,
		.at_work_arg = l,
	};
	rc = step_open(&l->step, &a, ready, why);
	link_reclaim(l);
	return rc;
}

/* ---- results ---- */

static int in_flight(const struct link *l)
{
	return l->step ? step_in_flight(l->step) : 0;
}

/* Wait for the oldest plan in flight.  Its result is sent at once if the device continues with another
 * plan; else the next plan is taken up first, if it was received. */
static int finish(struct link *l, struct why *why)
{
	link_lend(l, false);
	int rc = step_end(l->step, &l->result, why);
	link_reclaim(l);
	if (rc && !step_joined(l->step)) {
		group_lost(l, why->text); /* all plans in flight are lost, too */
		return 0;
	}
	if (rc) {
		send_failed(l, step_epoch(l->step), why->text);
		return rc;
	}
	if (step_rank(l->step))
		return 0;    /* only rank 0 sends results */
	link_send_answer(l); /* the previous plan's */
	bus_encode_result(&l->result, &l->answer);
	l->answered = l->result.number;
	l->answer_due = true;
	if (in_flight(l))
		link_send_answer(l);
	trace_mark(l->args->trace, TRACE_RESULT);
	return 0;
}

/* Send the results of all plans that the device has completed. */
static int finish_done(struct link *l, struct why *why)
{
	int rc = 0;
	while (!rc && in_flight(l) && step_done(l->step))
		rc = finish(l, why);
	return rc;
}

static int finish_all(struct link *l, struct why *why)
{
	int rc = 0;
	while (!rc && in_flight(l))
		rc = finish(l, why);
	return rc;
}

/* Report slots that sat out in answered plans, and would run now. */
static void send_awake(struct link *l)
{
	struct bus_msg m = {.type = BUS_AWAKE, .awake.epoch = l->epoch};
	uint32_t slot;
	while (l->step && l->welcome) {
		m.awake.n = 0;
		while (m.awake.n < BUS_AWAKE_MAX && step_awake(l->step, &slot))
			m.awake.slots[m.awake.n++] = slot;
		if (!m.awake.n)
			return;
		link_send_answer(l);
		if (link_send(l, &m)) /* a new hello makes the controller resend everything */
			l->hello_due = true;
	}
}

/* ---- loads and plans ---- */

/* True if the loaded model, at the same path, has the contents that the load means.  If both have a
 * fingerprint, the fingerprints decide; else (a model found by path, an older controller) the sketches.  A
 * controller without a sketch (its weights are git-lfs pointers) means the files present now. */
static bool same_contents(struct link *l, const struct bus_load *load)
{
	if (l->found.fingerprint[0] && load->fingerprint[0])
		return strcmp(l->found.fingerprint, load->fingerprint) == 0;
	if (!quick_fingerprint_is_known(load->quick_fingerprint))
		return link_model_unchanged(l);
	return !quick_fingerprint_difference(l->found.quick_fingerprint, load->quick_fingerprint);
}

static int handle_load(struct link *l, struct bus_load *load, struct why *why)
{
	struct bus_ready ready = {0};
	const bool hello_due = l->hello_due;
	int rc = finish_all(l, why); /* they belong to the controller of the previous epoch */
	if (rc)
		return rc;
	/* If finish_all() lost a group and so set hello_due, undo that: this load leaves the group anyway. */
	l->hello_due = hello_due;
	link_send_answer(l); /* the last result: another controller must not receive it */
	l->welcome = true;
	l->missed = false;
	l->epoch = load->epoch;
	l->ended = 0;
	l->experts_cursor =
		(struct expert_cursor){0}; /* in this epoch, the controller has received no cells */
	if (l->args->n_threads)
		load->n_threads = l->args->n_threads;
	if (l->args->experts_compute)
		snprintf(load->experts_compute, sizeof load->experts_compute, "%s", l->args->experts_compute);
	if (!l->step || !step_serves(l->step, load) || !same_contents(l, load)) {
		rc = open_step(l, load, &ready, why);
	} else if (load->n_ranks <= 1) {
		step_reset(l->step, load->epoch, &ready);
		link_reclaim(l);
	}
	if (!rc && load->n_ranks > 1)
		rc = join(l, load, &ready, why);
	if (rc == -ECANCELED && !l->step) {
		group_lost(l, "the load is void");
		return 0;
	}
	if (rc && l->step && tp_group_broke(rc)) {
		group_lost(l, why->text);
		return 0;
	}
	if (rc)
		send_failed(l, load->epoch, why->text);
	else
		send_ready(l, &ready);
	return rc;
}

/* Set the vocabulary, which precedes the plans of its load.  Without it, or with a damaged one, masks would
 * be wrong. */
static int handle_vocabulary(struct link *l, const void *bytes, size_t n, struct why *why)
{
	struct vocabulary v = {0};
	if (!l->step || !l->welcome) {
		log_warn("link", "vocabulary ignored reason=\"nothing is loaded\"");
		return 0;
	}
	int rc = bus_decode_vocabulary(bytes, n, step_limits(l->step)->n_vocab, &v, why);
	if (!rc) {
		link_lend(l, false);
		rc = step_vocabulary(l->step, &v, why);
		link_reclaim(l);
	}
	vocabulary_fini(&v);
	if (rc)
		send_failed(l, step_epoch(l->step), why->text);
	return rc;
}

/* Queue a plan after the running one, so that the device can start it at once.  A plan that is complete
 * when step_begin() returns, as on the CPU, is answered before the next message is handled.  A plan of
 * another epoch is ignored; a plan out of sequence is answered with the expected number.  A plan that
 * contradicts the worker's state ends the worker, because that state can no longer be trusted. */
static int handle_plan(struct link *l, const void *bytes, size_t n, struct why *why)
{
	if (!l->step || !l->welcome) {
		log_warn("link", "plan ignored reason=\"nothing is loaded\"");
		return 0;
	}
	int rc = 0;
	trace_mark(l->args->trace, TRACE_MESSAGE);
	/* A step that waits for the device in each of its layers would delay the tokens of the step
	 * before. */
	const int most = step_waits(l->step) ? 1 : STEP_AHEAD;
	if (in_flight(l) == most && (rc = finish(l, why)))
		return rc;
	if (!(rc = bus_decode_plan(bytes, n, step_limits(l->step), &l->plan, why))) {
		link_lend(l, false);
		rc = step_begin(l->step, &l->plan, why);
		link_reclaim(l);
	}
	if (rc == -ESTALE || rc == -ENXIO) {
		log_warn("link", "plan refused reason=\"%s\"", why->text);
		pthread_mutex_lock(&l->lock);
		l->missed = l->missed || (rc == -ENXIO && l->plan.number > step_expected(l->step));
		link_send_beat(l);
		pthread_mutex_unlock(&l->lock);
		return 0;
	}
	if (rc && !step_joined(l->step)) {
		group_lost(l, why->text);
		return 0;
	}
	if (rc) {
		/* The earlier plans are valid; an error in one of them is sent instead of this error. */
		struct why other;
		if (!finish_all(l, &other))
			send_failed(l, step_epoch(l->step), why->text);
		return rc;
	}
	return finish_done(l, why);
}

/* A heartbeat has the number of plans sent so far: plans not received by now were lost.  Epoch 0: the
 * controller has ended the group. */
static void handle_beat(struct link *l, const struct bus_beat *b)
{
	if (l->step && b->epoch == 0 && step_group_size(l->step) > 1 && step_joined(l->step)) {
		step_leave(l->step);
		group_lost(l, "the controller has ended it");
		return;
	}
	if (!l->step || !l->welcome || b->epoch != l->epoch || b->progress < step_expected(l->step) ||
	    l->missed)
		return;
	log_warn("link", "plan missing plan=%llu", (unsigned long long)step_expected(l->step));
	pthread_mutex_lock(&l->lock);
	l->missed = true;
	link_send_beat(l);
	pthread_mutex_unlock(&l->lock);
}

static int handle(struct link *l, const void *bytes, size_t n, struct why *why)
{
	struct bus_msg m;
	int type = bus_peek(bytes, n, why), rc;
	if (type == -EPROTO)
		return type;
	if (type == BUS_PLAN)
		return handle_plan(l, bytes, n, why);
	/* a plan usually follows a heartbeat: the answer is then sent during that plan */
	if (type != BUS_BEAT)
		link_send_answer(l);
	if (type == BUS_VOCABULARY)
		return handle_vocabulary(l, bytes, n, why);
	if (type == BUS_FILES || type == BUS_CHUNK)
		return 0; /* belongs to a void load */
	rc = type < 0 ? type : type == BUS_RESULT ? -EBADMSG : bus_decode(bytes, n, &m, why);
	if (rc < 0) {
		log_warn("link", "malformed message ignored bytes=%zu reason=\"%s\"", n,
			 type == BUS_RESULT ? "a result" : why->text);
		return 0;
	}
	switch (m.type) {
	case BUS_LOAD:
		return handle_load(l, &m.load, why);
	case BUS_STOP:
		/* A restarted controller answers messages before a hello with a stop, and a stop meant for
		 * its predecessor may have been in flight.  So the first stop only causes a new hello. */
		if (l->step && !l->welcome && !l->stop_passed) {
			l->stop_passed = l->hello_due = true;
			return 0;
		}
		if ((rc = finish_all(l, why)))
			return rc;
		log_info("link", "stopping reason=\"the controller's stop\"");
		link_send(l, &(struct bus_msg){.type = BUS_STOP}); /* acknowledges the stop */
		l->stop = true;
		return 0;
	case BUS_BEAT:
		handle_beat(l, &m.beat);
		return 0;
	default:
		log_warn("link", "message ignored type=%d reason=\"it is not for a worker\"", m.type);
		return 0;
	}
}

/* ---- the loop ---- */

static void wait_input(struct link *l)
{
	zmq_pollitem_t items[] = {{l->sock, 0, ZMQ_POLLIN, 0},
				  {l->monitor, 0, ZMQ_POLLIN, 0},
				  {NULL, l->step ? step_awake_fd(l->step) : -1, ZMQ_POLLIN, 0},
				  {NULL, in_flight(l) ? step_fd(l->step) : -1, ZMQ_POLLIN, 0}};
	const int64_t most = in_flight(l) && step_group_size(l->step) > 1 ? LOOK_MS : BUS_BEAT_MS;
	int64_t ms = (l->next_beat_us - clock_us()) / 1000 + 1;
	if (ms < 0 || ms > most)
		ms = ms < 0 ? 0 : most;
	zmq_poll(items, in_flight(l) ? 4 : 3, l->hello_due ? HELLO_RETRY_MS : (long)ms);
	if (items[1].revents & ZMQ_POLLIN)
		link_read_monitor(l);
}

/* Send the answer, since no plan waits for the device. */
static void answer_now(struct link *l)
{
	link_send_answer(l);
	trace_mark(l->args->trace, TRACE_RESULT);
}

static void keep_beat(struct link *l)
{
	if (clock_us() < l->next_beat_us)
		return;
	pthread_mutex_lock(&l->lock);
	if (l->step)
		link_send_beat(l);
	else
		l->next_beat_us = clock_us() + BUS_BEAT_MS * 1000;
	pthread_mutex_unlock(&l->lock);
}

/* True if asked to leave, and there is nothing to wait for: no plan can be received, or the controller took
 * too long. */
static bool has_left(struct link *l)
{
	if (!link_leaving())
		return false;
	if (!l->step || !l->welcome || !step_joined(l->step))
		return true;
	int64_t now_us = clock_us();
	if (!l->leave_at_us) {
		log_info("link", "leaving: the controller moves the jobs timeout_ms=%lld",
			 (long long)l->args->leave_ms);
		l->leave_at_us = now_us + l->args->leave_ms * 1000;
		pthread_mutex_lock(&l->lock);
		link_send_beat(l);
		pthread_mutex_unlock(&l->lock);
	}
	/* A controller that is gone moves no jobs; a live one sends a heartbeat every 250 ms. */
	return now_us >= l->leave_at_us || now_us - l->last_seen_us > GONE_MS * 1000;
}

/* Call step_rest() between two heartbeats, with or without plans. */
static void rest(struct link *l)
{
	const int64_t now_us = clock_us();
	if (!l->step || now_us < l->rest_at_us)
		return;
	step_rest(l->step, now_us);
	l->rest_at_us = now_us + BUS_BEAT_MS * 1000;
}

static int serve(struct link *l, struct why *why)
{
	int rc = 0;
	while (!rc && !l->stop && !link_stopping() && !has_left(l)) {
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (link_take(l, &m))
			rc = handle(l, zmq_msg_data(&m), zmq_msg_size(&m), why);
		else if (l->answer_due)
			answer_now(l);
		else
			wait_input(l);
		zmq_msg_close(&m);
		if (!rc)
			rc = finish_done(l, why);
		if (!rc)
			send_awake(l);
		if (l->hello_due && clock_us() >= l->hello_at_us)
			link_send_hello(l);
		rest(l);
		keep_beat(l);
		if (!rc && l->unknown)
			rc = err_why(
				why, -EACCES,
				"the controller at %s does not accept this worker's key: its --allow file "
				"needs a line \"worker %s NAME\"",
				l->args->bus, l->args->key ? l->args->key->public : "KEY");
		if (!rc && link_grace_over(l))
			rc = err_why(why, -ETIMEDOUT, "no message from a controller at %s for %lld ms%s",
				     l->args->bus, (long long)l->args->grace_ms,
				     l->args->key ? " (or its key is not --server-key)"
						  : " (or it requires a key: --key, --server-key)");
	}
	return rc;
}

/* ---- life ---- */

/* Drop the plans in flight.  If the device hangs, the beat thread ends the process. */
static void leave_plans(struct link *l)
{
	if (!in_flight(l))
		return;
	link_lend(l, false);
	step_close(l->step);
	l->step = NULL;
	link_reclaim(l);
}

int link_run(const struct link_args *a, struct why *why)
{
	struct link *l = xcalloc(1, sizeof *l);
	l->args = a;
	l->last_seen_us = l->last_check_us = l->next_beat_us = clock_us();
	int rc = link_open_sockets(l, why);
	if (!rc && !(rc = link_start_beats(l, why))) {
		rc = serve(l, why);
		link_send_answer(l);
		leave_plans(l);
		link_end_beats(l);
		if (rc && l->reported && a->supervised)
			why->text[0] = '\0';
	}
	link_close_sockets(l);
	step_close(l->step);
	expert_load_fini(&l->experts);
	tp_group_rendezvous_free(l->rendezvous);
	bus_plan_fini(&l->plan);
	result_fini(&l->result);
	buf_fini(&l->answer);
	buf_fini(&l->out);
	buf_fini(&l->beat);
	free(l);
	return rc;
}
