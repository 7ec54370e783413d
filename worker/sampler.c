#include "worker/sampler.h"

#include "base/alloc.h"
#include "base/err.h"
#include "worker/group.h"

#include <assert.h>
#include <stdlib.h>

struct sampler {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *stream;
	struct slots *slots;
	int n_vocab;
	int max;                      /* rows of a call */
	struct kern_sample_row *rows; /* [max] */
	struct kern_sample_out out;   /* pinned, [max] and [max, PARAMS_TOP_MAX] */
};

static size_t words(const struct sampler *s)
{
	return (size_t)s->max * sizeof(int32_t);
}

static size_t tops(const struct sampler *s)
{
	return words(s) * PARAMS_TOP_MAX;
}

int sampler_new(struct sampler **out, const struct kern_ops *ops, struct kern_dev *dev,
		struct kern_stream *stream, struct slots *slots, int n_vocab, int max, char *why,
		size_t why_n)
{
	struct sampler *s = xcalloc(1, sizeof *s);
	*s = (struct sampler){
		.ops = ops, .dev = dev, .stream = stream, .slots = slots, .n_vocab = n_vocab, .max = max};
	s->rows = xcalloc((size_t)max, sizeof *s->rows);
	s->out.token = ops->host_new(dev, words(s));
	s->out.logprob = ops->host_new(dev, words(s));
	s->out.rank = ops->host_new(dev, words(s));
	s->out.top_id = ops->host_new(dev, tops(s));
	s->out.top_logprob = ops->host_new(dev, tops(s));
	s->out.top_stride = PARAMS_TOP_MAX;
	if (!s->out.token || !s->out.logprob || !s->out.rank || !s->out.top_id || !s->out.top_logprob) {
		size_t bytes = 3 * words(s) + 2 * tops(s);
		sampler_free(s);
		return err_why(why, why_n, -ENOMEM, "out of memory: %zu bytes for the sampler's output",
			       bytes);
	}
	*out = s;
	return 0;
}

static void host_free(struct sampler *s, void *p, size_t bytes)
{
	if (p)
		s->ops->host_free(s->dev, p, bytes);
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	host_free(s, s->out.token, words(s));
	host_free(s, s->out.logprob, words(s));
	host_free(s, s->out.rank, words(s));
	host_free(s, s->out.top_id, tops(s));
	host_free(s, s->out.top_logprob, tops(s));
	free(s->rows);
	free(s);
}

static int32_t at_most(int32_t n, int n_vocab)
{
	return n < n_vocab ? n : n_vocab;
}

/* A prompt token: nothing is chosen, its log-probability is looked up. */
static struct kern_sample_row forced_row(const struct sampler *s, const struct batch_want *w,
					 const struct slot *slot)
{
	return (struct kern_sample_row){
		.hist0 = slots_base(s->slots, w->slot),
		.n_prompt = (int32_t)slot->n_prompt,
		.n_hist = (int32_t)w->position,
		.forced = w->forced,
		.top_p = 1,
		.repetition = 1,
		.n_logprobs = at_most(slot->params.prompt_logprobs, s->n_vocab),
	};
}

static struct kern_sample_row chosen_row(const struct sampler *s, const struct batch_want *w,
					 const struct slot *slot)
{
	const struct params *p = &slot->params;
	const uint32_t position = w->position - slot->n_prompt;
	const bool held = position < p->min_tokens; /* may not end yet */
	return (struct kern_sample_row){
		.hist0 = slots_base(s->slots, w->slot),
		.n_prompt = (int32_t)slot->n_prompt,
		.n_hist = (int32_t)w->position,
		.forced = -1,
		.temperature = p->temperature,
		.top_p = p->top_p,
		.min_p = p->min_p,
		.top_k = p->top_k,
		.presence = p->presence,
		.frequency = p->frequency,
		.repetition = p->repetition,
		.seed = p->seed,
		.index = slot->index,
		.position = position,
		.n_bias = (int32_t)p->n_bias,
		.bias_ids = p->bias_ids,
		.bias = p->bias,
		.n_allowed = (int32_t)p->n_allowed,
		.allowed = p->allowed,
		.n_banned = held ? (int32_t)p->n_stop_ids : 0,
		.banned = (const int32_t *)p->stop_ids,
		.n_bad = (int32_t)p->n_bad,
		.bad = p->bad,
		.bad_len = p->bad_len,
		.n_logprobs = at_most(p->logprobs, s->n_vocab),
	};
}

/* What a row said about its token: one entry of the result, and the most likely ones. */
static void note_logprob(const struct sampler *s, const struct batch_want *w, int i, struct result *r)
{
	const int n_top = s->rows[i].n_logprobs;
	struct result_logprob *l = result_add_logprob(r);
	*l = (struct result_logprob){
		.slot = w->slot,
		.position = w->position,
		.token = (uint32_t)(w->forced >= 0 ? w->forced : s->out.token[i]),
		.logprob = s->out.logprob[i],
		.rank = (uint32_t)s->out.rank[i],
		.n_top = (uint32_t)n_top,
		.top0 = r->n_top,
		.prompt = w->forced >= 0,
	};
	const size_t at = (size_t)i * (size_t)s->out.top_stride;
	for (int k = 0; k < n_top; k++)
		result_add_top(r, (uint32_t)s->out.top_id[at + (size_t)k],
			       s->out.top_logprob[at + (size_t)k]);
}

/* The slot's next token, on the host. */
static int take_token(struct sampler *s, const struct batch_want *w, int32_t token, char *why, size_t why_n)
{
	if (token < 0 || token >= s->n_vocab)
		return err_why(why, why_n, -EIO, "the device chose token %d, the vocabulary has %d", token,
			       s->n_vocab);
	struct slot *slot = slots_get(s->slots, w->slot, why, why_n);
	slots_tokens(s->slots, w->slot)[w->position] = token;
	slot->n_tokens = w->position + 1;
	return 0;
}

static int note(struct sampler *s, const struct batch_want *w, int i, struct result *r, char *why,
		size_t why_n)
{
	if (s->rows[i].n_logprobs >= 0)
		note_logprob(s, w, i, r);
	if (w->forced >= 0)
		return 0;
	int rc = take_token(s, w, s->out.token[i], why, why_n);
	if (!rc)
		result_add_token(r, (uint32_t)s->out.token[i]);
	return rc;
}

static int tell(struct sampler *s, struct group *g, int n, char *why, size_t why_n)
{
	int rc = group_broadcast(g, s->out.token, (size_t)n * sizeof *s->out.token);
	return rc ? err_why(why, why_n, rc, "%s", group_why(g)) : 0;
}

int sampler_run(struct sampler *s, struct group *g, const void *logits, const struct batch_want *wants, int n,
		struct result *r, char *why, size_t why_n)
{
	assert(n > 0 && n <= s->max);
	for (int i = 0; i < n; i++) {
		const struct slot *slot = slots_get(s->slots, wants[i].slot, why, why_n);
		assert(slot);
		s->rows[i] = wants[i].forced >= 0 ? forced_row(s, &wants[i], slot)
						  : chosen_row(s, &wants[i], slot);
		s->rows[i].row = i;
	}
	int rc = s->ops->sample(s->stream, logits, s->n_vocab, slots_buffer(s->slots), s->rows, n, &s->out);
	if (!rc)
		rc = group_sync(g, s->ops, s->stream);
	if (rc)
		return err_why(why, why_n, rc, "%s",
			       g && group_broke(rc) ? group_why(g) : "sampling on the device failed");
	if ((rc = tell(s, g, n, why, why_n)))
		return rc;
	for (int i = 0; !rc && i < n; i++)
		rc = note(s, &wants[i], i, r, why, why_n);
	return rc;
}

int sampler_hear(struct sampler *s, struct group *g, const struct batch_want *wants, int n, char *why,
		 size_t why_n)
{
	int rc = tell(s, g, n, why, why_n);
	for (int i = 0; !rc && i < n; i++) {
		if (wants[i].forced >= 0)
			continue;
		/* The device's copy, which sampling itself would have written. */
		const size_t at = (size_t)slots_base(s->slots, wants[i].slot) + wants[i].position;
		rc = take_token(s, &wants[i], s->out.token[i], why, why_n);
		if (!rc && (rc = s->ops->upload(s->stream, slots_buffer(s->slots) + at, &s->out.token[i],
						sizeof s->out.token[i])))
			err_why(why, why_n, rc, "uploading a token failed");
	}
	/* The tokens are sent from a buffer that the next call overwrites. */
	if (!rc && (rc = group_sync(g, s->ops, s->stream)))
		err_why(why, why_n, rc, "%s", g && group_broke(rc) ? group_why(g) : "the device failed");
	return rc;
}
