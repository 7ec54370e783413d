#include "worker/slots.h"

#include "base/alloc.h"
#include "base/err.h"
#include "worker/guide.h"
#include "worker/pending.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slots {
	struct slots_limits lim;
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct guide *guide; /* NULL: none */
	struct slot *slots;  /* [max_slots] */
	int32_t *tables;     /* [max_slots, kinds.n, max_blocks] */
	uint64_t *editions;  /* [max_slots] versions of the tables: kern_batch */
	int32_t *known;      /* [max_slots, stride()] the tokens that the host knows */
	int32_t *buffer;     /* [max_slots, stride()] the tokens, on the device */
	int32_t *stage;      /* pinned: SLOTS_STAGE tokens for each plan in flight */
	int stage_part;      /* which SLOTS_STAGE tokens of stage are this plan's */
	uint32_t n_staged;
	size_t tables_bytes, tokens_bytes, stage_bytes;
};

/* Return the places of a slot (slots.h). */
static size_t room(uint32_t max_context)
{
	return (size_t)max_context + 2 + PLAN_OPEN_ROWS;
}

static size_t stride(const struct slots *s)
{
	return room(s->lim.max_context);
}

uint32_t slots_most(uint32_t max_context)
{
	return (uint32_t)(INT32_MAX / room(max_context));
}

/* Return a slot's table for a kind of layers. */
static int32_t *table_of(const struct slots *s, uint32_t slot, uint32_t kind)
{
	return s->tables + ((size_t)slot * s->lim.kinds.n + kind) * s->lim.max_blocks;
}

int slots_new(struct slots **out, const struct slots_limits *lim, const struct kern_ops *ops,
	      struct kern_dev *dev, struct kern_stream *stream, struct why *why)
{
	struct slots *s = xcalloc(1, sizeof *s);
	*s = (struct slots){.lim = *lim, .ops = ops, .dev = dev, .stream = stream};
	int rc = 0;
	if (lim->max_slots > slots_most(lim->max_context)) {
		rc = err_why(why, -EINVAL, "%u slots of %u tokens are too many", lim->max_slots,
			     lim->max_context);
		goto fail;
	}
	s->slots = xcalloc(lim->max_slots, sizeof *s->slots);
	s->editions = xcalloc(lim->max_slots, sizeof *s->editions);
	s->tables_bytes = (size_t)lim->max_slots * lim->kinds.n * lim->max_blocks * sizeof(int32_t);
	s->tokens_bytes = (size_t)lim->max_slots * stride(s) * sizeof(int32_t);
	s->stage_bytes = PENDING_AHEAD * SLOTS_STAGE * sizeof(int32_t);
	s->tables = alloc_big(s->tables_bytes);
	s->known = alloc_big(s->tokens_bytes);
	s->buffer = ops->mem_new(dev, s->tokens_bytes);
	s->stage = ops->host_new(dev, s->stage_bytes);
	if (!s->tables || !s->known || !s->buffer || !s->stage) {
		rc = err_why(why, -ENOMEM, "out of memory: %zu bytes for tokens and block tables",
			     2 * s->tokens_bytes + s->stage_bytes + s->tables_bytes);
		goto fail;
	}
	*out = s;
	return 0;
fail:
	slots_free(s);
	return rc;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	if (s->slots)
		slots_reset(s);
	if (s->stage)
		s->ops->host_free(s->dev, s->stage, s->stage_bytes);
	if (s->buffer)
		s->ops->mem_free(s->dev, s->buffer, s->tokens_bytes);
	alloc_big_free(s->known, s->tokens_bytes);
	alloc_big_free(s->tables, s->tables_bytes);
	free(s->editions);
	free(s->slots);
	free(s);
}

void slots_follow(struct slots *s, struct guide *g)
{
	s->guide = g;
}

/* Give the slot's table a new edition, since entries that a batch may have read will change.  No number is
 * given twice in the process. */
static void new_edition(struct slots *s, uint32_t i)
{
	static atomic_uint_fast64_t given;
	s->editions[i] = atomic_fetch_add(&given, 1) + 1;
}

/* Clear the slot; its next contents have a new edition. */
static void forget(struct slots *s, uint32_t i)
{
	new_edition(s, i);
	if (s->slots[i].used)
		params_fini(&s->slots[i].params);
	s->slots[i] = (struct slot){0};
	if (s->guide)
		guide_drop(s->guide, i);
}

void slots_reset(struct slots *s)
{
	for (uint32_t i = 0; i < s->lim.max_slots; i++)
		forget(s, i);
}

void slots_begin(struct slots *s)
{
	s->stage_part = (s->stage_part + 1) % PENDING_AHEAD;
	s->n_staged = 0;
}

static int check_number(const struct slots *s, uint32_t slot, struct why *why)
{
	if (slot >= s->lim.max_slots)
		return err_why(why, -EINVAL, "slot %u of a plan, there are %u", slot, s->lim.max_slots);
	return 0;
}

struct slot *slots_get(struct slots *s, uint32_t slot, struct why *why)
{
	if (check_number(s, slot, why))
		return NULL;
	if (!s->slots[slot].used) {
		err_why(why, -EINVAL, "slot %u of a plan holds no sequence", slot);
		return NULL;
	}
	return &s->slots[slot];
}

void slots_sample(struct slots *s, uint32_t slot, uint32_t position, bool held)
{
	assert(s->slots[slot].used);
	s->slots[slot].n_tokens = position + !held;
	s->slots[slot].held = held;
}

/* Upload ids to the slot's tokens from position `at` on.  ids may be freed after the return. */
static int upload_tokens(struct slots *s, uint32_t slot, uint32_t at, const uint32_t *ids, uint32_t n,
			 struct why *why)
{
	const void *from = ids;
	if (n <= SLOTS_STAGE - s->n_staged) {
		from = memcpy(s->stage + (size_t)s->stage_part * SLOTS_STAGE + s->n_staged, ids,
			      n * sizeof(int32_t));
		s->n_staged += n;
	}
	int rc = s->ops->upload(s->stream, s->buffer + slots_base(s, slot) + at, from, n * sizeof(int32_t));
	return rc ? err_why(why, rc, "uploading tokens failed") : 0;
}

void slots_ran(struct slot *slot, uint64_t number, uint32_t last_row)
{
	slot->ran = number;
	slot->ran_first = slot->ran_first ? slot->ran_first : number;
	slot->last_row = last_row;
}

/* Return the slot, if it has the sequence that ran in plan `number`; else NULL. */
static struct slot *same_sequence(struct slots *s, uint32_t slot, uint64_t number)
{
	struct slot *of = &s->slots[slot];
	return of->used && of->ran_first && of->ran_first <= number ? of : NULL;
}

void slots_know(struct slots *s, uint32_t slot, uint64_t number, uint32_t position, int32_t token)
{
	struct slot *of = same_sequence(s, slot, number);
	if (!of || position != of->n_known || position >= of->n_tokens)
		return;
	s->known[slot * stride(s) + position] = token;
	of->n_known++;
}

int slots_draft(struct slots *s, uint32_t slot, const int32_t *drafts, uint32_t n, struct why *why)
{
	struct slot *of = &s->slots[slot];
	of->n_open = n + 1;
	if (!n)
		return 0;
	assert(of->n_known == of->n_tokens && of->n_tokens + n <= s->lim.max_context);
	memcpy(s->known + slot * stride(s) + of->n_tokens, drafts, n * sizeof *drafts);
	return upload_tokens(s, slot, of->n_tokens, (const uint32_t *)drafts, n, why);
}

int slots_drew(struct slots *s, uint32_t slot, uint64_t number, uint32_t position, uint32_t n, int32_t last,
	       struct why *why)
{
	struct slot *of = same_sequence(s, slot, number);
	if (!of)
		return 0;
	of->n_tokens = position + 1 + n;
	of->n_kv = position + n;
	const uint32_t id = (uint32_t)last;
	const int32_t *drafts = slots_tokens(s, slot) + position + 1;
	for (uint32_t i = 0; s->guide && i < n; i++)
		guide_put(s->guide, slot, position + 1 + i - of->n_prompt,
			  i + 1 < n ? (uint32_t)drafts[i] : id);
	return upload_tokens(s, slot, position + n, &id, 1, why);
}

/* The slot may be empty: the sequence may never have reached this worker. */
int slots_drop(struct slots *s, uint32_t slot, struct why *why)
{
	int rc = check_number(s, slot, why);
	if (!rc)
		forget(s, slot);
	return rc;
}

/* ---- restoring a sequence ---- */

/* Drop stop tokens beyond the vocabulary: the model cannot produce them. */
static void drop_foreign_stops(struct params *p, uint32_t n_vocab)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_stop_ids; i++)
		if (p->stop_ids[i] < n_vocab)
			p->stop_ids[n++] = p->stop_ids[i];
	p->n_stop_ids = n;
}

static int check_seq(const struct slots *s, const struct plan_seq *p, struct why *why)
{
	int rc = check_number(s, p->slot, why);
	if (rc)
		return rc;
	if (p->n_tokens < 1 || p->n_tokens > s->lim.max_context || p->n_prompt < 1 ||
	    p->n_prompt > p->n_tokens)
		return err_why(why, -EINVAL, "a sequence of %u tokens, %u of the prompt, context %u",
			       p->n_tokens, p->n_prompt, s->lim.max_context);
	if (p->n_blocks > s->lim.max_blocks)
		return err_why(why, -EINVAL, "a sequence of %u blocks, at most %u are possible", p->n_blocks,
			       s->lim.max_blocks);
	for (uint32_t i = 0; i < p->n_tokens; i++)
		if (p->tokens[i] >= s->lim.n_vocab)
			return err_why(why, -EINVAL, "token %u of a sequence, the vocabulary has %u",
				       p->tokens[i], s->lim.n_vocab);
	for (uint32_t i = 0; i < p->n_blocks * s->lim.kinds.n; i++)
		if (p->blocks[i] >= s->lim.n_blocks && p->blocks[i] != PLAN_NO_BLOCK)
			return err_why(why, -EINVAL, "block %u of a sequence, the pool has %u", p->blocks[i],
				       s->lim.n_blocks);
	return params_check(p->params, s->lim.n_vocab, why);
}

/* Return the place of mu in a slot's tokens. */
static uint32_t mu_place(const struct slots *s)
{
	return s->lim.max_context + 1;
}

/* Set the slot's tables.  An entry that the plan leaves out, and no run may read, becomes block 0. */
static void set_tables(struct slots *s, const struct plan_seq *p)
{
	const struct kinds *kinds = &s->lim.kinds;
	uint32_t *from = &s->slots[p->slot].from;
	for (uint32_t k = 0; k < kinds->n; k++)
		for (uint32_t i = 0; i < p->n_blocks; i++) {
			const uint32_t block = p->blocks[(size_t)i * kinds->n + k];
			table_of(s, p->slot, k)[i] = block == PLAN_NO_BLOCK ? 0 : (int32_t)block;
			if (block != PLAN_NO_BLOCK)
				continue;
			/* The least position that reads no position before (i + 1) * block_size. */
			const uint32_t least = kinds->window[k]
						       ? (i + 1) * s->lim.block_size + kinds->window[k] - 1
						       : UINT32_MAX;
			*from = least > *from ? least : *from;
		}
}

int slots_set(struct slots *s, const struct plan_seq *p, struct why *why)
{
	int rc = check_seq(s, p, why);
	if (rc)
		return err_prefix(why, rc, "slot %u", p->slot);
	struct slot *slot = &s->slots[p->slot];
	forget(s, p->slot);
	if (s->guide && (rc = guide_set(s->guide, p->slot, p->constraint, p->tokens + p->n_prompt,
					p->n_tokens - p->n_prompt, why)))
		return err_prefix(why, rc, "slot %u", p->slot);
	*slot = (struct slot){.used = true,
			      .seq = p->seq,
			      .index = p->index,
			      .n_prompt = p->n_prompt,
			      .n_tokens = p->n_tokens,
			      .n_known = p->n_tokens,
			      .n_kv = -1,
			      .n_blocks = p->n_blocks,
			      .constraint = p->constraint != 0};
	params_copy(&slot->params, p->params);
	drop_foreign_stops(&slot->params, s->lim.n_vocab);
	memcpy(s->known + p->slot * stride(s), p->tokens, p->n_tokens * sizeof(int32_t));
	set_tables(s, p);
	rc = upload_tokens(s, p->slot, 0, p->tokens, p->n_tokens, why);
	const uint32_t mu = (uint32_t)p->mu;
	return rc || !p->params->mirostat ? rc : upload_tokens(s, p->slot, mu_place(s), &mu, 1, why);
}

/* Copy the parent's mu to the child, on the device. */
static int copy_mu(struct slots *s, uint32_t child, uint32_t parent, struct why *why)
{
	int rc = s->ops->copy(s->stream, s->buffer + slots_mu_at(s, child),
			      s->buffer + slots_mu_at(s, parent), sizeof(int32_t));
	return rc ? err_why(why, rc, "copying mirostat's state failed") : 0;
}

/* Make child, another slot, a copy of the parent's state with its first n tokens. */
static int copy_slot(struct slots *s, uint32_t child, uint32_t parent, uint32_t n, struct why *why)
{
	struct slot *to = &s->slots[child];
	const struct slot *from = &s->slots[parent];
	forget(s, child);
	*to = *from;
	to->ran = to->ran_first = 0;
	params_copy(&to->params, &from->params);
	to->n_tokens = n;
	to->n_known = from->n_known < n ? from->n_known : n;
	memcpy(s->known + child * stride(s), s->known + parent * stride(s), to->n_known * sizeof(int32_t));
	for (uint32_t k = 0; k < s->lim.kinds.n; k++)
		memcpy(table_of(s, child, k), table_of(s, parent, k), from->n_blocks * sizeof(int32_t));
	if (s->guide)
		guide_copy(s->guide, child, parent, n - from->n_prompt);
	int rc = s->ops->copy(s->stream, s->buffer + slots_base(s, child), s->buffer + slots_base(s, parent),
			      n * sizeof(int32_t));
	if (rc)
		return err_why(why, rc, "copying tokens failed");
	return from->params.mirostat ? copy_mu(s, child, parent, why) : 0;
}

int slots_fork(struct slots *s, const struct plan_fork *p, struct why *why)
{
	const struct slot *parent = slots_get(s, p->parent, why);
	if (!parent)
		return -EINVAL;
	int rc = check_number(s, p->child, why);
	if (rc)
		return rc;
	if (p->child == p->parent)
		return err_why(why, -EINVAL, "slot %u is forked into itself", p->parent);
	rc = copy_slot(s, p->child, p->parent, parent->n_tokens, why);
	s->slots[p->child].index = p->index;
	return rc;
}

int slots_choose(struct slots *s, const struct plan_set *p, struct why *why)
{
	const struct slot *from = slots_get(s, p->from, why);
	if (!from)
		return -EINVAL;
	int rc = check_number(s, p->slot, why);
	if (rc)
		return rc;
	if (p->position < from->n_prompt || p->position + 1 < from->n_tokens ||
	    p->position > from->n_tokens || p->position >= s->lim.max_context)
		return err_why(why, -EINVAL, "slot %u: token %u is set, but slot %u has %u tokens", p->slot,
			       p->position, p->from, from->n_tokens);
	if (p->token >= s->lim.n_vocab)
		return err_why(why, -EINVAL, "slot %u: token %u is set, the vocabulary has %u", p->slot,
			       p->token, s->lim.n_vocab);
	if (p->slot != p->from && (rc = copy_slot(s, p->slot, p->from, p->position, why)))
		return rc;
	struct slot *slot = &s->slots[p->slot];
	slot->n_tokens = p->position + 1;
	if (slot->n_known >= p->position) {
		s->known[p->slot * stride(s) + p->position] = (int32_t)p->token;
		slot->n_known = p->position + 1;
	}
	if (s->guide)
		guide_put(s->guide, p->slot, p->position - s->slots[p->slot].n_prompt, p->token);
	return upload_tokens(s, p->slot, p->position, &p->token, 1, why);
}

int slots_table(struct slots *s, const struct plan_table *p, struct why *why)
{
	struct slot *slot = slots_get(s, p->slot, why);
	if (!slot)
		return -EINVAL;
	if (p->logical > slot->n_blocks || p->logical >= s->lim.max_blocks)
		return err_why(why, -EINVAL, "slot %u: block %u does not follow its table of %u blocks",
			       p->slot, p->logical, slot->n_blocks);
	if (p->block >= s->lim.n_blocks || p->kind >= s->lim.kinds.n)
		return err_why(why, -EINVAL, "slot %u: block %u of kind %u, the pool has %u, for %u kinds",
			       p->slot, p->block, p->kind, s->lim.n_blocks, s->lim.kinds.n);
	if (p->logical < slot->n_blocks)
		new_edition(s, p->slot);
	table_of(s, p->slot, p->kind)[p->logical] = (int32_t)p->block;
	if (p->logical == slot->n_blocks && p->kind + 1 == s->lim.kinds.n)
		slot->n_blocks++; /* the last entry of a new row */
	return 0;
}

/* ---- look up ---- */

void slots_tables(const struct slots *s, struct kern_batch *b)
{
	b->tables = s->tables;
	b->table_stride = (int)s->lim.max_blocks;
	b->editions = s->editions;
}

const int32_t *slots_tokens(const struct slots *s, uint32_t slot)
{
	return s->known + slot * stride(s);
}

int32_t slots_drawn_at(const struct slots *s, uint32_t slot)
{
	return slots_mu_at(s, slot) + 1;
}

int32_t slots_base(const struct slots *s, uint32_t slot)
{
	return (int32_t)(slot * stride(s));
}

int32_t slots_mu_at(const struct slots *s, uint32_t slot)
{
	return slots_base(s, slot) + (int32_t)mu_place(s);
}

int32_t *slots_buffer(const struct slots *s)
{
	return s->buffer;
}

void slots_pool(struct slots *s, uint32_t n_blocks)
{
	s->lim.n_blocks = n_blocks;
}
