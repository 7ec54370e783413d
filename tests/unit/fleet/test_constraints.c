/* Constraints get numbers: each is sent once, and dropped when no slot uses it. */
#include "base/alloc.h"
#include "controller/fleet/constraints.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(constraints, .timeout = 120);

enum { SLOTS = 64 };

struct rig {
	struct constraints *constraints;
	struct plan plan;
	struct params params[SLOTS];
};

static struct rig new_rig(void)
{
	return (struct rig){.constraints = constraints_new(SLOTS)};
}

static void end_rig(struct rig *r)
{
	constraints_free(r->constraints);
	plan_fini(&r->plan);
	for (int i = 0; i < SLOTS; i++)
		params_fini(&r->params[i]);
}

/* Add a sequence in this slot. text: NULL for no constraint. */
static void add_seq(struct rig *r, uint32_t slot, const char *text)
{
	params_fini(&r->params[slot]);
	if (text)
		r->params[slot].constraint = constraint_new(0, text, strlen(text));
	*plan_add_seq(&r->plan) =
		(struct plan_seq){.slot = slot, .constraint = 99, .params = &r->params[slot]};
}

static void number(struct rig *r)
{
	constraints_number(r->constraints, &r->plan);
}

static void next_plan(struct rig *r)
{
	plan_reset(&r->plan);
}

Test(constraints, each_is_sent_once_and_named_by_number)
{
	struct rig r = new_rig();
	add_seq(&r, 0, "a");
	add_seq(&r, 1, "b");
	add_seq(&r, 2, "a");
	add_seq(&r, 3, NULL);
	number(&r);
	cr_assert_eq(r.plan.n_constraints, 2);
	cr_expect_str_eq(r.plan.constraints[0].constraint->text, "a");
	cr_expect_str_eq(r.plan.constraints[1].constraint->text, "b");
	cr_expect_eq(r.plan.seqs[0].constraint, r.plan.constraints[0].number);
	cr_expect_eq(r.plan.seqs[1].constraint, r.plan.constraints[1].number);
	cr_expect_eq(r.plan.seqs[2].constraint, r.plan.constraints[0].number);
	cr_expect_eq(r.plan.seqs[3].constraint, 0);
	cr_expect_neq(r.plan.constraints[0].number, 0);
	uint32_t a = r.plan.constraints[0].number;
	next_plan(&r);
	add_seq(&r, 4, "a");
	number(&r);
	cr_expect_eq(r.plan.n_constraints, 0);
	cr_expect_eq(r.plan.seqs[0].constraint, a);
	end_rig(&r);
}

/* Use n constraints in turn in one slot; each plan drops the previous one. Return the first number. */
static uint32_t use_others(struct rig *r, uint32_t slot, int n)
{
	uint32_t first = 0;
	for (int i = 0; i < n; i++) {
		char text[16];
		snprintf(text, sizeof text, "%d", i);
		next_plan(r);
		*plan_add_drop(&r->plan) = slot;
		add_seq(r, slot, text);
		number(r);
		cr_assert_eq(r->plan.n_constraints, 1);
		first = i ? first : r->plan.constraints[0].number;
	}
	return first;
}

Test(constraints, those_without_a_slot_are_dropped_oldest_first)
{
	struct rig r = new_rig();
	uint32_t first = use_others(&r, 0, CONSTRAINTS_IDLE_MAX + 1);
	next_plan(&r);
	*plan_add_drop(&r.plan) = 0;
	add_seq(&r, 0, "last");
	number(&r);
	cr_expect_eq(r.plan.n_drop_constraints, 0); /* this plan drops its slot */
	next_plan(&r);
	number(&r);
	cr_assert_eq(r.plan.n_drop_constraints, 1);
	cr_expect_eq(r.plan.drop_constraints[0], first);
	next_plan(&r);
	add_seq(&r, 1, "1"); /* still known */
	add_seq(&r, 2, "0"); /* sent again with a new number */
	number(&r);
	cr_assert_eq(r.plan.n_constraints, 1);
	cr_expect_str_eq(r.plan.constraints[0].constraint->text, "0");
	cr_expect_neq(r.plan.constraints[0].number, first);
	end_rig(&r);
}

Test(constraints, one_in_use_is_not_dropped)
{
	struct rig r = new_rig();
	add_seq(&r, 1, "a");
	number(&r);
	uint32_t a = r.plan.constraints[0].number;
	next_plan(&r);
	use_others(&r, 0, 2 * CONSTRAINTS_IDLE_MAX);
	next_plan(&r);
	add_seq(&r, 2, "a");
	number(&r);
	cr_expect_eq(r.plan.n_constraints, 0);
	cr_expect_eq(r.plan.seqs[0].constraint, a);
	end_rig(&r);
}

/* A forked sequence and a copied beam hypothesis share the constraint of their source slot. */
Test(constraints, copies_of_a_slot_hold_its_form)
{
	struct rig r = new_rig();
	add_seq(&r, 1, "a");
	number(&r);
	uint32_t a = r.plan.constraints[0].number;
	next_plan(&r);
	*plan_add_fork(&r.plan) = (struct plan_fork){.parent = 1, .child = 2, .index = 1};
	number(&r);
	next_plan(&r);
	*plan_add_set(&r.plan) = (struct plan_set){.slot = 3, .from = 2};
	*plan_add_set(&r.plan) = (struct plan_set){.slot = 3, .from = 3};
	*plan_add_drop(&r.plan) = 1;
	number(&r);
	next_plan(&r);
	*plan_add_drop(&r.plan) = 2;
	number(&r);
	use_others(&r, 0, 2 * CONSTRAINTS_IDLE_MAX);
	next_plan(&r);
	add_seq(&r, 4, "a");
	number(&r);
	cr_expect_eq(r.plan.n_constraints, 0);
	cr_expect_eq(r.plan.seqs[0].constraint, a);
	next_plan(&r);
	*plan_add_drop(&r.plan) = 3;
	*plan_add_drop(&r.plan) = 4;
	number(&r);
	use_others(&r, 0, 2 * CONSTRAINTS_IDLE_MAX);
	next_plan(&r);
	add_seq(&r, 4, "a");
	number(&r);
	cr_expect_eq(r.plan.n_constraints, 1);
	end_rig(&r);
}

Test(constraints, large_ones_are_not_kept)
{
	struct rig r = new_rig();
	enum { LARGE = 12 << 20 };
	char *text = xmalloc(LARGE + 1);
	memset(text, 'x', LARGE);
	text[LARGE] = '\0';
	for (int i = 0; i < 3; i++) {
		next_plan(&r);
		text[0] = (char)('a' + i);
		add_seq(&r, 0, text);
		number(&r);
		cr_expect_eq(r.plan.n_drop_constraints, 0);
	}
	next_plan(&r);
	*plan_add_drop(&r.plan) = 0;
	number(&r);
	next_plan(&r);
	number(&r);
	cr_expect_eq(r.plan.n_drop_constraints, 1);
	free(text);
	end_rig(&r);
}

/* ---- a simulated worker ---- */

enum { TEXTS = 200, PLANS = 5000, FORMS = 1024 };

struct model {
	struct {
		uint32_t number;
		char text[16];
	} constraints[FORMS];
	uint32_t n_constraints;
	int want[SLOTS];     /* text of each slot's constraint; -1: none, -2: no sequence */
	uint32_t has[SLOTS]; /* number, as known by the worker */
	uint64_t rng;
};

static uint32_t rnd(struct model *m, uint32_t n)
{
	m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(m->rng >> 33) % n;
}

/* Make a plan in which some sequences end, begin, fork or are copied. */
static void make_plan(struct rig *r, struct model *m)
{
	next_plan(r);
	for (uint32_t s = 0; s < SLOTS; s++)
		if (m->want[s] != -2 && rnd(m, 4) == 0) {
			*plan_add_drop(&r->plan) = s;
			m->want[s] = -2;
		}
	for (int i = 0; i < 4; i++) {
		uint32_t s = rnd(m, SLOTS), from = rnd(m, SLOTS);
		char text[16];
		bool twice = false;
		for (uint32_t k = 0; k < r->plan.n_seqs; k++)
			twice |= r->plan.seqs[k].slot == s;
		if (m->want[s] != -2 || twice)
			continue;
		if (rnd(m, 3) == 0 && m->want[from] != -2 && r->plan.n_forks == 0) {
			*plan_add_fork(&r->plan) = (struct plan_fork){.parent = from, .child = s};
			m->want[s] = m->want[from];
			return;
		}
		m->want[s] = (int)rnd(m, TEXTS) - 1;
		snprintf(text, sizeof text, "%d", m->want[s]);
		add_seq(r, s, m->want[s] < 0 ? NULL : text);
	}
}

static const char *text_of(const struct model *m, uint32_t number)
{
	for (uint32_t i = 0; i < m->n_constraints; i++)
		if (m->constraints[i].number == number)
			return m->constraints[i].text;
	return NULL;
}

static void execute(struct model *m, const struct plan *p)
{
	for (uint32_t i = 0; i < p->n_drop; i++)
		m->has[p->drop[i]] = 0;
	for (uint32_t i = 0; i < p->n_drop_constraints; i++) {
		uint32_t at = 0;
		while (at < m->n_constraints && m->constraints[at].number != p->drop_constraints[i])
			at++;
		cr_assert_lt(at, m->n_constraints, "a form is dropped that the worker does not have");
		for (uint32_t s = 0; s < SLOTS; s++)
			cr_assert_neq(m->has[s], p->drop_constraints[i], "a form is dropped that slot %u has",
				      s);
		m->constraints[at] = m->constraints[--m->n_constraints];
	}
	for (uint32_t i = 0; i < p->n_constraints; i++) {
		cr_assert_null(text_of(m, p->constraints[i].number), "a number is given twice");
		cr_assert_lt(m->n_constraints, FORMS);
		m->constraints[m->n_constraints].number = p->constraints[i].number;
		snprintf(m->constraints[m->n_constraints++].text, 16, "%s",
			 p->constraints[i].constraint->text);
	}
	for (uint32_t i = 0; i < p->n_seqs; i++)
		m->has[p->seqs[i].slot] = p->seqs[i].constraint;
	for (uint32_t i = 0; i < p->n_forks; i++)
		m->has[p->forks[i].child] = m->has[p->forks[i].parent];
}

Test(constraints, a_worker_has_every_form_that_a_slot_has)
{
	struct rig r = new_rig();
	static struct model m = {.rng = 7};
	for (int s = 0; s < SLOTS; s++)
		m.want[s] = -2;
	for (int i = 0; i < PLANS; i++) {
		make_plan(&r, &m);
		number(&r);
		execute(&m, &r.plan);
		for (uint32_t s = 0; s < SLOTS; s++) {
			char want[16];
			const char *text = text_of(&m, m.has[s]);
			snprintf(want, sizeof want, "%d", m.want[s]);
			if (m.want[s] < 0)
				cr_assert_eq(m.has[s], 0, "plan %d slot %u", i, s);
			else
				cr_assert(text && strcmp(text, want) == 0, "plan %d slot %u", i, s);
		}
		cr_assert_leq(m.n_constraints, SLOTS + CONSTRAINTS_IDLE_MAX + 16);
	}
	end_rig(&r);
}
