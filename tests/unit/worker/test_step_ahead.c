/* Plans begun one ahead of their results. A random history of sequences, independent of the chosen tokens,
 * runs twice: once waiting for each plan, once with the next plan queued before. The results agree bit for
 * bit. Some sequences have constraints, which some random tokens violate. */
#include "base/alloc.h"
#include "base/buf.h"
#include "grammar/source.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>

enum {
	SLOTS = 6,
	PLANS = 36,
	BLOCKS = 6, /* of a sequence, with 16 tokens each */
	MAX = BLOCKS * 16 - 2,
	LIST = 8,
};

/* The state of a sequence after the plans so far. */
struct seq {
	bool used, forked, away; /* forked: uses the parent's blocks; away: swapped to the host */
	uint32_t n_prompt, n_tokens, n_kv;
	uint32_t set; /* which of its two sets of blocks it uses */
};

struct life {
	struct driver d;
	uint64_t rnd, pace;
	struct seq seqs[SLOTS];
	/* Memory that a plan borrows: overwritten after step_begin(). */
	uint32_t tokens[SLOTS][MAX], blocks[SLOTS][BLOCKS];
	struct params params[SLOTS];
	struct buf answers[PLANS];
	uint32_t n_answers;
	uint32_t n_failed;
	bool ahead;
};

/* Most tokens are bytes (driver.h). */
enum { FORMS = 3 };
static const struct {
	enum grammar_language language;
	const char *text;
} constraints[FORMS] = {
	{GRAMMAR_REGEX, "[\\x00-\\x7f]*"},
	{GRAMMAR_REGEX, "([a-z]{1,3}[^a-z])*"},
	{GRAMMAR_GBNF, "root ::= (\"[\" root \"]\" | [a-z0-9])*"},
};

static uint32_t draw(uint64_t *s, uint32_t n)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*s >> 33) % n;
}

static uint32_t rnd(struct life *l, uint32_t n)
{
	return draw(&l->rnd, n);
}

static uint32_t block_of(uint32_t slot, uint32_t set, uint32_t i)
{
	return (slot * 2 + set) * BLOCKS + i;
}

/* ---- events of a plan ---- */

static void make_params(struct life *l, struct params *p)
{
	params_init(p);
	p->temperature = (float)rnd(l, 3) * 0.6f;
	p->top_p = rnd(l, 2) ? 0.9f : 1;
	p->top_k = rnd(l, 2) ? 20 : 0;
	p->repetition = rnd(l, 2) ? 1.2f : 1;
	p->presence = rnd(l, 2) ? 0.5f : 0;
	p->seed = rnd(l, 1000);
	p->logprobs = (int32_t)rnd(l, 7) - 1;
	p->prompt_logprobs = (int32_t)rnd(l, 4) - 1;
	p->min_tokens = rnd(l, 8);
	p->n_stop_ids = p->n_bias = p->n_allowed = p->n_bad_ids = LIST;
	p->stop_ids = xcalloc(LIST, sizeof *p->stop_ids);
	p->bias_ids = xcalloc(LIST, sizeof *p->bias_ids);
	p->bias = xcalloc(LIST, sizeof *p->bias);
	p->allowed = xcalloc(LIST, sizeof *p->allowed);
	p->bad = xcalloc(LIST, sizeof *p->bad);
	p->bad_len = xcalloc(LIST, sizeof *p->bad_len);
	p->n_bad = LIST / 2;
	for (int i = 0; i < LIST; i++) {
		p->stop_ids[i] = rnd(l, 331);
		p->bias_ids[i] = (int32_t)rnd(l, 331);
		p->bias[i] = (float)rnd(l, 9) - 4;
		p->allowed[i] = (int32_t)rnd(l, 331);
		p->bad[i] = (int32_t)rnd(l, 331);
		p->bad_len[i] = 2;
	}
	if (rnd(l, 4))
		p->n_allowed = 0;
}

static void add_seq(struct life *l, uint32_t slot)
{
	struct seq *s = &l->seqs[slot];
	*s = (struct seq){.used = true, .n_prompt = 1 + rnd(l, 60), .set = rnd(l, 2)};
	s->n_tokens = s->n_prompt + (rnd(l, 3) ? 0 : rnd(l, 10));
	for (uint32_t i = 0; i < s->n_tokens; i++)
		l->tokens[slot][i] = rnd(l, 331);
	for (uint32_t i = 0; i < BLOCKS; i++)
		l->blocks[slot][i] = block_of(slot, s->set, i);
	make_params(l, &l->params[slot]);
	*plan_add_seq(&l->d.plan) = (struct plan_seq){.slot = slot,
						      .seq = slot + 1,
						      .index = rnd(l, 3),
						      .n_prompt = s->n_prompt,
						      .n_tokens = s->n_tokens,
						      .n_blocks = BLOCKS,
						      .constraint = rnd(l, 2 + FORMS) % (1 + FORMS),
						      .tokens = l->tokens[slot],
						      .blocks = l->blocks[slot],
						      .params = &l->params[slot]};
}

static void take_blocks(struct life *l, uint32_t slot)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		*plan_add_table(&l->d.plan) =
			(struct plan_table){slot, i, block_of(slot, l->seqs[slot].set, i), 0};
}

/* Copy a sequence with a token chosen by the controller into a slot, which is free or is dropped for the
 * copy. */
static void add_set(struct life *l, uint32_t slot, uint32_t from)
{
	struct seq *s = &l->seqs[slot];
	const struct seq *f = &l->seqs[from];
	const uint32_t was = f->set;
	const bool again = f->n_tokens > f->n_prompt && rnd(l, 2); /* replaces the last token */
	const uint32_t position = f->n_tokens - again;
	*plan_add_set(&l->d.plan) = (struct plan_set){slot, from, position, rnd(l, 331)};
	if (slot != from) {
		*s = *f;
		s->set = rnd(l, 2);
		take_blocks(l, slot);
		for (uint32_t i = 0; i < BLOCKS; i++)
			*plan_add_copy(&l->d.plan) =
				(struct plan_pair){block_of(from, was, i), block_of(slot, s->set, i)};
	}
	s->n_tokens = position + 1;
}

static void move(struct life *l, uint32_t slot)
{
	struct seq *s = &l->seqs[slot];
	const uint32_t to = !s->set;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint32_t here = block_of(slot, s->set, i), host = slot * BLOCKS + (BLOCKS - 1 - i);
		if (s->away)
			*plan_add_swap_in(&l->d.plan) = (struct plan_pair){host, block_of(slot, to, i)};
		else if (rnd(l, 2))
			*plan_add_copy(&l->d.plan) = (struct plan_pair){here, block_of(slot, to, i)};
		else /* swapped out and in within one plan */
			*plan_add_swap_out(&l->d.plan) = (struct plan_pair){here, host},
			*plan_add_swap_in(&l->d.plan) = (struct plan_pair){host, block_of(slot, to, i)};
	}
	s->away = false;
	s->set = to;
	take_blocks(l, slot);
}

static void swap_out(struct life *l, uint32_t slot)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		*plan_add_swap_out(&l->d.plan) = (struct plan_pair){block_of(slot, l->seqs[slot].set, i),
								    slot * BLOCKS + (BLOCKS - 1 - i)};
	l->seqs[slot].away = true;
}

static void own_blocks(struct life *l, uint32_t slot, uint32_t parent)
{
	struct seq *s = &l->seqs[slot];
	for (uint32_t i = 0; i < BLOCKS; i++)
		*plan_add_copy(&l->d.plan) =
			(struct plan_pair){block_of(parent, s->set, i), block_of(slot, 0, i)};
	s->set = 0;
	s->forked = false;
	take_blocks(l, slot);
}

/* Run the next rows; if they end with the last known token, sample the next one. */
static bool add_run(struct life *l, uint32_t slot)
{
	struct seq *s = &l->seqs[slot];
	uint32_t n = s->n_tokens - s->n_kv;
	if (n > 1 && rnd(l, 2))
		n = 1 + rnd(l, n);
	const bool chosen = s->n_kv + n == s->n_tokens;
	driver_add_run(&l->d, slot, s->n_kv, n, chosen);
	s->n_kv += n;
	s->n_tokens += chosen;
	return chosen;
}

/* Make a plan. The last slot holds forks of slot 0, made in the plan that samples its next token. */
static void make_plan(struct life *l)
{
	const uint32_t child = SLOTS - 1;
	bool ran[SLOTS] = {0};
	if (l->seqs[child].used && l->seqs[child].forked)
		own_blocks(l, child, 0); /* slot 0's blocks have not moved since */
	for (uint32_t i = 0; i < child; i++) {
		struct seq *s = &l->seqs[i];
		const uint32_t what = rnd(l, 12);
		const bool full = s->n_tokens + 2 >= MAX, fresh = !s->used || full || what == 0;
		if (fresh && s->used)
			*plan_add_drop(&l->d.plan) = i;
		if (fresh)
			s->used = false;
		if (fresh && (what < 8 || full))
			add_seq(l, i);
		else if (!s->used)
			continue;
		else if (what == 1 && i > 0 && !s->away)
			swap_out(l, i);
		else if (s->away || what == 2)
			move(l, i);
		else if (what == 3 && s->n_kv + 1 >= s->n_tokens)
			add_set(l, i, i);
		else if (what == 4 && i > 1 && l->seqs[1].used && !l->seqs[1].away && !ran[1] &&
			 l->seqs[1].n_kv + 1 >= l->seqs[1].n_tokens &&
			 l->seqs[1].n_kv >= l->seqs[1].n_prompt - 1)
			add_set(l, i, 1);
		if (!s->away && i != 1 && rnd(l, 4))
			ran[i] = true;
	}
	/* Slot 1 is the source of copies, so it runs last. */
	ran[1] = l->seqs[1].used && !l->seqs[1].away && rnd(l, 4);
	const struct seq first = l->seqs[0];
	bool chosen = false;
	for (uint32_t i = 0; i < child; i++)
		if (ran[i])
			chosen |= add_run(l, i) && i == 0;
	struct seq *c = &l->seqs[child];
	if (chosen && rnd(l, 2)) {
		*plan_add_fork(&l->d.plan) = (struct plan_fork){0, child, 1 + rnd(l, 3)};
		*plan_add_run(&l->d.plan) = (struct plan_run){child, first.n_tokens, 0, PLAN_SAMPLE, 0, 0};
		*c = l->seqs[0];
		c->forked = true;
	} else if (c->used && !c->forked && c->n_tokens + 2 < MAX) {
		add_run(l, child);
	}
}

/* ---- running the plans ---- */

static void end_one(struct life *l)
{
	struct pollfd p = {step_fd(l->d.step), POLLIN, 0};
	if (draw(&l->pace, 2))
		while (!step_done(l->d.step))
			poll(&p, 1, 1000);
	cr_assert_eq(step_end(l->d.step, &l->d.result, &l->d.why), 0, "%s", l->d.why.text);
	cr_assert_eq(l->d.result.number, l->n_answers + 1);
	l->d.result.step_us = 0;
	l->n_failed += l->d.result.n_failed;
	bus_encode_result(&l->d.result, &l->answers[l->n_answers++]);
}

static void forget_plan(struct life *l)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		params_fini(&l->params[i]);
	memset(l->params, 0, sizeof l->params);
	memset(l->tokens, 0xee, sizeof l->tokens);
	memset(l->blocks, 0xee, sizeof l->blocks);
	plan_reset(&l->d.plan);
}

static void play(struct life *l, const char *model, uint64_t seed, bool ahead)
{
	struct bus_load load = driver_load(model);
	memset(l, 0, sizeof *l);
	cr_assert_eq(driver_open(&l->d, &load), 0, "%s", l->d.why.text);
	l->rnd = seed;
	l->pace = seed + ahead;
	cr_assert_eq(driver_send_vocabulary(&l->d), 0, "%s", l->d.why.text);
	for (uint32_t i = 0; i < FORMS; i++)
		driver_form(&l->d, i + 1, (uint8_t)constraints[i].language, constraints[i].text);
	for (uint32_t k = 0; k < PLANS; k++) {
		make_plan(l);
		l->d.plan.epoch = 1;
		l->d.plan.number = k + 1;
		cr_assert_eq(step_begin(l->d.step, &l->d.plan, &l->d.why), 0, "seed %lu: %s",
			     (unsigned long)seed, l->d.why.text);
		forget_plan(l);
		while (step_in_flight(l->d.step) == STEP_AHEAD ||
		       (step_in_flight(l->d.step) && (!ahead || !draw(&l->pace, 4))))
			end_one(l);
	}
	while (step_in_flight(l->d.step))
		end_one(l);
	driver_close(&l->d);
}

static void check_model(const char *name, uint64_t seed0, uint64_t n)
{
	static struct life waited, queued;
	char dir[2048];
	uint32_t n_failed = 0;
	if (!tiny_model(name))
		cr_skip_test("tiny models need Python with numpy");
	snprintf(dir, sizeof dir, "%s", tiny_model(name));
	for (uint64_t seed = seed0; seed < seed0 + n; seed++) {
		play(&waited, dir, seed, false);
		play(&queued, dir, seed, true);
		cr_assert_eq(waited.n_answers, PLANS);
		cr_assert_eq(queued.n_answers, PLANS);
		for (uint32_t k = 0; k < PLANS; k++) {
			const struct buf *a = &waited.answers[k], *b = &queued.answers[k];
			cr_assert(a->len == b->len && !memcmp(a->p, b->p, a->len),
				  "seed %lu: plan %u is answered otherwise", (unsigned long)seed, k + 1);
			buf_fini(&waited.answers[k]);
			buf_fini(&queued.answers[k]);
		}
		n_failed += queued.n_failed;
	}
	cr_expect_gt(n_failed, 0);
}

/* The emulated device is slow, so it gets fewer rounds. */
static uint64_t lives(uint64_t n)
{
	return strcmp(driver_device(), "cpu") == 0 ? n : 2;
}

Test(step_ahead, the_answers_are_those_of_plans_that_were_waited_for)
{
	check_model("llama3", 1, lives(20));
}

Test(step_ahead, so_are_those_of_a_quantized_model)
{
	check_model("qwen3-awq-g32", 100, lives(10));
}

/* ---- one plan and the next ---- */

static struct driver d;
static struct params params;
static uint32_t tokens[64];

static void open_tiny(void)
{
	driver_open_tiny(&d, &params, tokens, 64);
}

static void close_tiny(void)
{
	driver_close(&d);
}

TestSuite(step_two, .init = open_tiny, .fini = close_tiny);

static int begin(uint64_t epoch, uint64_t number)
{
	d.plan.epoch = epoch;
	d.plan.number = number;
	int rc = step_begin(d.step, &d.plan, &d.why);
	plan_reset(&d.plan);
	return rc;
}

static void begin_prompt(uint64_t epoch, uint64_t number, uint32_t slot)
{
	driver_seq(&d, slot, tokens, 20, 20, 64, &params);
	driver_add_run(&d, slot, 0, 20, true);
	cr_assert_eq(begin(epoch, number), 0, "%s", d.why.text);
}

static uint32_t end(uint64_t number)
{
	cr_assert_eq(step_end(d.step, &d.result, &d.why), 0, "%s", d.why.text);
	cr_assert_eq(d.result.number, number);
	return d.result.n_tokens ? d.result.tokens[0] : UINT32_MAX;
}

Test(step_two, a_plan_is_expected_when_the_one_before_is_begun)
{
	begin_prompt(1, 1, 0);
	cr_expect_eq(step_expected(d.step), 2);
	cr_expect_eq(step_ended(d.step), 0);
	cr_expect_eq(step_in_flight(d.step), 1);
	cr_expect_eq(begin(1, 3), -ENXIO);
	driver_add_run(&d, 0, 20, 1, true);
	cr_assert_eq(begin(1, 2), 0, "%s", d.why.text);
	cr_expect_eq(step_in_flight(d.step), 2);
	cr_expect_neq(end(1), UINT32_MAX);
	cr_expect_eq(step_ended(d.step), 1);
	cr_expect_neq(end(2), UINT32_MAX);
	cr_expect_eq(step_ended(d.step), 2);
	cr_expect_eq(step_in_flight(d.step), 0);
	cr_expect(!step_done(d.step));
}

Test(step_two, the_fd_tells_when_a_plan_is_done)
{
	struct pollfd p = {step_fd(d.step), POLLIN, 0};
	begin_prompt(1, 1, 0);
	while (!step_done(d.step))
		cr_assert_eq(poll(&p, 1, 60000), 1);
	end(1);
}

Test(step_two, a_reset_forgets_what_is_under_way)
{
	begin_prompt(1, 1, 0);
	const uint32_t want = end(1);
	begin_prompt(1, 2, 1);
	driver_add_run(&d, 1, 20, 1, true);
	cr_assert_eq(begin(1, 3), 0, "%s", d.why.text);
	step_reset(d.step, 2, NULL);
	cr_expect_eq(step_in_flight(d.step), 0);
	cr_expect_eq(step_ended(d.step), 0);
	begin_prompt(2, 1, 0);
	cr_expect_eq(end(1), want);
}

Test(step_two, a_plan_that_contradicts_leaves_the_one_before_alone)
{
	begin_prompt(1, 1, 0);
	const uint32_t want = end(1);
	begin_prompt(1, 2, 1);
	driver_add_run(&d, 5, 0, 1, true);
	cr_assert_eq(begin(1, 3), -EINVAL);
	cr_expect(strstr(d.why.text, "plan 3: "), "%s", d.why.text);
	cr_expect_eq(step_in_flight(d.step), 1);
	cr_expect_eq(end(2), want);
	driver_add_run(&d, 0, 20, 1, true);
	cr_assert_eq(begin(1, 3), -EINVAL);
	cr_expect(strstr(d.why.text, "an earlier plan failed"), "%s", d.why.text);
	step_reset(d.step, 2, NULL);
	begin_prompt(2, 1, 0);
	cr_expect_eq(end(1), want);
}

Test(step_two, what_is_under_way_may_be_closed)
{
	begin_prompt(1, 1, 0);
	driver_add_run(&d, 0, 20, 1, true);
	cr_assert_eq(begin(1, 2), 0, "%s", d.why.text);
}

Test(step_two, a_slot_is_given_away_while_its_last_token_is_chosen)
{
	params.logprobs = 3;
	begin_prompt(1, 1, 0);
	const uint32_t want = end(1);
	const float logprob = d.result.logprobs[0].logprob;
	begin_prompt(1, 2, 0);
	*plan_add_drop(&d.plan) = 0;
	params.temperature = 2;
	params.logprobs = -1;
	driver_seq(&d, 0, tokens + 7, 30, 30, 32, &params);
	driver_add_run(&d, 0, 0, 30, true);
	cr_assert_eq(begin(1, 3), 0, "%s", d.why.text);
	cr_expect_eq(end(2), want);
	cr_expect_eq(d.result.n_logprobs, 1);
	cr_expect_eq(d.result.logprobs[0].logprob, logprob);
	end(3);
	cr_expect_eq(d.result.n_logprobs, 0);
}

Test(step_two, allocates_nothing_once_warm)
{
	params.logprobs = 5;
	begin_prompt(1, 1, 0);
	for (uint64_t k = 2; k < 30; k++) {
		driver_add_run(&d, 0, (uint32_t)(18 + k), 1, true);
		alloc_guard(k > 6);
		int rc = begin(1, k);
		if (!rc)
			rc = step_end(d.step, &d.result, &d.why);
		alloc_guard(false);
		cr_assert_eq(rc, 0, "%s", d.why.text);
	}
	end(29);
}
