/* The table of workers: rows, state changes, and progress. */
#include "controller/fleet/fleet_impl.h"
#include "controller/fleet/worker_table.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { SECOND = 1000 * 1000, STUCK = 5 * SECOND };

static struct worker_table table;

static struct worker *add(int n, const char *device, int64_t now_us)
{
	struct bus_hello h = {.pid = n};
	uint8_t route[2] = {(uint8_t)(n & 0xff), (uint8_t)(n >> 8)};
	snprintf(h.host, sizeof h.host, "here");
	snprintf(h.device, sizeof h.device, "%s", device);
	return worker_table_add(&table, &h, route, sizeof route, now_us);
}

/* Return a worker that serves as this rank of two. */
static struct worker *serving(int n, uint32_t rank, int64_t now_us)
{
	struct worker *k = add(n, "cpu", now_us);
	worker_load(k, 7, rank, 2, now_us);
	watchdog_done(&k->watchdog);
	k->state = WORKER_SERVING;
	return k;
}

static void expect_idle(const struct worker *k, int64_t now_us)
{
	cr_expect_eq(k->state, WORKER_JOINING);
	cr_expect_eq(k->epoch, 0);
	cr_expect_eq(k->idle_us, now_us);
	cr_expect_eq(k->last_seen_us, now_us);
	cr_expect_eq(k->beat_us, now_us);
}

Test(worker_table, new_worker_takes_the_row_of_the_lost_one_of_its_device)
{
	struct worker *a = add(1, "cuda:0", 1), *b = add(2, "cuda:1", 2);
	worker_lose(a, 3);
	worker_lose(b, 4);
	cr_expect_eq(add(3, "cuda:1", 5), b);
	cr_expect_eq(b->id, 3);
	cr_expect_eq(a->state, WORKER_LOST);
	expect_idle(b, 5);
}

Test(worker_table, full_table_gives_up_the_worker_lost_first)
{
	struct worker *rows[ENGINE_WORKERS_MAX];
	for (int i = 0; i < ENGINE_WORKERS_MAX; i++)
		cr_assert(rows[i] = add(i, "cpu", i));
	cr_expect_null(add(ENGINE_WORKERS_MAX, "cpu", 1000));
	snprintf(rows[5]->hello.device, sizeof rows[5]->hello.device, "cuda:5");
	snprintf(rows[9]->hello.device, sizeof rows[9]->hello.device, "cuda:9");
	worker_lose(rows[5], 2000);
	worker_lose(rows[9], 1999);
	cr_expect_eq(add(ENGINE_WORKERS_MAX, "cpu", 3000), rows[9]);
	cr_expect_eq(rows[5]->state, WORKER_LOST);
}

Test(worker_table, ids_are_of_live_workers_and_routes_of_all)
{
	struct worker *k = add(1, "cpu", 1);
	const uint8_t route[] = {1, 0};
	cr_expect_eq(worker_table_find(&table, k->id), k);
	worker_lose(k, 2);
	cr_expect_null(worker_table_find(&table, k->id));
	cr_expect_eq(worker_table_find_route(&table, route, sizeof route), k);
	cr_expect_null(worker_table_find_route(&table, route, 1));
}

/* The worker has a new meeting place and nothing is pending, so it does not count as hung. */
Test(worker_table, hello_again_makes_a_worker_idle)
{
	struct worker *k = serving(1, 0, 1);
	struct bus_hello again = k->hello;
	uint64_t id = k->id;
	snprintf(again.rendezvous, sizeof again.rendezvous, "another place");
	k->rendezvous_used = k->broken = true;
	k->steps = 4;
	worker_plan_sent(k, 1, 1);
	worker_rejoin(&table, k, &again, 2);
	expect_idle(k, 2);
	cr_expect_eq(k->id, id);
	cr_expect_eq(k->steps, 4);
	cr_expect_str_eq(k->hello.rendezvous, "another place");
	cr_expect(!k->rendezvous_used && !k->broken);
	cr_expect(!watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
}

Test(worker_table, lost_worker_that_sends_hello_is_a_new_one)
{
	struct worker *k = serving(1, 0, 1);
	struct bus_hello again = k->hello;
	uint64_t id = k->id;
	k->steps = 4;
	k->silent = true;
	worker_lose(k, 2);
	worker_rejoin(&table, k, &again, 3);
	expect_idle(k, 3);
	cr_expect_neq(k->id, id);
	cr_expect_eq(k->steps, 0);
	cr_expect(!k->silent);
}

Test(worker_table, revived_worker_keeps_its_id_and_owes_nothing)
{
	struct worker *k = serving(1, 0, 1);
	uint64_t id = k->id;
	worker_plan_sent(k, 1, 1);
	k->silent = true;
	worker_lose(k, 2);
	worker_revive(k, 3);
	expect_idle(k, 3);
	cr_expect_eq(k->id, id);
	cr_expect(!k->silent);
	cr_expect(!watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
}

/* A step of the ended tp_group may hang. */
Test(worker_table, end_of_a_tp_group_leaves_the_watchdog)
{
	struct worker *k = serving(1, 0, 1);
	worker_plan_sent(k, 1, 1);
	worker_idle(k, 2);
	expect_idle(k, 2);
	cr_expect(watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
	worker_lose(k, 3);
	worker_idle(k, 4);
	cr_expect_eq(k->state, WORKER_LOST);
	cr_expect_eq(k->left_us, 3);
}

Test(worker_table, results_are_steps_and_the_last_one_ends_the_watch)
{
	struct worker *k = serving(1, 0, 1);
	worker_plan_sent(k, 1, 1);
	worker_plan_sent(k, 2, 1);
	worker_result_received(k, &(struct result){.number = 1, .step_us = 30});
	cr_expect(watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
	worker_result_received(k, &(struct result){.number = 2, .step_us = 40});
	cr_expect(!watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
	cr_expect_eq(k->steps, 2);
	cr_expect_eq(k->step_us, 40);
}

/* A rank without results reports the number of the next plan in its heartbeats. */
Test(worker_table, executed_plans_are_steps_and_progress)
{
	struct worker *k = serving(1, 1, 1);
	for (uint64_t number = 1; number <= 5; number++)
		worker_plan_sent(k, number, 1);
	worker_plans_executed(k, 0, STUCK);
	cr_expect(watchdog_is_stuck(&k->watchdog, STUCK, STUCK + 2));
	worker_plans_executed(k, 4, STUCK);
	cr_expect_eq(k->steps, 3);
	cr_expect_eq(k->received, 3);
	worker_plans_executed(k, 4, 2 * STUCK); /* the same number again: no progress */
	cr_expect_eq(k->steps, 3);
	cr_expect(!watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK));
	cr_expect(watchdog_is_stuck(&k->watchdog, STUCK, 2 * STUCK + 1));
	worker_plans_executed(k, 6, 2 * STUCK);
	cr_expect_eq(k->steps, 5);
	cr_expect(!watchdog_is_stuck(&k->watchdog, STUCK, 9 * STUCK));
}

Test(worker_table, flood_of_hellos_is_counted_within_a_second)
{
	struct worker *k = add(1, "cpu", 0);
	for (int i = 1; i < 20; i++)
		cr_expect(!worker_hello_flood(k, SECOND));
	cr_expect(worker_hello_flood(k, SECOND));
	cr_expect(!worker_hello_flood(k, SECOND + 1));
}

/* Ranks connect to an address that rank 0 declares; workers on other hosts are not sent there. */
Test(worker_table, workers_of_one_group_connect_from_one_host)
{
	struct worker *a = add(1, "cpu:0", 0), *b = add(2, "cpu:1", 0), *c = add(3, "cuda:0", 0);
	cr_expect(fleet_same_kind(a, b));
	cr_expect_not(fleet_same_kind(a, c));
	snprintf(b->address, sizeof b->address, "10.0.0.7"); /* the worker itself declares its host name */
	cr_expect_not(fleet_same_kind(a, b));
	cr_expect_not(fleet_same_kind(b, a));
	snprintf(a->address, sizeof a->address, "10.0.0.7");
	cr_expect(fleet_same_kind(a, b));
	snprintf(b->hello.host, sizeof b->hello.host, "there");
	cr_expect_not(fleet_same_kind(a, b));
}
