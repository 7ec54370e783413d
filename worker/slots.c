#include "worker/slots.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct slots {
	struct slots_limits lim;
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct slot *slots; /* [max_slots] */
	int32_t *tables;    /* [max_slots, max_blocks] */
	int32_t *tokens;    /* [max_slots, max_context + 1] host */
	int32_t *buffer;    /* the same on the device */
	size_t tables_bytes, tokens_bytes;
};

static size_t stride(const struct slots *s)
{
	return (size_t)s->lim.max_context + 1;
}

int slots_new(struct slots **out, const struct slots_limits *lim, const struct kern_ops *ops,
	      struct kern_dev *dev, struct kern_stream *stream, char *why, size_t why_n)
{
	struct slots *s = xcalloc(1, sizeof *s);
	*s = (struct slots){.lim = *lim, .ops = ops, .dev = dev, .stream = stream};
	int rc = 0;
	/* Rows find their tokens by an int32 index. */
	if ((uint64_t)lim->max_slots * stride(s) > INT32_MAX) {
		rc = err_why(why, why_n, -EINVAL, "%u slots of %u tokens are too many", lim->max_slots,
			     lim->max_context);
		goto fail;
	}
	s->slots = xcalloc(lim->max_slots, sizeof *s->slots);
	s->tables_bytes = (size_t)lim->max_slots * lim->max_blocks * sizeof(int32_t);
	s->tokens_bytes = (size_t)lim->max_slots * stride(s) * sizeof(int32_t);
	s->tables = alloc_big(s->tables_bytes);
	s->tokens = alloc_big(s->tokens_bytes);
	s->buffer = ops->mem_new(dev, s->tokens_bytes);
	if (!s->tables || !s->tokens || !s->buffer) {
		rc = err_why(why, why_n, -ENOMEM, "out of memory: %zu bytes for tokens and block tables",
			     2 * s->tokens_bytes + s->tables_bytes);
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
	if (s->buffer)
		s->ops->mem_free(s->dev, s->buffer, s->tokens_bytes);
	alloc_big_free(s->tokens, s->tokens_bytes);
	alloc_big_free(s->tables, s->tables_bytes);
	free(s->slots);
	free(s);
}

static void forget(struct slot *slot)
{
	if (slot->used)
		params_fini(&slot->params);
	*slot = (struct slot){0};
}

void slots_reset(struct slots *s)
{
	for (uint32_t i = 0; i < s->lim.max_slots; i++)
		forget(&s->slots[i]);
}

static int check_number(const struct slots *s, uint32_t slot, char *why, size_t why_n)
{
	if (slot >= s->lim.max_slots)
		return err_why(why, why_n, -EINVAL, "slot %u of a plan, there are %u", slot,
			       s->lim.max_slots);
	return 0;
}

struct slot *slots_get(struct slots *s, uint32_t slot, char *why, size_t why_n)
{
	if (check_number(s, slot, why, why_n))
		return NULL;
	if (!s->slots[slot].used) {
		err_why(why, why_n, -EINVAL, "slot %u of a plan holds no sequence", slot);
		return NULL;
	}
	return &s->slots[slot];
}

/* Dropping an empty slot is fine: the worker may never have heard of the sequence. */
int slots_drop(struct slots *s, uint32_t slot, char *why, size_t why_n)
{
	int rc = check_number(s, slot, why, why_n);
	if (!rc)
		forget(&s->slots[slot]);
	return rc;
}

/* ---- a sequence's state, sent anew ---- */

static int check_ids(const int32_t *ids, uint32_t n, uint32_t n_vocab, const char *what, char *why,
		     size_t why_n)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
			return err_why(why, why_n, -EINVAL, "%s names token %d, the vocabulary has %u", what,
				       ids[i], n_vocab);
	return 0;
}

/* What the sampler relies on. */
static int check_params(const struct slots *s, const struct params *p, char *why, size_t why_n)
{
	const uint32_t v = s->lim.n_vocab;
	uint32_t sum = 0;
	int rc = 0;
	if (!(isfinite(p->temperature) && p->temperature >= 0) || !(p->top_p > 0 && p->top_p <= 1) ||
	    !(p->min_p >= 0 && p->min_p <= 1) || p->top_k < 0 || !isfinite(p->presence) ||
	    !isfinite(p->frequency) || !(isfinite(p->repetition) && p->repetition > 0))
		return err_why(why, why_n, -EINVAL, "a sampling parameter is out of its range");
	if (p->logprobs < -1 || p->logprobs > PARAMS_TOP_MAX || p->prompt_logprobs < -1 ||
	    p->prompt_logprobs > PARAMS_LOGPROBS_MAX)
		return err_why(why, why_n, -EINVAL, "logprobs are from -1 to %d", PARAMS_TOP_MAX);
	if ((rc = check_ids(p->bias_ids, p->n_bias, v, "logit_bias", why, why_n)) ||
	    (rc = check_ids(p->allowed, p->n_allowed, v, "allowed_token_ids", why, why_n)) ||
	    (rc = check_ids(p->bad, p->n_bad_ids, v, "bad_words", why, why_n)))
		return rc;
	for (uint32_t i = 0; i < p->n_bad; i++) {
		if (p->bad_len[i] < 1 || (uint32_t)p->bad_len[i] > p->n_bad_ids - sum)
			return err_why(why, why_n, -EINVAL, "the lengths of bad_words are wrong");
		sum += (uint32_t)p->bad_len[i];
	}
	return 0;
}

/* A stop token that the model cannot produce needs no ban. */
static void drop_foreign_stops(struct params *p, uint32_t n_vocab)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_stop_ids; i++)
		if (p->stop_ids[i] < n_vocab)
			p->stop_ids[n++] = p->stop_ids[i];
	p->n_stop_ids = n;
}

static int check_seq(const struct slots *s, const struct plan_seq *p, char *why, size_t why_n)
{
	int rc = check_number(s, p->slot, why, why_n);
	if (rc)
		return rc;
	if (p->n_tokens < 1 || p->n_tokens > s->lim.max_context || p->n_prompt < 1 ||
	    p->n_prompt > p->n_tokens)
		return err_why(why, why_n, -EINVAL, "a sequence of %u tokens, %u of the prompt, context %u",
			       p->n_tokens, p->n_prompt, s->lim.max_context);
	if (p->n_blocks > s->lim.max_blocks)
		return err_why(why, why_n, -EINVAL, "a sequence of %u blocks, at most %u are possible",
			       p->n_blocks, s->lim.max_blocks);
	for (uint32_t i = 0; i < p->n_tokens; i++)
		if (p->tokens[i] >= s->lim.n_vocab)
			return err_why(why, why_n, -EINVAL, "token %u of a sequence, the vocabulary has %u",
				       p->tokens[i], s->lim.n_vocab);
	for (uint32_t i = 0; i < p->n_blocks; i++)
		if (p->blocks[i] >= s->lim.n_blocks)
			return err_why(why, why_n, -EINVAL, "block %u of a sequence, the pool has %u",
				       p->blocks[i], s->lim.n_blocks);
	return check_params(s, p->params, why, why_n);
}

static int upload_tokens(struct slots *s, uint32_t slot, uint32_t n, char *why, size_t why_n)
{
	int rc = s->ops->upload(s->stream, s->buffer + slots_base(s, slot), slots_tokens(s, slot),
				n * sizeof(int32_t));
	return rc ? err_why(why, why_n, rc, "uploading tokens failed") : 0;
}

int slots_set(struct slots *s, const struct plan_seq *p, char *why, size_t why_n)
{
	int rc = check_seq(s, p, why, why_n);
	if (rc)
		return err_prefix(why, why_n, rc, "slot %u", p->slot);
	struct slot *slot = &s->slots[p->slot];
	forget(slot);
	*slot = (struct slot){.used = true,
			      .seq = p->seq,
			      .index = p->index,
			      .n_prompt = p->n_prompt,
			      .n_tokens = p->n_tokens,
			      .n_kv = -1,
			      .n_blocks = p->n_blocks};
	params_copy(&slot->params, p->params);
	drop_foreign_stops(&slot->params, s->lim.n_vocab);
	memcpy(slots_tokens(s, p->slot), p->tokens, p->n_tokens * sizeof(int32_t));
	if (p->n_blocks)
		memcpy(s->tables + (size_t)p->slot * s->lim.max_blocks, p->blocks,
		       p->n_blocks * sizeof(int32_t));
	return upload_tokens(s, p->slot, p->n_tokens, why, why_n);
}

/* child, another slot, becomes a copy of the parent's state; its tokens are still to be uploaded. */
static void copy_slot(struct slots *s, uint32_t child, uint32_t parent)
{
	struct slot *to = &s->slots[child];
	const struct slot *from = &s->slots[parent];
	forget(to);
	*to = *from;
	to->ran = 0;
	params_copy(&to->params, &from->params);
	memcpy(slots_tokens(s, child), slots_tokens(s, parent), from->n_tokens * sizeof(int32_t));
	memcpy(s->tables + (size_t)child * s->lim.max_blocks, s->tables + (size_t)parent * s->lim.max_blocks,
	       from->n_blocks * sizeof(int32_t));
}

int slots_fork(struct slots *s, const struct plan_fork *p, char *why, size_t why_n)
{
	const struct slot *parent = slots_get(s, p->parent, why, why_n);
	if (!parent)
		return -EINVAL;
	int rc = check_number(s, p->child, why, why_n);
	if (rc)
		return rc;
	if (p->child == p->parent)
		return err_why(why, why_n, -EINVAL, "slot %u is forked into itself", p->parent);
	copy_slot(s, p->child, p->parent);
	s->slots[p->child].index = p->index;
	return upload_tokens(s, p->child, parent->n_tokens, why, why_n);
}

int slots_choose(struct slots *s, const struct plan_set *p, char *why, size_t why_n)
{
	const struct slot *from = slots_get(s, p->from, why, why_n);
	if (!from)
		return -EINVAL;
	int rc = check_number(s, p->slot, why, why_n);
	if (rc)
		return rc;
	if (p->position < from->n_prompt || p->position + 1 < from->n_tokens ||
	    p->position > from->n_tokens || p->position >= s->lim.max_context)
		return err_why(why, why_n, -EINVAL, "slot %u: token %u is set, of slot %u %u are known",
			       p->slot, p->position, p->from, from->n_tokens);
	if (p->token >= s->lim.n_vocab)
		return err_why(why, why_n, -EINVAL, "slot %u: token %u is set, the vocabulary has %u",
			       p->slot, p->token, s->lim.n_vocab);
	const bool copies = p->slot != p->from;
	if (copies)
		copy_slot(s, p->slot, p->from);
	int32_t *token = slots_tokens(s, p->slot) + p->position;
	*token = (int32_t)p->token;
	s->slots[p->slot].n_tokens = p->position + 1;
	if (copies)
		return upload_tokens(s, p->slot, p->position + 1, why, why_n);
	rc = s->ops->upload(s->stream, s->buffer + slots_base(s, p->slot) + p->position, token,
			    sizeof *token);
	return rc ? err_why(why, why_n, rc, "uploading a token failed") : 0;
}

int slots_table(struct slots *s, const struct plan_table *p, char *why, size_t why_n)
{
	struct slot *slot = slots_get(s, p->slot, why, why_n);
	if (!slot)
		return -EINVAL;
	if (p->logical > slot->n_blocks || p->logical >= s->lim.max_blocks)
		return err_why(why, why_n, -EINVAL, "slot %u: block %u of a table that has %u", p->slot,
			       p->logical, slot->n_blocks);
	if (p->block >= s->lim.n_blocks)
		return err_why(why, why_n, -EINVAL, "slot %u: block %u, the pool has %u", p->slot, p->block,
			       s->lim.n_blocks);
	s->tables[(size_t)p->slot * s->lim.max_blocks + p->logical] = (int32_t)p->block;
	if (p->logical == slot->n_blocks)
		slot->n_blocks++;
	return 0;
}

/* ---- look up ---- */

const int32_t *slots_blocks(const struct slots *s, uint32_t slot)
{
	return s->tables + (size_t)slot * s->lim.max_blocks;
}

int32_t *slots_tokens(const struct slots *s, uint32_t slot)
{
	return s->tokens + slot * stride(s);
}

int32_t slots_base(const struct slots *s, uint32_t slot)
{
	return (int32_t)(slot * stride(s));
}

int32_t *slots_buffer(const struct slots *s)
{
	return s->buffer;
}

int64_t slots_bytes(const struct slots *s)
{
	return (int64_t)s->tokens_bytes;
}
