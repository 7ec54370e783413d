/* test_watchdog.c - workers that send heartbeats but make no progress are lost, and no others. */
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* Limits that are long enough for a busy machine. */
static const struct engine_config impatient = {.stuck_us = 3000000, .silent_us = 60000000};
static const struct engine_config impatient_tp2 = {.stuck_us = 3000000, .silent_us = 60000000, .tp = 2};
enum { BEATS = 70, BEAT_US = 100000 }; /* more than twice the limit */

Test(watchdog, worker_without_progress_is_lost_despite_heartbeats)
{
	struct rig *r = rig_new(&impatient);
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	rig_worker(r, &(struct fake_config){.stuck_at = 10, .host = host});
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 60);
	rig_wait_ready(r, false);
	cr_assert_eq(rig_notices(r, &r->n_lost), 1); /* for the supervisor to kill it */
	rig_worker(r, NULL);
	rig_finish(r, 0);
	rig_free(r);
}

Test(watchdog, idle_worker_needs_no_progress)
{
	struct rig *r = rig_new(&impatient);
	struct fake_worker *a = rig_worker(r, NULL);
	rig_submit(r, 0, 0, 30, 20);
	rig_finish(r, 0);
	usleep(BEATS * BEAT_US);
	rig_submit(r, 1, 0, 30, 20);
	rig_finish(r, 1);
	cr_assert_eq(a->n_loads, 1);
	rig_free(r);
}

/* Send heartbeats for longer than the limit. */
static void send_beats(void *peer, struct bus_beat beat, bool progress)
{
	for (int i = 0; i < BEATS; i++) {
		beat.moves += progress;
		rig_peer_send(peer, &(struct bus_msg){.type = BUS_BEAT, .beat = beat});
		usleep(BEAT_US);
	}
}

Test(watchdog, long_step_is_allowed_while_it_makes_progress)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = rig_loading_peer(r, "peer", &load);
	rig_peer_ready(peer, &load);
	rig_submit(r, 0, 0, 30, 20);
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_PLAN);
	struct bus_beat beat = {.epoch = load.epoch, .state = BUS_SERVING, .expected = 1};
	send_beats(peer, beat, true);
	cr_assert(rig_status(r)->ready);
	beat.moves = BEATS;
	send_beats(peer, beat, false);
	rig_wait_ready(r, false);
	rig_free(r);
}

Test(watchdog, long_load_is_allowed)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = rig_loading_peer(r, "peer", &load);
	send_beats(peer, (struct bus_beat){.epoch = load.epoch, .state = BUS_LOADING, .progress = 7}, false);
	rig_peer_ready(peer, &load);
	rig_wait_ready(r, true);
	rig_free(r);
}

Test(watchdog, load_that_never_begins_times_out)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = rig_loading_peer(r, "peer", &load);
	send_beats(peer, (struct bus_beat){.state = BUS_SERVING, .expected = 1}, false);
	cr_assert_eq(rig_peer_recv(peer, NULL), BUS_STOP);
	rig_free(r);
}

/* The other rank detects the loss sooner and sends hello: the tp_group forms again each time. */
Test(watchdog, hung_rank_is_lost_however_often_its_tp_group_forms_again)
{
	struct rig *r = rig_new(&impatient_tp2);
	struct bus_load load;
	struct fake_worker *a = rig_worker(r, NULL);
	void *peer = rig_loading_peer(r, "peer", &load);
	rig_peer_ready(peer, &load);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 20);
	const struct bus_msg beat = {.type = BUS_BEAT, .beat = {load.epoch, BUS_SERVING, 0, 1}};
	int timeout = BEAT_US / 1000, n_loads = 0, n_beats = 0;
	zmq_setsockopt(peer, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	for (int type = 0; type != BUS_STOP;) {
		static char bytes[1 << 16];
		int n = zmq_recv(peer, bytes, sizeof bytes, 0);
		type = n > 0 ? bus_peek(bytes, (size_t)n, NULL) : 0;
		if (n < 0) {
			rig_peer_send(peer, &beat);
			a->hello_again = ++n_beats % 4 == 0;
		}
		n_loads += type == BUS_LOAD;
	}
	cr_assert_gt(n_loads, 0);
	rig_worker(r, NULL);
	rig_finish(r, 0);
	rig_free(r);
}
