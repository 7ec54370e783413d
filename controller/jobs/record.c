#include "controller/jobs/record.h"

#include "base/alloc.h"
#include "base/err.h"
#include "proto/mp.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "columns are kept little-endian");

enum {
	REQUEST_VERSION = 3,
	REQUEST_FIELDS = 19,
	/* Versions 1 and 2, used by journals before format 4; record_migrate_request() reads them. */
	REQUEST_FIELDS_2 = 20,
	REQUEST_FIELDS_1 = 18,  /* version 2 without its last two fields */
	BUS_OF_REQUESTS = 5,    /* such requests have the parameters in the bus format, up to this version of
				 * the bus */
	PARAMS_OLDEST = 23,     /* numbers of parameters: up to the lengths of the bad words; also with one or
				 * two more fields */
	PARAMS_LLAMA = 34,      /* up to the breakers */
	PARAMS_POSITIONAL = 37, /* all parameters */
	TOKENS_MAX = 1 << 26,
	TEXT_MAX = 1 << 30,
	NAME_MAX_BYTES = 256,
};

/* --- blobs and texts --- */

static void put_bin(struct buf *out, const void *p, size_t n)
{
	const uint8_t head[] = {0xc6, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
	buf_put(out, head, sizeof head);
	if (n)
		buf_put(out, p, n);
}

/* Return an aligned copy of a blob; NULL if it is empty. */
static void *get_bin(struct cursor *c, const char *name, size_t size, size_t max, uint32_t *count)
{
	const void *p = cursor_bin(c, name, size, max, count);
	return *count ? xmemdup(p, *count * size) : NULL;
}

static void put_text(struct buf *out, const char *s)
{
	mp_put_bool(out, s != NULL);
	put_bin(out, s ? s : "", s ? strlen(s) : 0);
}

static char *get_text(struct cursor *c, const char *name)
{
	uint32_t n;
	bool there = cursor_bool(c, name);
	const char *p = cursor_bin(c, name, 1, NAME_MAX_BYTES, &n);
	if (c->bad || !there)
		return NULL;
	if (n && memchr(p, 0, n)) {
		cursor_fail(c, "a name with a NUL in it");
		return NULL;
	}
	char *s = xmalloc(n + 1);
	if (n)
		memcpy(s, p, n);
	s[n] = 0;
	return s;
}

static uint64_t checksum(const void *bytes, size_t n, const char *name)
{
	return XXH3_64bits_withSeed(bytes, n, XXH3_64bits(name, strlen(name)));
}

void record_seal(struct buf *b, const char *name)
{
	uint64_t sum = checksum(b->p, b->len, name);
	buf_put(b, &sum, sizeof sum);
}

int record_open(struct cursor *c, const void *bytes, size_t n, const char *name, struct why *why)
{
	uint64_t sum;
	if (n < sizeof sum)
		return err_why(why, -EBADMSG, "%s: the record is cut short", name);
	n -= sizeof sum;
	memcpy(&sum, (const char *)bytes + n, sizeof sum);
	if (sum != checksum(bytes, n, name))
		return err_why(why, -EBADMSG, "%s: the record is damaged", name);
	cursor_init(c, bytes, n);
	return 0;
}

int record_close(struct cursor *c, struct why *why)
{
	if (!c->bad && c->p != c->end)
		cursor_fail(c, "bytes after the record");
	return c->bad ? err_why(why, -EBADMSG, "%s", c->what) : 0;
}

/* --- the request --- */

void record_put_request(struct buf *out, const struct submit *s, int64_t now_us, int64_t unix_us)
{
	mp_put_array(out, REQUEST_FIELDS);
	mp_put_uint(out, REQUEST_VERSION);
	put_bin(out, s->tokens, s->n_tokens * sizeof *s->tokens);
	params_pack_all(out, &s->params);
	mp_put_uint(out, s->best_of);
	mp_put_array(out, s->n_stop);
	for (uint32_t i = 0; i < s->n_stop; i++)
		put_text(out, s->stop[i]);
	mp_put_bool(out, s->include_stop);
	mp_put_bool(out, s->skip_special);
	mp_put_int(out, s->deadline_us ? unix_us + (s->deadline_us - now_us) : 0);
	mp_put_int(out, s->priority);
	mp_put_uint(out, s->share);
	/* Each is a flag and the bytes. */
	put_text(out, s->user);
	put_text(out, s->cache_salt);
	put_text(out, s->key);
	put_bin(out, s->body, sizeof s->body);
	mp_put_uint(out, s->reasoning);
	put_bin(out, s->late_stop_ids, s->n_late_stop_ids * sizeof *s->late_stop_ids);
}

static void get_stop(struct cursor *c, struct submit *s)
{
	uint32_t n = cursor_array(c, "stop");
	if (n > PARAMS_STOP_MAX)
		cursor_fail(c, "too many stop strings");
	s->stop = xcalloc(PARAMS_STOP_MAX, sizeof *s->stop);
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		char *text = get_text(c, "stop");
		if (text && *text)
			s->stop[s->n_stop++] = text;
		else
			cursor_fail(c, "an empty stop string");
		if (c->bad && s->n_stop <= i)
			free(text);
	}
}

static void get_body(struct cursor *c, struct submit *s)
{
	uint32_t n;
	const void *p = cursor_bin(c, "body", 1, sizeof s->body, &n);
	if (n == sizeof s->body)
		memcpy(s->body, p, n);
	else
		cursor_fail(c, "body: the wrong length");
}

/* Read the fields after the parameters, of a request of this version. */
static void get_rest(struct cursor *c, uint64_t version, int64_t now_us, int64_t unix_us, struct submit *s)
{
	s->best_of = (uint32_t)cursor_uint(c, "best_of", PARAMS_N_MAX);
	get_stop(c, s);
	s->include_stop = cursor_bool(c, "include_stop");
	s->skip_special = cursor_bool(c, "skip_special");
	int64_t deadline = cursor_int(c, "deadline", INT64_MIN / 2, INT64_MAX / 2);
	s->priority = (int32_t)cursor_int(c, "priority", INT32_MIN, INT32_MAX);
	s->share = (uint32_t)cursor_uint(c, "share", UINT32_MAX);
	s->user = get_text(c, "user");
	s->cache_salt = get_text(c, "cache_salt");
	s->key = get_text(c, "key");
	get_body(c, s);
	if (version > 1) {
		s->reasoning = (enum submit_reasoning)cursor_uint(c, "reasoning", SUBMIT_REASONING_OPEN);
		s->late_stop_ids = get_bin(c, "late_stop_ids", sizeof *s->late_stop_ids, PARAMS_LIST_MAX,
					   &s->n_late_stop_ids);
	}
	s->durable = s->keep = true;
	if (deadline) /* 0 would mean no deadline */
		s->deadline_us = now_us + (deadline - unix_us) > 0 ? now_us + (deadline - unix_us) : 1;
	if (!c->bad && (!s->n_tokens || !s->params.n || !s->params.max_tokens))
		cursor_fail(c, "no prompt, no outputs or no tokens");
}

static void get_tokens(struct cursor *c, uint32_t n_vocab, struct submit *s)
{
	s->tokens = get_bin(c, "tokens", sizeof *s->tokens, TOKENS_MAX, &s->n_tokens);
	for (uint32_t i = 0; i < s->n_tokens; i++)
		if (s->tokens[i] >= n_vocab)
			cursor_fail(c, "tokens: beyond the vocabulary");
}

/* Return rc; on success set *out to the request, otherwise free it. */
static int end_request(int rc, struct submit *s, struct submit **out)
{
	if (rc)
		submit_free(s);
	else
		*out = s;
	return rc;
}

int record_get_request(struct cursor *c, uint32_t n_vocab, int64_t now_us, int64_t unix_us,
		       struct submit **out, struct why *why)
{
	const uint32_t n = cursor_array(c, "request");
	const uint64_t version = cursor_uint(c, "version", UINT32_MAX);
	if (!c->bad && (version != REQUEST_VERSION || n != REQUEST_FIELDS))
		return err_why(why, -EBADMSG, "it was written by another version of quern");
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	get_tokens(c, n_vocab, s);
	params_unpack(c, &s->params, n_vocab);
	get_rest(c, version, now_us, unix_us, s);
	return end_request(record_close(c, why), s, out);
}

/* --- requests of earlier formats of the journal --- */

/* The fields of the former array of parameters, by their present names. */
static const char *const positional[PARAMS_POSITIONAL] = {
	"max_tokens",
	"min_tokens",
	"n",
	"beam_width",
	"length_penalty",
	"early_stopping",
	"temperature",
	"top_p",
	"min_p",
	"top_k",
	"presence_penalty",
	"frequency_penalty",
	"repetition_penalty",
	"seed",
	"ignore_eos",
	"logprobs",
	"prompt_logprobs",
	"stop_token_ids",
	"logit_bias",
	"logit_bias_values",
	"allowed_token_ids",
	"bad_words",
	"bad_words_lengths",
	"form",
	"pool",
	"typical_p",
	"top_n_sigma",
	"xtc_probability",
	"xtc_threshold",
	"dry_multiplier",
	"dry_base",
	"dry_allowed_length",
	"dry_penalty_last_n",
	"dry_sequence_breakers",
	"mirostat",
	"mirostat_tau",
	"mirostat_eta",
};

/* Return true for a blob without bytes. */
static bool is_empty_bin(const uint8_t *p, size_t n)
{
	static const uint8_t empty[] = {0, 0, 0, 0};
	return p[0] >= 0xc4 && p[0] <= 0xc6 && n == 1 + ((size_t)1 << (p[0] - 0xc4)) &&
	       memcmp(p + 1, empty, n - 1) == 0;
}

/* Read the array of parameters: copy each value unchanged into a map that params_unpack() reads. */
static void get_positional(struct cursor *c, struct params *p)
{
	struct buf values = {0}, map = {0};
	struct cursor of_map;
	uint32_t n_keys = 0;
	const uint32_t n = cursor_array(c, "params");
	if (n < PARAMS_OLDEST || (n > PARAMS_OLDEST + 2 && n != PARAMS_LLAMA && n != PARAMS_POSITIONAL))
		cursor_fail(c, "params: the wrong number of fields");
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		const uint8_t *at = c->p;
		cursor_skip(c);
		const size_t len = (size_t)(c->p - at);
		if (c->bad || is_empty_bin(at, len))
			continue;
		mp_put_cstr(&values, positional[i]);
		buf_put(&values, at, len);
		n_keys++;
	}
	mp_put_map(&map, n_keys);
	buf_put(&map, values.p, values.len);
	cursor_init(&of_map, map.p, map.len);
	if (!c->bad)
		params_unpack(&of_map, p, UINT32_MAX);
	if (!c->bad && of_map.bad)
		cursor_fail(c, of_map.what);
	buf_fini(&values);
	buf_fini(&map);
}

int record_migrate_request(struct cursor *c, struct buf *out, struct why *why)
{
	struct submit *s = NULL;
	const uint32_t n = cursor_array(c, "request");
	const uint64_t version = cursor_uint(c, "version", UINT32_MAX),
		       bus = cursor_uint(c, "bus", UINT32_MAX);
	const bool known = (version == 2 && n == REQUEST_FIELDS_2) || (version == 1 && n == REQUEST_FIELDS_1);
	if (!c->bad && (!known || bus < 1 || bus > BUS_OF_REQUESTS))
		return err_why(why, -EBADMSG, "it was written by another version of quern");
	s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	get_tokens(c, UINT32_MAX, s);
	get_positional(c, &s->params);
	get_rest(c, version, 0, 0, s); /* the deadline stays in wall-clock time */
	int rc = end_request(record_close(c, why), s, &s);
	if (rc)
		return rc;
	record_put_request(out, s, 0, 0);
	submit_free(s);
	return 0;
}

/* --- the trace --- */

enum { TRACE_FIELDS = 4, TRACE_SAMPLED = 1, TRACE_REMOTE = 2 };

void record_put_trace(struct buf *out, const struct trace_context *t)
{
	mp_put_array(out, TRACE_FIELDS);
	put_bin(out, t->trace, sizeof t->trace);
	put_bin(out, t->span, sizeof t->span);
	mp_put_uint(out, (t->sampled ? TRACE_SAMPLED : 0) | (t->remote ? TRACE_REMOTE : 0));
	put_bin(out, t->state ? t->state : "", t->state ? strlen(t->state) : 0);
}

void record_get_trace(struct cursor *c, struct trace_context *out)
{
	uint32_t n_trace, n_span, n_state;
	char state[TRACE_STATE_MAX + 1];
	*out = (struct trace_context){0};
	if (cursor_array(c, "trace") != TRACE_FIELDS)
		cursor_fail(c, "trace: the wrong number of fields");
	const void *trace = cursor_bin(c, "trace", 1, sizeof out->trace, &n_trace);
	const void *span = cursor_bin(c, "span", 1, sizeof out->span, &n_span);
	const uint64_t flags = cursor_uint(c, "flags", TRACE_SAMPLED | TRACE_REMOTE);
	const void *text = cursor_bin(c, "state", 1, TRACE_STATE_MAX, &n_state);
	if (!c->bad && (n_trace != sizeof out->trace || n_span != sizeof out->span))
		cursor_fail(c, "trace: an id of the wrong length");
	if (c->bad)
		return;
	memcpy(out->trace, trace, n_trace);
	memcpy(out->span, span, n_span);
	out->set = true;
	out->sampled = flags & TRACE_SAMPLED;
	out->remote = flags & TRACE_REMOTE;
	if (n_state)
		memcpy(state, text, n_state);
	state[n_state] = '\0';
	if (trace_context_is_state(state))
		out->state = xstrdup(state);
}

/* --- tokens --- */

static uint32_t n_top(const struct toklog *t, uint32_t i)
{
	return (uint32_t)(t->top_end[i] - (i ? t->top_end[i - 1] : 0));
}

void record_put_tokens(struct buf *out, const struct toklog *t, uint32_t from, uint32_t to, const int32_t *mu)
{
	uint32_t n = to - from;
	mp_put_array(out, (t->with ? 6 : 1) + (mu != NULL));
	if (mu)
		mp_put_int(out, *mu);
	put_bin(out, t->token + from, n * sizeof *t->token);
	if (!t->with)
		return;
	size_t begin = from ? t->top_end[from - 1] : 0, end = to ? t->top_end[to - 1] : 0;
	uint32_t *column = xmalloc((end - begin + n + 1) * sizeof *column);
	put_bin(out, t->logprob + from, n * sizeof *t->logprob);
	put_bin(out, t->rank + from, n * sizeof *t->rank);
	for (uint32_t i = 0; i < n; i++)
		column[i] = n_top(t, from + i);
	put_bin(out, column, n * sizeof *column);
	for (size_t i = begin; i < end; i++)
		column[i - begin] = t->top[i].token;
	put_bin(out, column, (end - begin) * sizeof *column);
	for (size_t i = begin; i < end; i++)
		memcpy(&column[i - begin], &t->top[i].logprob, sizeof *column);
	put_bin(out, column, (end - begin) * sizeof *column);
	free(column);
}

void record_get_tokens(struct cursor *c, struct record_tokens *out)
{
	*out = (struct record_tokens){0};
	uint32_t n_columns = cursor_array(c, "tokens"), n, n_ranks = 0, n_tops = 0, n_ids = 0, n_probs = 0,
		 n_logprobs = 0;
	out->has_mu = n_columns == 2 || n_columns == 7;
	const int32_t mu = out->has_mu ? (int32_t)cursor_int(c, "mu", INT32_MIN, INT32_MAX) : 0;
	n_columns -= out->has_mu;
	uint32_t *ids = get_bin(c, "tokens", sizeof *ids, TOKENS_MAX, &n);
	float *logprobs = NULL;
	uint32_t *ranks = NULL, *tops = NULL;
	if (n_columns == 6) {
		logprobs = get_bin(c, "logprobs", sizeof *logprobs, TOKENS_MAX, &n_logprobs);
		ranks = get_bin(c, "ranks", sizeof *ranks, TOKENS_MAX, &n_ranks);
		tops = get_bin(c, "n_top", sizeof *tops, TOKENS_MAX, &n_tops);
		out->top_ids = get_bin(c, "top_ids", sizeof(uint32_t), TOKENS_MAX, &n_ids);
		out->top_logprobs = get_bin(c, "top_logprobs", sizeof(float), TOKENS_MAX, &n_probs);
		if (n_logprobs != n || n_ranks != n || n_tops != n || n_ids != n_probs)
			cursor_fail(c, "tokens: columns of different length");
	} else if (n_columns != 1) {
		cursor_fail(c, "tokens: the wrong number of columns");
	}
	uint64_t at = 0;
	out->n = c->bad ? 0 : n;
	out->tokens = xcalloc(n ? n : 1, sizeof *out->tokens);
	for (uint32_t i = 0; i < out->n; i++) {
		struct engine_token *t = &out->tokens[i];
		t->token = ids[i];
		t->mu = mu;
		if (!ranks)
			continue;
		t->logprob = logprobs[i];
		t->rank = ranks[i];
		t->n_top = tops[i];
		t->top0 = (uint32_t)at;
		at += tops[i];
		if (at > n_ids) {
			cursor_fail(c, "tokens: more logprobs than there are");
			out->n = 0;
		}
	}
	free(ids);
	free(logprobs);
	free(ranks);
	free(tops);
}

void record_tokens_fini(struct record_tokens *t)
{
	free(t->tokens);
	free(t->top_ids);
	free(t->top_logprobs);
	*t = (struct record_tokens){0};
}

/* --- outputs --- */

static int64_t stop_index(const struct output *o, const struct output_rules *r)
{
	for (int64_t i = 0; o->stop_string; i++)
		if (r->stop[i] == o->stop_string)
			return i;
	return -1;
}

void record_put_output(struct buf *out, const struct output *o, const struct output_rules *r)
{
	mp_put_array(out, 6);
	mp_put_uint(out, o->finish);
	mp_put_int(out, o->stop_token);
	mp_put_int(out, stop_index(o, r));
	put_bin(out, o->text.p, o->text.len);
	/* Offsets at which the tokens' texts and the tail begin. */
	const uint32_t tail = (uint32_t)o->tail;
	struct buf starts = {0};
	if (o->log.n)
		buf_put(&starts, o->start, o->log.n * sizeof *o->start);
	buf_put(&starts, &tail, sizeof tail);
	put_bin(out, starts.p, starts.len);
	buf_fini(&starts);
	record_put_tokens(out, &o->log, 0, o->log.n, NULL);
}

static bool starts_fit(const uint32_t *start, uint32_t n, uint32_t text_n)
{
	for (uint32_t i = 0; i < n; i++)
		if (start[i] > text_n || (i && start[i] < start[i - 1]))
			return false;
	return true;
}

void record_get_output(struct cursor *c, struct output *o, const struct output_rules *r, uint32_t n_stop)
{
	struct record_tokens t;
	uint32_t text_n, n_start;
	if (cursor_array(c, "output") != 6)
		cursor_fail(c, "output: the wrong number of fields");
	enum finish finish = (enum finish)cursor_uint(c, "finish", FINISH_ERROR);
	int64_t stop_token = cursor_int(c, "stop_token", -1, UINT32_MAX);
	int64_t which = cursor_int(c, "stop_string", -1, (int64_t)n_stop - 1);
	const char *text = cursor_bin(c, "text", 1, TEXT_MAX, &text_n);
	uint32_t *start = get_bin(c, "starts", sizeof *start, TOKENS_MAX + 1, &n_start);
	record_get_tokens(c, &t);
	if (!c->bad && (n_start != t.n + 1 || finish == FINISH_NONE || !starts_fit(start, n_start, text_n)))
		cursor_fail(c, "output: texts and tokens do not agree");
	if (!c->bad) {
		for (uint32_t i = 0; i < t.n; i++)
			toklog_push(&o->log, &t.tokens[i], t.top_ids, t.top_logprobs);
		free(o->start);
		o->start = xcalloc(o->log.cap ? o->log.cap : 1, sizeof *o->start);
		if (t.n)
			memcpy(o->start, start, t.n * sizeof *start);
		o->tail = start[t.n];
		buf_clear(&o->text);
		buf_put(&o->text, text, text_n);
		o->shown = text_n;
		o->n_shown = t.n;
		o->finish = finish;
		o->stop_token = stop_token;
		o->stop_string = which >= 0 ? r->stop[which] : NULL;
		detok_free(o->detok);
		o->detok = NULL;
	}
	free(start);
	record_tokens_fini(&t);
}
