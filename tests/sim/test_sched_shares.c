/* test_sched_shares.c - shares of keys: one key floods the service, with any number of users and any
 * priorities.  Another key gets what it would get alone, or its share. */
#include "tests/sim/one_sched.h"

#include <inttypes.h>

enum { FLOOD = 1, LIGHT = 2, CHUNK = 64, PROMPT = 512, OUT = 24, FLOOD_OUT = 400, USERS = 49 };

enum flood { ALONE, ONE_USER, MANY_USERS, PRIORITIES };

static uint32_t submit_of(struct sim *m, uint64_t account, uint64_t user, int32_t priority, uint32_t n_prompt,
			  uint32_t n_out)
{
	return submit_of_key(m, account, user, priority, n_prompt, n_out, m->n_jobs);
}

/* Keep 40 jobs of the flood in the scheduler. */
static void flood(struct sim *m, enum flood kind)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < m->n_jobs; i++)
		n += m->jobs[i].account == FLOOD && !m->jobs[i].done;
	for (; kind != ALONE && n < 40; n++) {
		uint32_t k = m->n_jobs;
		submit_of(m, FLOOD, kind == ONE_USER ? 7 : k % USERS, kind == PRIORITIES ? (int32_t)k % 5 : 0,
			  32, FLOOD_OUT);
	}
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Run 100 jobs of the light key one after another; return the 99th percentile of plans until the first
 * token. */
static uint64_t p99(enum flood kind)
{
	enum { N = 100 };
	struct sim *m = sim_new(2000, CHUNK, false);
	uint64_t plans[N];
	for (int i = 0; i < 500; i++) {
		flood(m, kind);
		step(m);
	}
	for (int i = 0; i < N; i++) {
		uint32_t job = submit_of(m, LIGHT, (uint64_t)i % 3, 0, PROMPT, OUT);
		uint64_t from = m->n_plans;
		while (!m->jobs[job].done) {
			flood(m, kind);
			step(m);
		}
		plans[i] = m->jobs[job].first_token - from;
		for (int k = 0; k < 3 + i % 17; k++) {
			flood(m, kind);
			step(m);
		}
	}
	sim_free(m);
	qsort(plans, N, sizeof *plans, by_size);
	return plans[N - 2];
}

Test(sched_shares, a_flood_of_one_key_does_not_hold_up_another)
{
	uint64_t alone = p99(ALONE);
	cr_assert_eq(alone, PROMPT / CHUNK);
	for (enum flood kind = ONE_USER; kind <= PRIORITIES; kind++) {
		uint64_t beside = p99(kind);
		cr_expect_leq(beside, alone + alone / 2, "flood %d: %" PRIu64 " plans, alone %" PRIu64,
			      (int)kind, beside, alone);
	}
}

/* Both keys always have jobs waiting. */
Test(sched_shares, users_do_not_multiply_the_share_of_their_key)
{
	struct sim *m = sim_new(2000, 0, false);
	uint32_t n[3] = {0}, here[3];
	for (int i = 0; i < 6000; i++) {
		memset(here, 0, sizeof here);
		for (uint32_t k = 0; k < m->n_jobs; k++)
			here[m->jobs[k].account] += !m->jobs[k].done;
		for (; here[FLOOD] < 60; here[FLOOD]++)
			submit_of(m, FLOOD, m->n_jobs % USERS, 0, 16, 60);
		for (; here[LIGHT] < 20; here[LIGHT]++)
			submit_of(m, LIGHT, 0, 0, 16, 60);
		step(m);
	}
	for (uint32_t k = 0; k < m->n_jobs; k++)
		n[m->jobs[k].account] += m->jobs[k].n_tokens;
	uint32_t all = n[FLOOD] + n[LIGHT];
	cr_expect(n[LIGHT] > all * 4 / 10 && n[LIGHT] < all * 6 / 10, "%u of %u", n[LIGHT], all);
	sim_free(m);
}
