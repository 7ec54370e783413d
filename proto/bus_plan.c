/* bus_plan.c - encoding of plans and results.  Pure.
 *
 * Both are msgpack arrays of columns.  A column is a blob of little-endian 32-bit words, so that a decoding
 * sequence costs 12 bytes of a plan, and the numbers of a step are not parsed one by one:
 *
 *   plan    [epoch, number, drop, drop_forms, forms, seqs, forks, sets, tables, swap_out, swap_in, copies,
 *            runs, from]
 *           forms   array of [number, form]; a form is a blob, the language and the text
 *           seqs    array of [slot, seq, index, n_prompt, form, mu, tokens, blocks, params]; params is a map
 *                   of the values that are not neutral (params.h)
 *           tables  slot | kind << 24, logical, block for each entry
 *           runs    slot | flags << 24, pos0, n_rows for each run
 *           from    slot `from` for each run of 0 rows
 *   result  [epoch, number, step_us, tokens, counts, mus, logprobs, top_ids, top_logprobs, failed, held,
 *            pools, pool_words]
 *           logprobs    slot, position, token, logprob, rank, n_top, top0, prompt for each
 *           failed      array of [slot, reason]
 *           pools       slot, pos0, n_rows, n_words for each */
#include "proto/bus.h"

#include "base/alloc.h"
#include "base/err.h"
#include "proto/bus_impl.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)CONSTRAINT_TEXT_MAX + 1 < (int)BUS_MESSAGE_MAX, "a plan holds any form");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "columns travel little-endian");

enum {
	PLAN_FIELDS = 14,
	RESULT_FIELDS = 13,
	SEQ_FIELDS = 9,
	CONSTRAINT_FIELDS = 2,
	FAILED_FIELDS = 2,
	DROP_CONSTRAINTS_MAX = 1 << 16, /* per plan */
};

enum { RUN_BYTES = 12, TABLE_BYTES = 12, SLOT_BITS = 24, LOGPROB_BYTES = 32, POOL_BYTES = 16 };
_Static_assert(KINDS_MAX <= 1 << (32 - SLOT_BITS), "a kind fits next to a slot");

/* Memory that a decoded plan's seqs borrow from: plan.store, reused by the next plan. */
struct store {
	uint32_t *words;
	size_t n_words, cap_words;
	struct params *params;
	uint32_t n_params, cap_params;
	struct constraint **constraints;
	uint32_t n_constraints, cap_constraints;
};

/* ---- encoding ---- */

/* Write a constraint; NULL: an empty blob. */
static void pack_constraint(msgpack_packer *pk, const struct constraint *f)
{
	msgpack_pack_bin(pk, f ? (size_t)f->n + 1 : 0);
	if (!f)
		return;
	msgpack_pack_bin_body(pk, &f->language, 1);
	if (f->n)
		msgpack_pack_bin_body(pk, f->text, f->n);
}

static void pack_seq(msgpack_packer *pk, const struct plan_seq *s, uint32_t n_kinds, struct buf *out)
{
	msgpack_pack_array(pk, SEQ_FIELDS);
	msgpack_pack_uint32(pk, s->slot);
	msgpack_pack_uint64(pk, s->seq);
	msgpack_pack_uint32(pk, s->index);
	msgpack_pack_uint32(pk, s->n_prompt);
	msgpack_pack_uint32(pk, s->constraint);
	msgpack_pack_int32(pk, s->mu);
	bus_pack_bin(pk, s->tokens, s->n_tokens * sizeof *s->tokens);
	bus_pack_bin(pk, s->blocks, (size_t)s->n_blocks * n_kinds * sizeof *s->blocks);
	params_pack_changed(out, s->params);
}

static void pack_tables(msgpack_packer *pk, const struct plan *p)
{
	msgpack_pack_bin(pk, (size_t)p->n_tables * TABLE_BYTES);
	for (uint32_t i = 0; i < p->n_tables; i++) {
		const struct plan_table *t = &p->tables[i];
		const uint32_t w[3] = {t->slot | t->kind << SLOT_BITS, t->logical, t->block};
		msgpack_pack_bin_body(pk, w, sizeof w);
	}
}

static void pack_runs(msgpack_packer *pk, const struct plan *p)
{
	uint32_t n_from = 0;
	msgpack_pack_bin(pk, (size_t)p->n_runs * RUN_BYTES);
	for (uint32_t i = 0; i < p->n_runs; i++) {
		const struct plan_run *r = &p->runs[i];
		uint32_t w[3] = {r->slot | (uint32_t)r->flags << SLOT_BITS, r->pos0, r->n_rows};
		msgpack_pack_bin_body(pk, w, sizeof w);
		n_from += r->n_rows == 0;
	}
	msgpack_pack_bin(pk, n_from * sizeof(uint32_t));
	for (uint32_t i = 0; i < p->n_runs; i++)
		if (p->runs[i].n_rows == 0)
			msgpack_pack_bin_body(pk, &p->runs[i].from, sizeof p->runs[i].from);
}

void bus_encode_plan(const struct plan *p, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, BUS_PLAN);
	msgpack_pack_array(&pk, PLAN_FIELDS);
	msgpack_pack_uint64(&pk, p->epoch);
	msgpack_pack_uint64(&pk, p->number);
	bus_pack_bin(&pk, p->drop, p->n_drop * sizeof *p->drop);
	bus_pack_bin(&pk, p->drop_constraints, p->n_drop_constraints * sizeof *p->drop_constraints);
	msgpack_pack_array(&pk, p->n_constraints);
	for (uint32_t i = 0; i < p->n_constraints; i++) {
		msgpack_pack_array(&pk, CONSTRAINT_FIELDS);
		msgpack_pack_uint32(&pk, p->constraints[i].number);
		pack_constraint(&pk, p->constraints[i].constraint);
	}
	msgpack_pack_array(&pk, p->n_seqs);
	for (uint32_t i = 0; i < p->n_seqs; i++)
		pack_seq(&pk, &p->seqs[i], p->n_kinds ? p->n_kinds : 1, out);
	bus_pack_bin(&pk, p->forks, p->n_forks * sizeof *p->forks);
	bus_pack_bin(&pk, p->sets, p->n_sets * sizeof *p->sets);
	pack_tables(&pk, p);
	bus_pack_bin(&pk, p->swap_out, p->n_swap_out * sizeof *p->swap_out);
	bus_pack_bin(&pk, p->swap_in, p->n_swap_in * sizeof *p->swap_in);
	bus_pack_bin(&pk, p->copies, p->n_copies * sizeof *p->copies);
	pack_runs(&pk, p);
}

static void pack_logprobs(msgpack_packer *pk, const struct result *r)
{
	msgpack_pack_bin(pk, (size_t)r->n_logprobs * LOGPROB_BYTES);
	for (uint32_t i = 0; i < r->n_logprobs; i++) {
		const struct result_logprob *l = &r->logprobs[i];
		uint32_t w[8] = {l->slot, l->position, l->token, 0, l->rank, l->n_top, l->top0, l->prompt};
		memcpy(&w[3], &l->logprob, 4);
		msgpack_pack_bin_body(pk, w, sizeof w);
	}
}

static void pack_pools(msgpack_packer *pk, const struct result *r)
{
	msgpack_pack_bin(pk, (size_t)r->n_pools * POOL_BYTES);
	for (uint32_t i = 0; i < r->n_pools; i++) {
		const struct result_pool *p = &r->pools[i];
		uint32_t w[4] = {p->slot, p->pos0, p->n_rows, p->n_words};
		msgpack_pack_bin_body(pk, w, sizeof w);
	}
	bus_pack_bin(pk, r->pool_words, r->n_pool_words * sizeof *r->pool_words);
}

void bus_encode_result(const struct result *r, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, BUS_RESULT);
	msgpack_pack_array(&pk, RESULT_FIELDS);
	msgpack_pack_uint64(&pk, r->epoch);
	msgpack_pack_uint64(&pk, r->number);
	msgpack_pack_uint32(&pk, r->step_us);
	bus_pack_bin(&pk, r->tokens, r->n_tokens * sizeof *r->tokens);
	bus_pack_bin(&pk, r->counts, r->n_counts * sizeof *r->counts);
	bus_pack_bin(&pk, r->mus, r->n_mus * sizeof *r->mus);
	pack_logprobs(&pk, r);
	bus_pack_bin(&pk, r->top_ids, r->n_top * sizeof *r->top_ids);
	bus_pack_bin(&pk, r->top_logprobs, r->n_top * sizeof *r->top_logprobs);
	msgpack_pack_array(&pk, r->n_failed);
	for (uint32_t i = 0; i < r->n_failed; i++) {
		const char *reason = r->failed[i].reason;
		msgpack_pack_array(&pk, FAILED_FIELDS);
		msgpack_pack_uint32(&pk, r->failed[i].slot);
		msgpack_pack_str(&pk, strlen(reason));
		msgpack_pack_str_body(&pk, reason, strlen(reason));
	}
	bus_pack_bin(&pk, r->held, r->n_held * sizeof *r->held);
	pack_pools(&pk, r);
}

static struct constraint *read_constraint(struct cursor *c)
{
	uint32_t n;
	const char *p = cursor_bin(c, "form", 1, (size_t)CONSTRAINT_TEXT_MAX + 1, &n);
	return n && !c->bad ? constraint_new((uint8_t)p[0], p + 1, n - 1) : NULL;
}

static bool ids_below(const int32_t *ids, uint32_t n, uint32_t n_vocab)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
			return false;
	return true;
}

/* ---- plans ---- */

static struct store *store_reset(struct plan *p)
{
	struct store *st = p->store;
	if (!st)
		p->store = st = xcalloc(1, sizeof *st);
	for (uint32_t i = 0; i < st->n_params; i++)
		params_fini(&st->params[i]);
	for (uint32_t i = 0; i < st->n_constraints; i++)
		constraint_free(st->constraints[i]);
	st->n_params = st->n_constraints = 0;
	st->n_words = 0;
	return st;
}

static void store_free(struct plan *p)
{
	struct store *st = store_reset(p);
	free(st->words);
	free(st->params);
	free(st->constraints);
	free(st);
	p->store = NULL;
}

void bus_plan_fini(struct plan *p)
{
	if (p->store)
		store_free(p);
	plan_fini(p);
}

/* Append words to the store; return their offset.  resolve_seqs() turns offsets into pointers after
 * decoding, because the store may move while it grows. */
static size_t store_words(struct store *st, const void *p, uint32_t n)
{
	size_t at = st->n_words;
	array_grow(st->words, st->cap_words, st->n_words + n);
	if (n)
		memcpy(st->words + at, p, n * sizeof *st->words);
	st->n_words += n;
	return at;
}

static void read_seq(struct cursor *c, const struct bus_limits *lim, struct plan *p, struct store *st)
{
	struct plan_seq *s = plan_add_seq(p);
	*s = (struct plan_seq){0};
	if (cursor_array(c, "seq") != SEQ_FIELDS)
		cursor_fail(c, "seq: the wrong number of fields");
	s->slot = (uint32_t)cursor_uint(c, "slot", lim->max_slots - 1);
	s->seq = cursor_uint(c, "seq", UINT64_MAX);
	s->index = (uint32_t)cursor_uint(c, "index", PARAMS_N_MAX - 1);
	s->n_prompt = (uint32_t)cursor_uint(c, "n_prompt", lim->max_context);
	s->constraint = (uint32_t)cursor_uint(c, "form", UINT32_MAX);
	s->mu = (int32_t)cursor_int(c, "mu", INT32_MIN, INT32_MAX);
	const void *tokens = cursor_bin(c, "tokens", 4, lim->max_context, &s->n_tokens);
	size_t tokens_at = store_words(st, tokens, s->n_tokens);
	const uint32_t n_kinds = lim->n_kinds ? lim->n_kinds : 1;
	uint32_t n_ids;
	const void *blocks = cursor_bin(c, "blocks", 4, (size_t)lim->max_context * n_kinds, &n_ids);
	size_t blocks_at = store_words(st, blocks, n_ids);
	s->n_blocks = n_ids / n_kinds;
	if (n_ids % n_kinds)
		cursor_fail(c, "seq: blocks without those of other kinds");
	if (s->n_prompt > s->n_tokens || s->n_prompt == 0)
		cursor_fail(c, "seq: n_prompt does not fit its tokens");
	if (!ids_below((const int32_t *)(st->words + tokens_at), s->n_tokens, lim->n_vocab))
		cursor_fail(c, "seq: a token id beyond the vocabulary");
	for (uint32_t i = 0; i < n_ids; i++)
		if (st->words[blocks_at + i] >= lim->n_blocks && st->words[blocks_at + i] != PLAN_NO_BLOCK)
			cursor_fail(c, "seq: a block beyond the pool");
	array_grow(st->params, st->cap_params, st->n_params + 1);
	params_unpack(c, &st->params[st->n_params++], lim->n_vocab);
	if (st->params[st->n_params - 1].constraint)
		cursor_fail(c, "seq: a form that has no number");
	/* Offsets until resolve_seqs() turns them into pointers. */
	s->tokens = (const uint32_t *)(uintptr_t)tokens_at;
	s->blocks = (const uint32_t *)(uintptr_t)blocks_at;
}

static void resolve_seqs(struct plan *p, const struct store *st)
{
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		p->seqs[i].tokens = st->words + (uintptr_t)p->seqs[i].tokens;
		p->seqs[i].blocks = st->words + (uintptr_t)p->seqs[i].blocks;
		p->seqs[i].params = &st->params[i];
	}
}

static uint32_t word(const void *column, size_t i)
{
	uint32_t w;
	memcpy(&w, (const char *)column + i * 4, 4);
	return w;
}

static void read_drop_constraints(struct cursor *c, struct plan *p)
{
	uint32_t n;
	const void *col = cursor_bin(c, "drop_forms", 4, DROP_CONSTRAINTS_MAX, &n);
	for (uint32_t i = 0; i < n; i++)
		*plan_add_drop_constraint(p) = word(col, i);
}

static void read_constraints(struct cursor *c, const struct bus_limits *lim, struct plan *p, struct store *st)
{
	uint32_t n = cursor_array(c, "forms");
	if (n > lim->max_slots)
		cursor_fail(c, "forms: more than slots");
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		if (cursor_array(c, "form") != CONSTRAINT_FIELDS)
			cursor_fail(c, "form: the wrong number of fields");
		uint32_t number = (uint32_t)cursor_uint(c, "number", UINT32_MAX);
		struct constraint *constraint = read_constraint(c);
		if (!constraint || number == 0) {
			cursor_fail(c, "forms: one without a number or a text");
			constraint_free(constraint);
			return;
		}
		array_grow(st->constraints, st->cap_constraints, st->n_constraints + 1);
		st->constraints[st->n_constraints++] = constraint;
		*plan_add_constraint(p) = (struct plan_constraint){number, constraint};
	}
}

static void read_forks(struct cursor *c, const struct bus_limits *lim, struct plan *p)
{
	uint32_t n;
	const void *col = cursor_bin(c, "forks", 12, lim->max_slots, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct plan_fork f = {word(col, 3 * i), word(col, 3 * i + 1), word(col, 3 * i + 2)};
		if (f.parent >= lim->max_slots || f.child >= lim->max_slots || f.index >= PARAMS_N_MAX)
			cursor_fail(c, "forks: out of range");
		*plan_add_fork(p) = f;
	}
}

static void read_sets(struct cursor *c, const struct bus_limits *lim, struct plan *p)
{
	uint32_t n;
	const void *col = cursor_bin(c, "sets", 16, lim->max_slots, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct plan_set s = {word(col, 4 * i), word(col, 4 * i + 1), word(col, 4 * i + 2),
				     word(col, 4 * i + 3)};
		if (s.slot >= lim->max_slots || s.from >= lim->max_slots || s.position >= lim->max_context ||
		    s.token >= lim->n_vocab)
			cursor_fail(c, "sets: out of range");
		*plan_add_set(p) = s;
	}
}

static void read_tables(struct cursor *c, const struct bus_limits *lim, struct plan *p)
{
	uint32_t n;
	const uint32_t n_kinds = lim->n_kinds ? lim->n_kinds : 1;
	const size_t most = (size_t)lim->n_blocks * 2 + (size_t)lim->max_slots * n_kinds;
	const void *col = cursor_bin(c, "tables", TABLE_BYTES, most, &n);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t head = word(col, 3 * i);
		struct plan_table t = {head & ((1u << SLOT_BITS) - 1), word(col, 3 * i + 1),
				       word(col, 3 * i + 2), head >> SLOT_BITS};
		if (t.slot >= lim->max_slots || t.logical >= lim->max_context || t.block >= lim->n_blocks ||
		    t.kind >= n_kinds)
			cursor_fail(c, "tables: out of range");
		*plan_add_table(p) = t;
	}
}

static void read_pairs(struct cursor *c, const char *name, uint32_t from_end, uint32_t to_end, struct plan *p,
		       struct plan_pair *(*add)(struct plan *))
{
	uint32_t n;
	const void *col = cursor_bin(c, name, 8, (size_t)from_end + to_end, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct plan_pair pair = {word(col, 2 * i), word(col, 2 * i + 1)};
		if (pair.from >= from_end || pair.to >= to_end)
			cursor_fail(c, "a swap or a copy names a block beyond the pool");
		*add(p) = pair;
	}
}

static void read_runs(struct cursor *c, const struct bus_limits *lim, struct plan *p)
{
	uint32_t n, n_from, k = 0;
	const void *col = cursor_bin(c, "runs", RUN_BYTES, lim->max_runs, &n);
	const void *from = cursor_bin(c, "from", 4, lim->max_runs, &n_from);
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		uint32_t head = word(col, 3 * i);
		struct plan_run r = {
			.slot = head & ((1u << SLOT_BITS) - 1),
			.flags = (uint16_t)(head >> SLOT_BITS),
			.pos0 = word(col, 3 * i + 1),
			.n_rows = word(col, 3 * i + 2),
		};
		r.from = r.slot;
		if (r.n_rows == 0) {
			if (k >= n_from)
				cursor_fail(c, "runs: a run without rows names no other run");
			else
				r.from = word(from, k++);
		}
		if (r.slot >= lim->max_slots || r.from >= lim->max_slots || r.pos0 >= lim->max_context ||
		    r.n_rows > lim->max_context - r.pos0 || r.flags & ~(PLAN_SAMPLE | PLAN_OPEN))
			cursor_fail(c, "runs: out of range");
		else if (r.flags & PLAN_OPEN &&
			 (!(r.flags & PLAN_SAMPLE) || !r.n_rows || r.n_rows > PLAN_OPEN_ROWS))
			cursor_fail(c, "runs: an open run that samples nothing, or has too many rows");
		else if (r.n_rows > lim->max_rows - p->n_rows)
			cursor_fail(c, "runs: more rows than a step may have");
		else
			p->n_rows += r.n_rows;
		p->n_samples += r.flags & PLAN_SAMPLE;
		*plan_add_run(p) = r;
	}
	if (k != n_from)
		cursor_fail(c, "runs: more names than runs without rows");
}

int bus_decode_plan(const void *bytes, size_t n, const struct bus_limits *lim, struct plan *out,
		    struct why *why)
{
	struct cursor c;
	plan_reset(out);
	struct store *st = store_reset(out);
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	if (type != BUS_PLAN)
		return err_why(why, -EBADMSG, "not a plan");
	if (cursor_array(&c, "plan") != PLAN_FIELDS)
		cursor_fail(&c, "plan: the wrong number of fields");
	out->epoch = cursor_uint(&c, "epoch", UINT64_MAX);
	out->number = cursor_uint(&c, "number", UINT64_MAX);
	out->n_kinds = lim->n_kinds;
	uint32_t n_drop;
	const void *drop = cursor_bin(&c, "drop", 4, lim->max_slots, &n_drop);
	for (uint32_t i = 0; i < n_drop; i++) {
		uint32_t slot = word(drop, i);
		if (slot >= lim->max_slots)
			cursor_fail(&c, "drop: out of range");
		*plan_add_drop(out) = slot;
	}
	read_drop_constraints(&c, out);
	read_constraints(&c, lim, out, st);
	uint32_t n_seqs = cursor_array(&c, "seqs");
	if (n_seqs > lim->max_slots)
		cursor_fail(&c, "seqs: more than slots");
	for (uint32_t i = 0; i < n_seqs && !c.bad; i++)
		read_seq(&c, lim, out, st);
	read_forks(&c, lim, out);
	read_sets(&c, lim, out);
	read_tables(&c, lim, out);
	read_pairs(&c, "swap_out", lim->n_blocks, lim->n_host_blocks, out, plan_add_swap_out);
	read_pairs(&c, "swap_in", lim->n_host_blocks, lim->n_blocks, out, plan_add_swap_in);
	read_pairs(&c, "copies", lim->n_blocks, lim->n_blocks, out, plan_add_copy);
	read_runs(&c, lim, out);
	int rc = bus_finish_read(&c, why);
	if (rc)
		plan_reset(out);
	else
		resolve_seqs(out, st);
	return rc;
}

/* ---- results ---- */

static void read_logprobs(struct cursor *c, const struct bus_limits *lim, struct result *r)
{
	uint32_t n;
	const void *col = cursor_bin(c, "logprobs", LOGPROB_BYTES, (size_t)lim->max_rows + lim->max_runs, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct result_logprob *l = result_add_logprob(r);
		uint32_t bits = word(col, 8 * (size_t)i + 3);
		*l = (struct result_logprob){
			.slot = word(col, 8 * (size_t)i),
			.position = word(col, 8 * (size_t)i + 1),
			.token = word(col, 8 * (size_t)i + 2),
			.rank = word(col, 8 * (size_t)i + 4),
			.n_top = word(col, 8 * (size_t)i + 5),
			.top0 = word(col, 8 * (size_t)i + 6),
			.prompt = word(col, 8 * (size_t)i + 7) != 0,
		};
		memcpy(&l->logprob, &bits, 4);
		if (l->slot >= lim->max_slots || l->token >= lim->n_vocab || l->position > lim->max_context ||
		    l->n_top > PARAMS_TOP_MAX)
			cursor_fail(c, "logprobs: out of range");
	}
}

static void read_failed(struct cursor *c, const struct bus_limits *lim, struct result *r)
{
	uint32_t n = cursor_array(c, "failed");
	if (n > lim->max_slots)
		cursor_fail(c, "failed: more than slots");
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		char reason[RESULT_REASON_SIZE];
		if (cursor_array(c, "failed") != FAILED_FIELDS)
			cursor_fail(c, "failed: the wrong number of fields");
		uint32_t slot = (uint32_t)cursor_uint(c, "failed: slot", lim->max_slots - 1);
		cursor_str(c, "failed: reason", reason, sizeof reason);
		if (!c->bad)
			result_add_failed(r, slot, reason);
	}
}

static void read_held(struct cursor *c, const struct bus_limits *lim, struct result *r)
{
	uint32_t n;
	const void *col = cursor_bin(c, "held", 4, lim->max_runs, &n);
	for (uint32_t i = 0; i < n; i++) {
		if (word(col, i) >= lim->max_slots)
			cursor_fail(c, "held: out of range");
		result_add_held(r, word(col, i));
	}
}

static void read_tops(struct cursor *c, const struct bus_limits *lim, struct result *r)
{
	uint32_t n_ids, n_values;
	size_t max_top = ((size_t)lim->max_rows + lim->max_runs) * PARAMS_TOP_MAX;
	const void *ids = cursor_bin(c, "top_ids", 4, max_top, &n_ids);
	const void *values = cursor_bin(c, "top_logprobs", 4, max_top, &n_values);
	if (n_ids != n_values)
		cursor_fail(c, "top_logprobs: as many as ids are due");
	for (uint32_t i = 0; i < n_ids && !c->bad; i++) {
		uint32_t bits = word(values, i);
		float value;
		memcpy(&value, &bits, 4);
		if (word(ids, i) >= lim->n_vocab)
			cursor_fail(c, "top_ids: an id beyond the vocabulary");
		result_add_top(r, word(ids, i), value);
	}
	for (uint32_t i = 0; i < r->n_logprobs; i++)
		if (r->logprobs[i].top0 > n_ids || r->logprobs[i].n_top > n_ids - r->logprobs[i].top0)
			cursor_fail(c, "logprobs: entries that are not there");
}

/* The words of all entries are concatenated, in order. */
static void read_pools(struct cursor *c, const struct bus_limits *lim, struct result *r)
{
	uint32_t n, n_words;
	const void *col = cursor_bin(c, "pools", POOL_BYTES, lim->max_runs, &n);
	const void *words = cursor_bin(c, "pool_words", 4, BUS_MESSAGE_MAX / 4, &n_words);
	uint32_t left = n_words;
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		const uint32_t size = word(col, 4 * (size_t)i + 3), at = n_words - left;
		if (size > left) {
			cursor_fail(c, "pools: more words than there are");
			return;
		}
		struct result_pool *p = result_add_pool(r, size);
		p->slot = word(col, 4 * (size_t)i);
		p->pos0 = word(col, 4 * (size_t)i + 1);
		p->n_rows = word(col, 4 * (size_t)i + 2);
		if (p->slot >= lim->max_slots || p->pos0 > lim->max_context ||
		    p->n_rows > lim->max_context - p->pos0)
			cursor_fail(c, "pools: out of range");
		if (size)
			memcpy(r->pool_words + p->at, (const char *)words + (size_t)at * 4, (size_t)size * 4);
		left -= size;
	}
	if (left)
		cursor_fail(c, "pool_words: words of no entry");
}

int bus_decode_result(const void *bytes, size_t n, const struct bus_limits *lim, struct result *out,
		      struct why *why)
{
	struct cursor c;
	uint32_t n_tokens;
	result_reset(out);
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	if (type != BUS_RESULT)
		return err_why(why, -EBADMSG, "not a result");
	if (cursor_array(&c, "result") != RESULT_FIELDS)
		cursor_fail(&c, "result: the wrong number of fields");
	out->epoch = cursor_uint(&c, "epoch", UINT64_MAX);
	out->number = cursor_uint(&c, "number", UINT64_MAX);
	out->step_us = (uint32_t)cursor_uint(&c, "step_us", UINT32_MAX);
	const void *tokens = cursor_bin(&c, "tokens", 4, (size_t)lim->max_rows + lim->max_runs, &n_tokens);
	for (uint32_t i = 0; i < n_tokens; i++) {
		if (word(tokens, i) >= lim->n_vocab)
			cursor_fail(&c, "tokens: an id beyond the vocabulary");
		result_add_token(out, word(tokens, i));
	}
	uint32_t n_counts, n_mus;
	const void *counts = cursor_bin(&c, "counts", 4, lim->max_runs, &n_counts);
	for (uint32_t i = 0; i < n_counts; i++) {
		if (word(counts, i) > PLAN_OPEN_ROWS)
			cursor_fail(&c, "counts: more tokens than a run may return");
		result_add_count(out, word(counts, i));
	}
	const void *mus = cursor_bin(&c, "mus", 4, n_tokens, &n_mus);
	for (uint32_t i = 0; i < n_mus; i++)
		result_add_mu(out, (int32_t)word(mus, i));
	read_logprobs(&c, lim, out);
	read_tops(&c, lim, out);
	read_failed(&c, lim, out);
	read_held(&c, lim, out);
	read_pools(&c, lim, out);
	int rc = bus_finish_read(&c, why);
	if (rc)
		result_reset(out);
	return rc;
}
