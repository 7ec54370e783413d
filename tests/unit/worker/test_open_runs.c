/* test_open_runs.c - open runs of the worker (open_runs.h): sequences with many kinds of parameters run once
 * one token at a time, and then with drafts of which some are right, in runs of random length, with and
 * without a second plan in flight.  Tokens, log-probabilities and ranks have the same bits. */
#include "base/alloc.h"
#include "grammar/source.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <poll.h>

enum { SLOTS = 8, N_PROMPT = 40, N_NEW = 64, VOCAB = 250, TOP = 3 };

struct token {
	uint32_t id;
	uint32_t rank;
	float logprob, top[TOP];
	uint32_t top_ids[TOP];
};

struct output {
	struct token tokens[N_NEW];
	uint32_t n;
};

struct run_case {
	char name[32], compute[8], kv[8];
};

/* Nested words, none of which ends a text soon; in every third slot. */
static const char grammar[] = "root ::= \"[\" item (\",\" item)* \"]\"\n"
			      "item ::= [a-z]+ | [0-9]{1,4} | \"[\" item (\", \" item)* \"]\"\n";

static uint32_t prompts[SLOTS][N_PROMPT + N_NEW];
static struct params params[SLOTS];
static struct output want[SLOTS], got[SLOTS];
static struct driver d;
static uint64_t rng;
static uint32_t n_proposed, n_asked, n_held;
static bool asleep[SLOTS]; /* its last run sat out, and its mask is not ready yet */

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng >> 33) % n;
}

static void make_params(uint32_t slot)
{
	static const float temperatures[] = {0, 0.7f, 1, 1.3f};
	struct params *p = &params[slot];
	params_init(p);
	p->max_tokens = N_NEW;
	p->temperature = temperatures[slot % 4];
	p->seed = 1000 + slot;
	p->logprobs = slot % 3 ? TOP : -1;
	p->repetition = slot & 1 ? 1.3f : 1;
	p->presence = slot & 2 ? 0.8f : 0;
	p->frequency = slot == 5 ? 0.4f : 0;
	p->top_p = slot == 2 ? 0.9f : 1;
	p->top_k = slot == 3 ? 30 : 0;
	p->dry_multiplier = slot >= 4 ? 1.5f : 0;
	p->min_tokens = slot == 6 ? 20 : 0;
	p->stop_ids = xmemdup((uint32_t[]){3, 17, 40}, 3 * sizeof(uint32_t));
	p->n_stop_ids = slot == 6 ? 3 : 0;
	p->bad = xmemdup((int32_t[]){9, 10, 11, 65, 66}, 5 * sizeof(int32_t));
	p->bad_len = xmemdup((int32_t[]){1, 2, 2}, 3 * sizeof(int32_t));
	p->n_bad = slot == 7 ? 3 : 0;
	p->n_bad_ids = slot == 7 ? 5 : 0;
}

static void note(struct output *to, uint32_t slot, uint32_t token, uint32_t *at)
{
	struct token *t = &to->tokens[to->n++];
	cr_assert_leq(to->n, N_NEW, "more than max_tokens");
	*t = (struct token){.id = token};
	if (params[slot].logprobs < 0)
		return;
	cr_assert_lt(*at, d.result.n_logprobs, "a token without its log-probability");
	const struct result_logprob *l = &d.result.logprobs[(*at)++];
	cr_assert_eq(l->slot, slot);
	cr_assert_eq(l->token, token);
	cr_assert_eq(l->position, N_PROMPT + to->n - 1);
	cr_assert(l->n_top == TOP || (l->n_top < TOP && slot % 3 == 1), "fewer only under a mask");
	t->logprob = l->logprob;
	t->rank = l->rank;
	memcpy(t->top, d.result.top_logprobs + l->top0, l->n_top * sizeof *t->top);
	memcpy(t->top_ids, d.result.top_ids + l->top0, l->n_top * sizeof *t->top_ids);
}

static bool is_held(uint32_t slot)
{
	bool held = false;
	for (uint32_t i = 0; i < d.result.n_held; i++)
		held = held || d.result.held[i] == slot;
	n_held += held;
	return held;
}

static void open_worker(const struct run_case *c)
{
	const bool demo = strcmp(c->name, "demo") == 0;
	const char *dir = demo ? repofile("models/demo") : tiny_model(c->name);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	driver_compute = c->compute;
	driver_kv = c->kv;
	struct bus_load load = driver_load(dir);
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	cr_assert_eq(driver_send_vocabulary(&d), 0, "%s", d.why.text);
}

static void prefill(struct output *out)
{
	uint32_t at = 0;
	driver_form(&d, 7, GRAMMAR_GBNF, grammar);
	for (uint32_t s = 0; s < SLOTS; s++) {
		out[s].n = 0;
		d.constraint = s % 3 == 1 ? 7 : 0;
		driver_seq(&d, s, prompts[s], N_PROMPT, N_PROMPT, N_PROMPT + N_NEW, &params[s]);
		driver_add_run(&d, s, 0, N_PROMPT / 2, false);
	}
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	for (uint32_t s = 0; s < SLOTS; s++)
		driver_add_run(&d, s, N_PROMPT / 2, N_PROMPT / 2, true);
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
	for (uint32_t s = 0; s < SLOTS; s++)
		if (!(asleep[s] = is_held(s)))
			note(&out[s], s, d.result.tokens[s], &at);
}

static void one_by_one(void)
{
	prefill(want);
	while (want[0].n < N_NEW) {
		uint32_t at = 0;
		for (uint32_t s = 0; s < SLOTS; s++)
			driver_add_run(&d, s, N_PROMPT + want[s].n - 1, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
		for (uint32_t s = 0; s < SLOTS; s++)
			note(&want[s], s, d.result.tokens[s], &at);
	}
}

/* Guess right as often as *percent says. */
static uint32_t propose(void *percent, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t max,
			int32_t *out)
{
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq((uint32_t)tokens[i],
			     i < N_PROMPT ? prompts[slot][i] : want[slot].tokens[i - N_PROMPT].id,
			     "slot %u: token %u of its history", slot, i);
	for (uint32_t i = 0; i < max; i++) {
		const uint32_t at = n - N_PROMPT + i;
		cr_assert_lt(at, N_NEW - 1, "a draft after the last token");
		out[i] = rnd(100) < *(uint32_t *)percent ? (int32_t)want[slot].tokens[at].id
							 : (int32_t)rnd(VOCAB);
	}
	n_proposed += max;
	n_asked++;
	return max;
}

/* What the controller knows of a slot: its tokens, and the runs in flight. */
static uint32_t n_pending[SLOTS];

static void plan_open(struct plan *p)
{
	plan_reset(p);
	p->epoch = driver_epoch;
	p->number = ++d.number;
	for (uint32_t s = 0; s < SLOTS; s++) {
		if (asleep[s] || got[s].n + n_pending[s] >= N_NEW)
			continue;
		const uint32_t left = N_NEW - got[s].n - n_pending[s];
		const uint32_t rows = 1 + rnd(left < PLAN_OPEN_ROWS ? left : PLAN_OPEN_ROWS);
		*plan_add_run(p) = (struct plan_run){.slot = s,
						     .pos0 = N_PROMPT + got[s].n + n_pending[s] - 1,
						     .n_rows = rows,
						     .flags = PLAN_SAMPLE | PLAN_OPEN,
						     .from = s};
		p->n_rows += rows;
		p->n_samples++;
		n_pending[s]++;
	}
}

static void take(const struct plan *p)
{
	uint32_t token = 0, logprob = 0;
	cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
	cr_assert_eq(d.result.n_counts, p->n_runs);
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const uint32_t s = p->runs[i].slot, n = d.result.counts[i];
		cr_assert_leq(n, p->runs[i].n_rows);
		asleep[s] = is_held(s);
		cr_assert(n || asleep[s] || got[s].n == N_NEW, "no token, but %u are due", N_NEW - got[s].n);
		for (uint32_t k = 0; k < n; k++)
			note(&got[s], s, d.result.tokens[token++], &logprob);
		n_pending[s]--;
	}
	cr_assert_eq(token, d.result.n_tokens);
	cr_assert_eq(logprob, d.result.n_logprobs);
}

/* Take the masks that are ready; if nothing else is in flight, wait for one. */
static void wake(bool wait)
{
	struct pollfd fd = {.fd = step_awake_fd(d.step), .events = POLLIN};
	bool any = false;
	for (uint32_t slot; step_awake(d.step, &slot); any = true)
		asleep[slot] = false;
	for (uint32_t s = 0; s < SLOTS; s++)
		any = any || !asleep[s];
	if (!any && wait) {
		cr_assert_eq(poll(&fd, 1, 20000), 1, "a mask is never ready");
		wake(true);
	}
}

static uint32_t n_left(void)
{
	uint32_t n = 0;
	for (uint32_t s = 0; s < SLOTS; s++)
		n += N_NEW - got[s].n;
	return n;
}

/* Return the number of plans. */
static uint32_t with_drafts(bool ahead)
{
	static struct plan plans[2];
	uint32_t begun = 0, ended = 0;
	const bool fds = step_awake_fd(d.step) >= 0;
	prefill(got);
	for (bool more = true; more;) {
		if (fds)
			wake(begun == ended);
		plan_open(&plans[begun % 2]);
		more = plans[begun % 2].n_runs > 0;
		if (!more) {
			d.number--; /* all other tokens are in flight */
		} else {
			cr_assert_eq(step_begin(d.step, &plans[begun % 2], &d.why), 0, "%s", d.why.text);
			begun++;
		}
		for (; begun - ended > (more && ahead ? 1u : 0u); ended++)
			take(&plans[ended % 2]);
		more = more || n_left();
	}
	plan_fini(&plans[0]);
	plan_fini(&plans[1]);
	return ended;
}

static void check_same(uint32_t percent)
{
	for (uint32_t s = 0; s < SLOTS; s++)
		for (uint32_t i = 0; i < N_NEW; i++)
			cr_assert_eq(memcmp(&want[s].tokens[i], &got[s].tokens[i], sizeof want[s].tokens[i]),
				     0, "slot %u, token %u: %u, one by one %u (%u%% right)", s, i,
				     got[s].tokens[i].id, want[s].tokens[i].id, percent);
}

/* Make the round's prompts and parameters. */
static void begin(uint32_t round)
{
	rng = 1 + round;
	for (uint32_t s = 0; s < SLOTS; s++) {
		for (uint32_t i = 0; i < N_PROMPT; i++)
			prompts[s][i] = (i * i * 31 + i * 7 + s * 5 + round * 11) % VOCAB;
		make_params(s);
		params[s].seed += 100 * round;
	}
}

static void end(void)
{
	for (uint32_t s = 0; s < SLOTS; s++)
		params_fini(&params[s]);
}

ParameterizedTestParameters(open_runs, same_bits)
{
	static struct run_case cases[] = {{"demo", "f32", "auto"},
					  {"demo", "int8", "int8"},
					  {"qwen3-tied", "int16", "auto"},
					  {"qwen3-window", "bf16", "bf16"},
					  {"qwen3-moe-awq", "int16", "int16"}};
	return cr_make_param_array(struct run_case, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct run_case *c, open_runs, same_bits)
{
	static uint32_t percent;
	static const struct draft_source source = {propose, &percent};
	static const uint32_t percents[] = {0, 60, 95, 100};
	const char *rounds = getenv("QUERN_SPECULATE_ROUNDS");
	driver_drafts = &source;
	open_worker(c);
	for (uint32_t round = 0; round < (rounds ? strtoul(rounds, NULL, 10) : 1); round++) {
		begin(round);
		one_by_one();
		for (int i = 0; i < 8; i++) {
			percent = percents[i / 2];
			n_proposed = n_asked = 0;
			const uint32_t n_plans = with_drafts(i % 2);
			check_same(percent);
			cr_assert_gt(n_proposed, n_asked, "some runs have several drafts");
			if (percent == 0)
				cr_assert_gt(n_plans, 40);
			if (percent == 100)
				cr_assert_lt(n_plans, 30, "accepted drafts save steps");
		}
		end();
	}
	driver_close(&d);
}

/* Threads make every mask, so that runs with and without drafts sit out. */
Test(open_runs, rows_that_sit_out_change_no_token)
{
	static uint32_t percent = 90;
	static const struct draft_source source = {propose, &percent};
	static const struct guide_work late = {.n_threads = 1, .at_once = 1};
	const struct run_case c = {"demo", "int8", "auto"};
	begin(0);
	open_worker(&c);
	one_by_one();
	driver_close(&d);
	driver_drafts = &source;
	driver_guide = &late;
	for (int ahead = 0; ahead < 2; ahead++) {
		memset(&d, 0, sizeof d);
		open_worker(&c); /* which keeps no masks of an earlier run */
		n_held = 0;
		with_drafts(ahead);
		check_same(percent);
		cr_assert_gt(n_held, 0);
		driver_close(&d);
	}
	end();
}
