#include "controller/endpoints/routes.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_write.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/endpoints/pooling.h"
#include "controller/jobs/mailbox.h"
#include "controller/request/api.h"
#include "controller/request/chat_request.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text with which Qwen3-Reranker was trained. */
#define TASK                                                                                                 \
	"Judge whether the Document meets the requirements based on the Query and the Instruct provided. "   \
	"Note that the answer can only be \"yes\" or \"no\"."
#define INSTRUCTION "Given a web search query, retrieve relevant passages that answer the query"

enum { NO, YES, ANSWERS };

/* Texts of a request, borrowed from it: a single one, or an array. */
struct texts {
	const char *name; /* field name */
	const json_t *v;
	size_t n;
	bool many;
};

/* State of a request until its reply. */
struct scoring {
	json_t *request; /* owned: the reply quotes its texts */
	struct texts queries, documents;
	bool list;       /* /v1/score: in the order of the request, without texts */
	bool cosine;     /* true: scored by vectors */
	bool quote;      /* return_documents */
	size_t n, top_n; /* pairs; pairs in the reply */
	const char *instruction;
	int32_t answers[ANSWERS];
	float **vectors; /* cosine: vector of each job, owned; queries first */
	uint32_t width;
	double *scores; /* [n] */
};

/* ---- the reply ---- */

static size_t query_of(const struct scoring *r, size_t pair)
{
	return r->queries.n > 1 ? pair : 0;
}

static bool take(struct subrequest *s, const struct job_event *e)
{
	struct scoring *r = s->completion->writer_data;
	if (r->cosine) {
		r->width = e->n_pooled;
		r->vectors[s->first] = xmalloc(e->n_pooled * sizeof **r->vectors);
		return pooling_vector(e->pooled, e->n_pooled, true, r->vectors[s->first]);
	}
	const double gap = e->n_pooled == ANSWERS ? (double)e->pooled[NO] - (double)e->pooled[YES] : NAN;
	r->scores[s->first] = 1 / (1 + exp(gap));
	return !isnan(gap);
}

static const char *done(struct subrequest *s, const struct job_event *e)
{
	return pooling_verdict(e, e->pooled && take(s, e));
}

static void set_cosines(struct scoring *r)
{
	for (size_t i = 0; r->cosine && i < r->n; i++)
		r->scores[i] =
			pooling_dot(r->vectors[query_of(r, i)], r->vectors[r->queries.n + i], r->width);
}

static const char *text_of(const struct texts *t, size_t i, size_t *n)
{
	const json_t *v = t->many ? json_array_get(t->v, i) : t->v;
	if (json_is_object(v))
		v = json_get(v, "text");
	*n = json_string_length(v);
	return json_string_value(v);
}

static void put_score(struct buf *b, const char *name, double score)
{
	buf_printf(b, ",\"%s\":", name);
	json_write_float(b, (float)score);
	buf_putc(b, '}');
}

static void put_list(struct buf *b, const struct scoring *r, const struct completion *c)
{
	buf_printf(b, "\"object\":\"list\",\"created\":%lld,\"data\":[", (long long)c->created);
	for (size_t i = 0; i < r->n; i++) {
		buf_printf(b, "%s{\"index\":%zu,\"object\":\"score\"", i ? "," : "", i);
		put_score(b, "score", r->scores[i]);
	}
}

/* For sorting: best scores first; equal scores in the order of the request. */
struct place {
	double score;
	size_t at;
};

static int by_score(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	if (x->score != y->score)
		return x->score < y->score ? 1 : -1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static void put_ranking(struct buf *b, const struct scoring *r)
{
	struct place *order = xcalloc(r->n, sizeof *order);
	for (size_t i = 0; i < r->n; i++)
		order[i] = (struct place){r->scores[i], i};
	qsort(order, r->n, sizeof *order, by_score);
	buf_puts(b, "\"results\":[");
	for (size_t i = 0; i < r->top_n; i++) {
		buf_printf(b, "%s{\"index\":%zu", i ? "," : "", order[i].at);
		if (r->quote) {
			size_t n;
			const char *text = text_of(&r->documents, order[i].at, &n);
			buf_puts(b, ",\"document\":{\"text\":");
			json_write_string(b, text, n);
			buf_putc(b, '}');
		}
		put_score(b, "relevance_score", order[i].score);
	}
	free(order);
}

static void reply(struct completion *c, struct buf *b)
{
	struct scoring *r = c->writer_data;
	const unsigned long long tokens = c->usage.prompt_tokens;
	set_cosines(r);
	buf_printf(b, "{\"id\":\"%s\",\"model\":", c->id);
	json_write_str(b, c->model);
	buf_putc(b, ',');
	if (r->list)
		put_list(b, r, c);
	else
		put_ranking(b, r);
	buf_printf(b, "],\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", tokens, tokens);
}

static void scoring_free(void *data)
{
	struct scoring *r = data;
	for (size_t i = 0; r->vectors && i < r->queries.n + r->n; i++)
		free(r->vectors[i]);
	free(r->vectors);
	free(r->scores);
	json_decref(r->request);
	free(r);
}

static const struct answer_writer scored = {.done = done, .body = reply, .free = scoring_free};

/* ---- the request ---- */

enum { NAMES_MAX = 4 /* per field */ };

/* Return the first of these names that the request has. */
static const char *name_of(const json_t *request, const char *const names[NAMES_MAX])
{
	for (int i = 0; i < NAMES_MAX && names[i]; i++)
		if (json_get(request, names[i]))
			return names[i];
	return names[0];
}

/* Read texts, each a string or {"text": ...}. */
static int read_texts(const json_t *request, const char *name, struct texts *t, struct api_problem *p)
{
	const json_t *v = json_get(request, name);
	t->name = name;
	t->v = v;
	t->many = json_is_array(v);
	t->n = t->many ? json_array_size(v) : v != NULL;
	if (t->n == 0)
		return api_fail(p, E_BAD_REQUEST, name, "%s is missing or empty", name);
	if (t->n > POOLING_INPUTS_MAX)
		return api_fail(p, E_BAD_REQUEST, name, "%s has %zu texts, at most %d are taken", name, t->n,
				POOLING_INPUTS_MAX);
	for (size_t i = 0; i < t->n; i++) {
		size_t n;
		if (!text_of(t, i, &n))
			return api_fail(p, E_BAD_REQUEST, name,
					"%s must be a string or an array of strings (or of objects with a "
					"text)",
					name);
	}
	return 0;
}

static int check_pairs(struct scoring *r, struct api_problem *p)
{
	const size_t q = r->queries.n, d = r->documents.n;
	if (q > 1 && (!r->list || q != d))
		return api_fail(
			p, E_BAD_REQUEST, r->queries.name,
			"%s has %zu texts and %s %zu: one against any number, or as many on both sides",
			r->queries.name, q, r->documents.name, d);
	r->n = r->top_n = d;
	return 0;
}

/* Find the ids of "yes" and "no", one token each. */
static int find_answers(const struct service *svc, struct scoring *r, struct api_problem *p)
{
	static const char *const words[ANSWERS] = {"no", "yes"};
	for (int i = 0; i < ANSWERS; i++) {
		const int64_t id = tokenizer_id(svc->tokenizer, words[i]);
		if (id < 0 || id >= svc->config->n_vocab)
			return api_fail(p, E_BAD_REQUEST, "model",
					"this model cannot score: its vocabulary has no token \"%s\"",
					words[i]);
		r->answers[i] = (int32_t)id;
	}
	return 0;
}

static int read_ranking(const json_t *request, struct scoring *r, struct api_problem *p)
{
	int64_t top = 0;
	int rc = pooling_int(request, "top_n", 0, INT32_MAX, &top, p);
	r->quote = true;
	if (rc || (rc = pooling_bool(request, "return_documents", &r->quote, p)))
		return rc;
	/* 0 means all, as in vLLM. */
	if (top && (size_t)top < r->n)
		r->top_n = (size_t)top;
	return 0;
}

/* Refuse fields that do not apply to this way of scoring. */
static int check_way(const json_t *request, const struct scoring *r, const struct pooling_fields *f,
		     struct api_problem *p)
{
	if (r->cosine && json_get(request, "instruction"))
		return api_fail(p, E_BAD_REQUEST, "instruction",
				"this model scores by vectors, without an instruction");
	if (!r->cosine && f->truncate)
		return api_fail(p, E_BAD_REQUEST, "truncate_prompt_tokens",
				"this model scores by its answers: their prompts are not truncated");
	return 0;
}

/* Check that the prompts of all pairs are within the limits of a request: one text may occur in every
 * prompt. */
static int check_prompts(const struct service *svc, uint32_t context, const struct scoring *r,
			 struct api_problem *p)
{
	const size_t task = strlen(r->instruction);
	uint64_t bytes = 0;
	int rc = request_tokens_check_bytes(svc, context, task, "instruction", p);
	for (size_t i = 0; i < r->n; i++) {
		size_t nq, nd;
		text_of(&r->queries, query_of(r, i), &nq);
		text_of(&r->documents, i, &nd);
		bytes += task + nq + nd;
	}
	if (rc || bytes <= svc->max_request_bytes)
		return rc;
	return api_fail(p, E_BAD_REQUEST, r->documents.name,
			"%s: %zu prompts, each with the instruction and a query, have %" PRIu64
			" bytes, at most %u are taken: send fewer texts in a request",
			r->documents.name, r->n, bytes, svc->max_request_bytes);
}

#define TEXTS (FIELD_STRING | FIELD_ARRAY | FIELD_OBJECT)
#define INSTRUCTION_ROW                                                                                      \
	{                                                                                                    \
		"instruction", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,                                     \
			"the task in words, for a model that is asked (web search)"                          \
	}

static const struct field_row rerank_rows[] = {
	{"query", TEXTS, FIELD_HONOURED, 0, 0, NULL, "a text, or {text}"},
	{"documents", TEXTS, FIELD_HONOURED, 0, 0, NULL, "an array of texts, or of {text}"},
	{"top_n", FIELD_INTEGER, FIELD_HONOURED, 0, INT32_MAX, NULL, "so many of the best; all"},
	{"return_documents", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "the reply has their texts (true)"},
	INSTRUCTION_ROW,
};
static const struct field_row score_rows[] = {
	{"text_1", TEXTS, FIELD_HONOURED, 0, 0, NULL, "a text or an array of them"},
	{"text_2", TEXTS, FIELD_HONOURED, 0, 0, NULL, "as many, or any number with one text_1"},
	{"queries", TEXTS, FIELD_HONOURED, 0, 0, NULL, "text_1"},
	{"data_1", TEXTS, FIELD_HONOURED, 0, 0, NULL, "text_1"},
	{"documents", TEXTS, FIELD_HONOURED, 0, 0, NULL, "text_2"},
	{"items", TEXTS, FIELD_HONOURED, 0, 0, NULL, "text_2"},
	{"data_2", TEXTS, FIELD_HONOURED, 0, 0, NULL, "text_2"},
	INSTRUCTION_ROW,
};
const struct field_table rerank_fields = {rerank_rows, sizeof rerank_rows / sizeof *rerank_rows,
					  &pooling_table};
const struct field_table score_fields = {score_rows, sizeof score_rows / sizeof *score_rows, &pooling_table};

static int read_request(struct exchange *x, struct scoring *r, struct pooling_fields *f,
			struct api_problem *p)
{
	static const char *const firsts[NAMES_MAX] = {"text_1", "queries", "data_1"},
				 *const seconds[NAMES_MAX] = {"text_2", "documents", "items", "data_2"},
				 *const query[NAMES_MAX] = {"query"},
				 *const documents[NAMES_MAX] = {"documents"};
	const struct service *svc = x->host->svc;
	r->instruction = INSTRUCTION;
	r->cosine = svc->config->embeds;
	int rc = pooling_fields_read(x, r->request, r->list ? &score_fields : &rerank_fields, f, p);
	if (rc || (rc = pooling_string(r->request, "instruction", &r->instruction, p)) ||
	    (rc = read_texts(r->request, name_of(r->request, r->list ? firsts : query), &r->queries, p)) ||
	    (rc = read_texts(r->request, name_of(r->request, r->list ? seconds : documents), &r->documents,
			     p)) ||
	    (rc = check_pairs(r, p)) || (!r->list && (rc = read_ranking(r->request, r, p))) ||
	    (rc = check_way(r->request, r, f, p)))
		return rc;
	if (r->cosine && svc->config->pool == CONFIG_POOL_OTHER)
		return api_fail(p, E_BAD_REQUEST, "model",
				"this model's vectors are made in a way that is not supported (%s)",
				svc->config->pool_why);
	if (r->cosine)
		return 0;
	rc = find_answers(svc, r, p);
	return rc ? rc : check_prompts(svc, mailbox_max_context(apis_of(x)->mailbox), r, p);
}

/* ---- prompts ---- */

/* Append the text of a pair, in which special tokens are not recognized. */
static void put_pair(struct buf *b, const struct scoring *r, size_t i)
{
	size_t nq, nd;
	const char *query = text_of(&r->queries, query_of(r, i), &nq), *doc = text_of(&r->documents, i, &nd);
	buf_printf(b, "<Instruct>: %s\n<Query>: ", r->instruction);
	buf_put(b, query, nq);
	buf_puts(b, "\n<Document>: ");
	buf_put(b, doc, nd);
}

/* Encode a prompt in ChatML, as in the reranker's training: the answer begins after empty reasoning. */
static int encode_chatml(const struct service *svc, const struct scoring *r, size_t i, struct token_ids *ids,
			 struct api_problem *p)
{
	struct buf b = {0};
	struct text_span plain;
	buf_puts(&b, "<|im_start|>system\n" TASK "<|im_end|>\n<|im_start|>user\n");
	plain.start = b.len;
	put_pair(&b, r, i);
	plain.end = b.len;
	buf_puts(&b, "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
	const struct request_text text = {
		.field = r->documents.name, .p = b.p, .n = b.len, .plain = &plain, .n_plain = 1};
	int rc = request_tokens_encode(svc, &text, ids, p);
	buf_fini(&b);
	return rc;
}

/* Encode a prompt with the model's own template. */
static int encode_chat(const struct service *svc, uint32_t context, const struct scoring *r, size_t i,
		       struct token_ids *ids, struct api_problem *p)
{
	struct buf b = {0};
	struct chat_prompt prompt = {0};
	enum prompt_reasoning reasoning;
	char ignored[512] = "";
	put_pair(&b, r, i);
	json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s%}]", "role", "system", "content", TASK, "role",
				     "user", "content", b.p, b.len);
	json_t *kwargs = json_pack("{s:b}", "enable_thinking", 0);
	const struct chat_request chat = {
		.messages = messages, .kwargs = kwargs, .openai = true, .add_generation = true};
	int rc = messages && kwargs ? chat_request_render(svc, context, &chat, &prompt, &reasoning, ignored,
							  sizeof ignored, p)
				    : api_fail(p, E_BAD_REQUEST, r->documents.name, "a text is not UTF-8");
	const struct request_text text = {.field = r->documents.name,
					  .p = prompt.text.p,
					  .n = prompt.text.len,
					  .plain = prompt.plain,
					  .n_plain = prompt.n_plain};
	if (!rc)
		rc = request_tokens_encode(svc, &text, ids, p);
	chat_prompt_fini(&prompt);
	json_decref(messages);
	json_decref(kwargs);
	buf_fini(&b);
	return rc;
}

static int encode_pair(const struct service *svc, uint32_t context, const struct scoring *r, size_t i,
		       const char *name, struct token_ids *ids, struct api_problem *p)
{
	size_t nq, nd;
	text_of(&r->queries, query_of(r, i), &nq);
	text_of(&r->documents, i, &nd);
	int rc = request_tokens_check_bytes(svc, context, nq, r->queries.name, p);
	if (rc || (rc = request_tokens_check_bytes(svc, context, nd, name, p)))
		return rc;
	const int64_t open = tokenizer_id(svc->tokenizer, "<|im_start|>");
	if (open >= 0 && tokenizer_id(svc->tokenizer, "<|im_end|>") >= 0)
		return encode_chatml(svc, r, i, ids, p);
	return encode_chat(svc, context, r, i, ids, p);
}

/* ---- jobs ---- */

static int make_job(struct completion *c, size_t i, const struct pooling_fields *f, struct api_problem *p)
{
	struct scoring *r = c->writer_data;
	const struct service *svc = c->x->host->svc;
	const bool query = r->cosine && i < r->queries.n;
	const struct texts *t = query ? &r->queries : &r->documents;
	const size_t at = r->cosine && !query ? i - r->queries.n : i;
	struct token_ids ids = {0};
	struct params params;
	char name[48];
	size_t n;
	int rc;
	snprintf(name, sizeof name, t->many ? "%s[%zu]" : "%s", t->name, at);
	params_init(&params);
	if (r->cosine) {
		const char *text = text_of(t, at, &n);
		json_t *v = json_stringn(text, n);
		params.pool = svc->config->pool == CONFIG_POOL_MEAN ? PARAMS_POOL_MEAN : PARAMS_POOL_LAST;
		rc = pooling_encode(c->x, f, v, name, &ids, p);
		json_decref(v);
	} else {
		params.pool = PARAMS_POOL_LOGITS;
		params.allowed = xmemdup(r->answers, sizeof r->answers);
		params.n_allowed = ANSWERS;
		rc = encode_pair(svc, mailbox_max_context(c->mailbox), r, at, name, &ids, p);
	}
	if (!rc)
		return pooling_job(c, i, f, &ids, &params, name, p);
	token_ids_fini(&ids);
	params_fini(&params);
	return rc;
}

static void score(struct exchange *x, bool list)
{
	struct scoring *r = xcalloc(1, sizeof *r);
	struct api_problem p = {.code = E_INTERNAL};
	struct pooling_fields f;
	r->list = list;
	r->request = common_body_object(x);
	if (!r->request || !common_check_model(x, r->request))
		goto done;
	int rc = read_request(x, r, &f, &p);
	if (rc) {
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	const size_t n = r->cosine ? r->queries.n + r->n : r->n;
	r->scores = xcalloc(r->n, sizeof *r->scores);
	r->vectors = r->cosine ? xcalloc(n, sizeof *r->vectors) : NULL;
	struct completion *c = pooling_begin(x, n, &scored, r);
	if (!c)
		return;
	for (size_t i = 0; !rc && i < n; i++)
		rc = exchange_is_over(x) ? -ECANCELED : make_job(c, i, &f, &p);
	pooling_submit(c, rc, &p, list ? "score-" : "rerank-");
	return;
done:
	scoring_free(r);
}

void rerank_call(struct exchange *x, const char *rest)
{
	(void)rest;
	score(x, false);
}

void rerank_call_score(struct exchange *x, const char *rest)
{
	(void)rest;
	score(x, true);
}
