/* Workers that beat, but do not get on with what they were asked for: they are given up, and nobody else is. */
#include "tests/sim/device.h"
#include "tests/sim/fleet_rig.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* Long enough for a machine that is busy with other things. */
static const struct engine_config impatient = {.stuck_us = 3000000, .silent_us = 60000000};
static const struct engine_config impatient_tp2 = {.stuck_us = 3000000, .silent_us = 60000000, .tp = 2};
enum { BEATS = 70, BEAT_US = 100000 }; /* for more than twice as long */

Test(pace, a_worker_that_beats_but_does_not_get_on_is_given_up)
{
	struct rig *r = rig_new(&impatient);
	char host[128] = "";
	gethostname(host, sizeof host - 1);
	struct fake_worker a = {.stick_at = 10, .host = host}, b = {0};
	fake_start(&a, r);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 60);
	rig_wait_ready(r, false);
	pthread_mutex_lock(&r->lock);
	cr_assert_eq(r->n_lost, 1); /* whoever started it is told to end it */
	pthread_mutex_unlock(&r->lock);
	fake_start(&b, r);
	rig_finish(r, 0);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}

Test(pace, a_worker_that_is_asked_for_nothing_need_not_get_on)
{
	struct rig *r = rig_new(&impatient);
	struct fake_worker a = {0};
	fake_start(&a, r);
	rig_submit(r, 0, 0, 30, 20);
	rig_finish(r, 0);
	usleep(BEATS * BEAT_US);
	rig_submit(r, 1, 0, 30, 20);
	rig_finish(r, 1);
	cr_assert_eq(a.n_loads, 1);
	rig_free(r);
	fake_end(&a);
}

/* So many beats of a worker under the test's hand. */
static void beat_on(void *peer, struct bus_beat beat, bool moves)
{
	for (int i = 0; i < BEATS; i++) {
		beat.moves += moves;
		rig_say(peer, &(struct bus_msg){.type = BUS_BEAT, .beat = beat});
		usleep(BEAT_US);
	}
}

static void *start_peer(struct rig *r, struct bus_load *load)
{
	void *peer = rig_peer(r, "peer");
	rig_say(peer, &(struct bus_msg){.type = BUS_HELLO, .hello = {"cpu", "here", 1, "place"}});
	cr_assert_eq(rig_hear(peer, load), BUS_LOAD);
	return peer;
}

static void say_ready(void *peer, const struct bus_load *load)
{
	struct bus_msg m = {.type = BUS_READY};
	m.ready = (struct bus_ready){
		.epoch = load->epoch, .numerics = "class a", .n_blocks = RIG_BLOCKS, .n_vocab = DEVICE_VOCAB};
	rig_say(peer, &m);
}

Test(pace, a_step_may_take_long_while_it_gets_on)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = start_peer(r, &load);
	say_ready(peer, &load);
	rig_submit(r, 0, 0, 30, 20);
	cr_assert_eq(rig_hear(peer, NULL), BUS_PLAN);
	struct bus_beat beat = {.epoch = load.epoch, .state = BUS_SERVING, .expected = 1};
	beat_on(peer, beat, true);
	cr_assert(rig_status(r)->ready);
	beat.moves = BEATS;
	beat_on(peer, beat, false);
	rig_wait_ready(r, false);
	zmq_close(peer);
	rig_free(r);
}

Test(pace, a_load_may_take_long)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = start_peer(r, &load);
	beat_on(peer, (struct bus_beat){.epoch = load.epoch, .state = BUS_LOADING, .progress = 7}, false);
	say_ready(peer, &load);
	rig_wait_ready(r, true);
	zmq_close(peer);
	rig_free(r);
}

Test(pace, a_load_that_is_not_begun_is_waited_for_only_so_long)
{
	struct rig *r = rig_new(&impatient);
	struct bus_load load;
	void *peer = start_peer(r, &load);
	beat_on(peer, (struct bus_beat){.state = BUS_SERVING, .expected = 1}, false);
	cr_assert_eq(rig_hear(peer, NULL), BUS_STOP);
	zmq_close(peer);
	rig_free(r);
}

/* The other rank notices sooner, and says hello again: each time, the group is formed anew. */
Test(pace, a_rank_that_hangs_is_given_up_however_often_its_group_is_formed_anew)
{
	struct rig *r = rig_new(&impatient_tp2);
	struct fake_worker a = {0}, b = {0};
	struct bus_load load;
	fake_start(&a, r);
	void *peer = start_peer(r, &load);
	say_ready(peer, &load);
	rig_wait_ready(r, true);
	rig_submit(r, 0, 0, 30, 20);
	const struct bus_msg beat = {.type = BUS_BEAT, .beat = {load.epoch, BUS_SERVING, 0, 1}};
	int timeout = BEAT_US / 1000, n_loads = 0, n_beats = 0;
	zmq_setsockopt(peer, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
	for (int type = 0; type != BUS_STOP;) {
		static char bytes[1 << 16];
		int n = zmq_recv(peer, bytes, sizeof bytes, 0);
		type = n > 0 ? bus_peek(bytes, (size_t)n, NULL, 0) : 0;
		if (n < 0) {
			rig_say(peer, &beat);
			a.hello_again = ++n_beats % 4 == 0;
		}
		n_loads += type == BUS_LOAD;
	}
	cr_assert_gt(n_loads, 0);
	fake_start(&b, r);
	rig_finish(r, 0);
	zmq_close(peer);
	rig_free(r);
	fake_end(&a);
	fake_end(&b);
}
