#include "controller/jobsock/job_request.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/utf8.h"
#include "controller/request/request_tokens.h"
#include "proto/mp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	DETOKENIZE_MAX = 1 << 20,
	REPLICAS_MAX = 1024,
	DEVICES_MAX = 64,
	TIMEOUT_MAX_S = 86400,
	URL_MAX = 256,
	KEYS_MAX = 10
};

struct op {
	const char *name;
	enum job_request_op op;
	const char *keys[KEYS_MAX]; /* fields besides op and id; those of submit are in request/api.c */
};

static const struct op ops[] = {
	{"submit", OP_SUBMIT, {0}},
	{"request", OP_REQUEST, {"url", "body", "key", "priority", "durable", "on_disconnect"}},
	{"cancel", OP_CANCEL, {"job"}},
	{"attach", OP_ATTACH, {"job", "from"}},
	{"result", OP_RESULT, {"job"}},
	{"explain", OP_EXPLAIN, {"job"}},
	{"jobs", OP_JOBS, {0}},
	{"status", OP_STATUS, {0}},
	{"workers", OP_WORKERS, {0}},
	{"scale", OP_SCALE, {"replicas", "devices", "memory_fraction", "timeout_s"}},
	{"drain", OP_DRAIN, {"worker", "timeout_s"}},
	{"reset_prefix_cache", OP_RESET_PREFIX_CACHE, {0}},
	{"tokenize",
	 OP_TOKENIZE,
	 {"text", "add_special", "messages", "tools", "tool_choice", "documents", "chat_template_kwargs",
	  "add_generation_prompt", "continue_final_message"}},
	{"detokenize", OP_DETOKENIZE, {"tokens", "pieces", "skip_special_tokens"}},
	{"ping", OP_PING, {0}},
};

static const struct op *find_op(const char *name)
{
	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (strcmp(ops[i].name, name) == 0)
			return &ops[i];
	return NULL;
}

/* Return whether p[0..n) is a msgpack string of at most 64 bytes, or a non-negative integer. */
static bool id_valid(const uint8_t *p, size_t n)
{
	uint8_t t = p[0];
	if (t >= 0xa0 && t <= 0xbf)
		return true;
	if (t == 0xd9 || t == 0xda || t == 0xdb)
		return n - (t == 0xd9 ? 2 : t == 0xda ? 3 : 5) <= JOBREQ_ID_MAX;
	if (t >= 0xd0 && t <= 0xd3)
		return p[1] < 0x80; /* a signed type, not negative */
	return t <= 0x7f || (t >= 0xcc && t <= 0xcf);
}

static int get_id(struct job_request *r, const void *bytes, size_t n)
{
	const void *id;
	size_t id_n;
	if (mp_find(bytes, n, "id", &id, &id_n))
		return api_fail(&r->problem, E_BAD_REQUEST, "id", "id is missing");
	if (!id_valid(id, id_n))
		return api_fail(&r->problem, E_BAD_REQUEST, "id",
				"id must be a string of at most %d bytes or an unsigned integer",
				JOBREQ_ID_MAX);
	buf_put(&r->id, id, id_n);
	return 0;
}

static int check_keys(struct job_request *r, const struct op *op, const json_t *m)
{
	json_t *map = (json_t *)m, *v;
	const char *name;
	json_object_foreach(map, name, v)
	{
		bool known = strcmp(name, "op") == 0 || strcmp(name, "id") == 0;
		for (size_t i = 0; i < KEYS_MAX && op->keys[i]; i++)
			known = known || strcmp(name, op->keys[i]) == 0;
		if (!known)
			return api_fail(&r->problem, E_BAD_REQUEST, name, "unknown field %.64s in %s", name,
					op->name);
	}
	return 0;
}

static int get_job(struct job_request *r, const json_t *m)
{
	const json_t *v = json_object_get(m, "job");
	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return api_fail(&r->problem, E_BAD_REQUEST, "job", "job must be a job's id, a string");
	/* A longer id is truncated, and matches no job. */
	snprintf(r->job, sizeof r->job, "%s", json_string_value(v));
	return 0;
}

static int get_from(struct job_request *r, const json_t *m)
{
	const json_t *v = json_get(m, "from");
	if (!v)
		return 0;
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	if (n == 0 || n > PARAMS_N_MAX)
		return api_fail(&r->problem, E_BAD_REQUEST, "from", "from must have one offset per output");
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
		if (!json_is_integer(e) || json_integer_value(e) < 0 || json_integer_value(e) > INT32_MAX)
			return api_fail(&r->problem, E_BAD_REQUEST, "from",
					"from must be a token offset, or an array of them, one per output");
		r->from[i] = (uint32_t)json_integer_value(e);
	}
	r->n_from = json_is_array(v) ? (uint32_t)n : 0;
	return 0;
}

static int get_bool(struct job_request *r, const json_t *m, const char *key, bool *out)
{
	struct why why;
	if (json_get_bool(m, key, out, &why))
		return api_fail(&r->problem, E_BAD_REQUEST, key, "%s", why.text);
	return 0;
}

/* Tokenize a conversation, rendered by the model's chat template. */
static int do_tokenize_messages(struct job_request *r, const struct service *svc, uint32_t max_context,
				const json_t *m)
{
	char ignored[512] = ""; /* fields that the template ignores: an error here */
	json_t *request = json_copy((json_t *)m);
	json_object_del(request, "op");
	json_object_del(request, "id");
	json_object_del(request, "text");
	const json_t *add_special = json_get(m, "add_special");
	int rc = add_special ? api_fail(&r->problem, E_BAD_REQUEST, "add_special",
					"add_special is not taken with messages: the template writes them")
			     : api_tokenize_messages(svc, max_context, request, &r->tokens, ignored,
						     sizeof ignored, &r->problem);
	json_decref(request);
	if (!rc && ignored[0])
		rc = api_fail(&r->problem, E_BAD_REQUEST, "messages",
			      "the model's chat template does not mention %s", ignored);
	return rc;
}

static int do_tokenize(struct job_request *r, const struct service *svc, uint32_t max_context,
		       const json_t *m)
{
	static const char *const of_text[] = {"op", "id", "text", "add_special"};
	const json_t *text = json_get(m, "text");
	const char *name;
	json_t *v;
	bool add_special = false;
	if (!text == !json_get(m, "messages"))
		return api_fail(&r->problem, E_BAD_REQUEST, "text",
				"a tokenize has exactly one of text and messages");
	if (!text)
		return do_tokenize_messages(r, svc, max_context, m);
	json_object_foreach((json_t *)m, name, v)
	{
		bool known = json_is_null(v);
		for (size_t i = 0; i < sizeof of_text / sizeof *of_text; i++)
			known = known || strcmp(name, of_text[i]) == 0;
		if (!known)
			return api_fail(&r->problem, E_BAD_REQUEST, name, "%s is for messages only", name);
	}
	if (!json_is_string(text))
		return api_fail(&r->problem, E_BAD_REQUEST, "text", "text must be a string");
	int rc = get_bool(r, m, "add_special", &add_special);
	return rc ? rc
		  : api_tokenize(svc, max_context, json_string_value(text), json_string_length(text),
				 add_special, &r->tokens, &r->problem);
}

/* Set the text of each single token; bytes that are not valid UTF-8 by themselves are replaced. */
static void put_pieces(struct job_request *r, const struct service *svc, const struct token_ids *ids)
{
	struct buf piece = {0}, text = {0};
	r->pieces = json_array();
	for (size_t i = 0; i < ids->n; i++) {
		buf_clear(&piece);
		buf_clear(&text);
		tokenizer_piece(svc->tokenizer, ids->ids[i], &piece);
		size_t done = utf8_put_lossy(&text, piece.p, piece.len);
		if (done < piece.len) /* ends with the first bytes of a character */
			utf8_put_replacement(&text);
		json_array_append_new(r->pieces, json_stringn(text.p ? text.p : "", text.len));
	}
	buf_fini(&piece);
	buf_fini(&text);
}

static int do_detokenize(struct job_request *r, const struct service *svc, const json_t *m)
{
	struct token_ids ids = {0};
	bool pieces = false, skip = false;
	int rc = get_bool(r, m, "pieces", &pieces);
	if (!rc)
		rc = get_bool(r, m, "skip_special_tokens", &skip);
	if (!rc)
		rc = request_tokens_read(svc, json_object_get(m, "tokens"), "tokens", DETOKENIZE_MAX, &ids,
					 &r->problem);
	if (!rc && tokenizer_decode(svc->tokenizer, ids.ids, ids.n, skip, &r->text))
		rc = api_fail(&r->problem, E_BAD_REQUEST, "tokens",
			      "tokens holds an id that the tokenizer does not have");
	if (!rc && pieces)
		put_pieces(r, svc, &ids);
	token_ids_fini(&ids);
	return rc;
}

static int get_uint(struct job_request *r, const json_t *m, const char *key, int64_t lo, int64_t hi,
		    int64_t *out)
{
	const json_t *v = json_get(m, key);
	int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
	if (n < lo || n > hi)
		return api_fail(&r->problem, E_BAD_REQUEST, key, "%s must be an integer from %lld to %lld",
				key, (long long)lo, (long long)hi);
	*out = n;
	return 0;
}

/* Get an optional string; *out is NULL if it is absent. */
static int get_text(struct job_request *r, const json_t *m, const char *key, size_t most, const char **out)
{
	const json_t *v = json_get(m, key);
	const size_t n = json_string_length(v);
	*out = json_string_value(v);
	if (!v || (*out && n && n <= most && strlen(*out) == n))
		return 0;
	return api_fail(&r->problem, E_BAD_REQUEST, key, "%s must be a string of 1 to %zu bytes", key, most);
}

static int get_on_disconnect(struct job_request *r, const json_t *m, bool *keep)
{
	const char *text;
	const int rc = get_text(r, m, "on_disconnect", URL_MAX, &text);
	if (rc)
		return rc;
	*keep = text && strcmp(text, "keep") == 0;
	if (!text || *keep || strcmp(text, "cancel") == 0)
		return 0;
	return api_fail(&r->problem, E_BAD_REQUEST, "on_disconnect", "on_disconnect must be cancel or keep");
}

/* Parse a request for an HTTP route; the route itself parses the body. */
static int get_line(struct job_request *r, const struct service *svc, const json_t *m)
{
	const char *url = NULL, *key = NULL;
	const json_t *body = json_get(m, "body"), *priority = json_get(m, "priority");
	int64_t n = 0;
	struct line_request *l = r->line = xcalloc(1, sizeof *l);
	int rc = get_text(r, m, "url", URL_MAX, &url);
	if (!rc)
		rc = get_text(r, m, "key", LINES_KEY_SIZE - 1, &key);
	if (!rc)
		rc = get_on_disconnect(r, m, &l->keep);
	if (!rc)
		rc = get_bool(r, m, "durable", &l->durable);
	if (rc)
		return rc;
	if (!url)
		return api_fail(&r->problem, E_BAD_REQUEST, "url", "url must be the path of a route of HTTP");
	if (!json_is_string(body))
		return api_fail(&r->problem, E_BAD_REQUEST, "body",
				"body must be a string: the text of a JSON object");
	if (priority && (!json_integral(priority, &n) || n < INT32_MIN || n > INT32_MAX))
		return api_fail(&r->problem, E_BAD_REQUEST, "priority",
				"priority must be an integer of 32 bits");
	if (l->durable && !svc->journal)
		return api_fail(&r->problem, E_BAD_REQUEST, "durable",
				"durable: this service keeps no journal; start it with --journal FILE");
	l->priority = (int32_t)n;
	l->url = xstrdup(url);
	snprintf(l->key, sizeof l->key, "%s", key ? key : "");
	buf_put(&l->body, json_string_value(body), json_string_length(body));
	return 0;
}

static int get_devices(struct job_request *r, const json_t *m)
{
	struct engine_cmd *c = r->order;
	const json_t *d, *v = json_get(m, "devices");
	size_t i;
	if (!v)
		return 0;
	if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > DEVICES_MAX)
		return api_fail(&r->problem, E_BAD_REQUEST, "devices",
				"devices must be an array of 1 to %d names of devices", DEVICES_MAX);
	c->devices = xcalloc(json_array_size(v), sizeof *c->devices);
	json_array_foreach(v, i, d)
	{
		size_t n = json_string_length(d);
		if (!json_is_string(d) || n == 0 || n >= sizeof *c->devices)
			return api_fail(&r->problem, E_BAD_REQUEST, "devices",
					"devices[%zu] must be a name as cpu, cpu:0 or cuda:0", i);
		snprintf(c->devices[c->n_devices++], sizeof *c->devices, "%s", json_string_value(d));
	}
	return 0;
}

static int get_fraction(struct job_request *r, const json_t *m)
{
	const json_t *v = json_get(m, "memory_fraction");
	if (!v)
		return 0;
	const double x = json_is_number(v) ? json_number_value(v) : 0;
	if (!(x >= 0.01 && x <= 1))
		return api_fail(&r->problem, E_BAD_REQUEST, "memory_fraction",
				"memory_fraction must be a number from 0.01 to 1");
	r->order->memory_fraction = x;
	return 0;
}

static int get_order(struct job_request *r, enum job_request_op op, const json_t *m)
{
	int64_t n = 0, seconds = 0;
	r->order = xcalloc(1, sizeof *r->order);
	r->order->kind = op == OP_SCALE ? ENGINE_SCALE : op == OP_DRAIN ? ENGINE_DRAIN : ENGINE_FORGET;
	params_init(&r->order->params);
	if (op == OP_RESET_PREFIX_CACHE)
		return 0;
	int rc = op == OP_SCALE ? get_uint(r, m, "replicas", 0, REPLICAS_MAX, &n)
				: get_uint(r, m, "worker", 1, INT64_MAX, &n);
	if (!rc && op == OP_SCALE)
		rc = get_devices(r, m);
	if (!rc && op == OP_SCALE)
		rc = get_fraction(r, m);
	if (!rc && json_get(m, "timeout_s"))
		rc = get_uint(r, m, "timeout_s", 1, TIMEOUT_MAX_S, &seconds);
	r->order->n_replicas = op == OP_SCALE ? (uint32_t)n : 0;
	r->order->worker = op == OP_DRAIN ? (uint64_t)n : 0;
	r->order->wait_us = seconds * 1000000;
	return rc;
}

static int parse_op(struct job_request *r, const struct op *op, const struct service *svc,
		    uint32_t max_context, const json_t *m)
{
	struct why why;
	/* Checked before the prompt is tokenized.  With an idempotency key the request may refer to an
	 * existing job. */
	const bool makes_jobs = op->op == OP_SUBMIT || op->op == OP_REQUEST;
	if (makes_jobs && !json_get(m, "key") && service_full(svc, &why))
		return api_fail(&r->problem, E_OVERLOADED, "", "%s", why.text);
	if (op->op == OP_SUBMIT)
		return api_submit(svc, max_context, m, API_JOBS, 0, &r->submit, NULL, &r->problem);
	int rc = check_keys(r, op, m);
	if (rc)
		return rc;
	switch (op->op) {
	case OP_CANCEL:
	case OP_RESULT:
	case OP_EXPLAIN:
		return get_job(r, m);
	case OP_ATTACH:
		rc = get_job(r, m);
		return rc ? rc : get_from(r, m);
	case OP_TOKENIZE:
		return do_tokenize(r, svc, max_context, m);
	case OP_DETOKENIZE:
		return do_detokenize(r, svc, m);
	case OP_REQUEST:
		return get_line(r, svc, m);
	case OP_SCALE:
	case OP_DRAIN:
	case OP_RESET_PREFIX_CACHE:
		return get_order(r, op->op, m);
	default:
		return 0;
	}
}

static int parse(struct job_request *r, const struct service *svc, uint32_t max_context, const void *bytes,
		 size_t n)
{
	struct api_problem *p = &r->problem;
	if (n > svc->max_request_bytes) {
		get_id(r, bytes, n);
		return api_fail(p, E_TOO_LONG, "", "the request has %zu bytes, at most %u are accepted", n,
				svc->max_request_bytes);
	}
	struct mp_limits limits = mp_limits_request(svc->max_request_bytes);
	json_t *m = NULL;
	struct why why;
	int id_rc = get_id(r, bytes, n);
	if (mp_decode(bytes, n, &limits, &m, &why))
		return api_fail(p, E_BAD_REQUEST, "", "%s", why.text);
	const json_t *name = json_object_get(m, "op");
	/* A name with a NUL in it is unknown, whatever precedes the NUL. */
	bool whole = json_is_string(name) && strlen(json_string_value(name)) == json_string_length(name);
	const struct op *op = whole ? find_op(json_string_value(name)) : NULL;
	int rc = -EINVAL;
	if (!json_is_object(m))
		api_fail(p, E_BAD_REQUEST, "", "a request is a map");
	else if (!json_is_string(name))
		api_fail(p, E_BAD_REQUEST, "op", "op must be a string");
	else if (!op)
		api_fail(p, E_BAD_REQUEST, "op", "unknown op %.32s", json_string_value(name));
	else if (!id_rc)
		rc = parse_op(r, op, svc, max_context, m);
	if (!rc)
		r->op = op->op;
	json_decref(m);
	return rc;
}

void job_request_parse(struct job_request *out, const struct service *svc, uint32_t max_context,
		       const void *bytes, size_t n)
{
	*out = (struct job_request){0};
	parse(out, svc, max_context, bytes, n);
}

void job_request_id(struct job_request *out, const void *bytes, size_t n)
{
	*out = (struct job_request){0};
	get_id(out, bytes, n);
}

void job_request_fini(struct job_request *r)
{
	buf_fini(&r->id);
	submit_free(r->submit);
	line_request_free(r->line);
	token_ids_fini(&r->tokens);
	buf_fini(&r->text);
	json_decref(r->pieces);
	engine_cmd_free(r->order);
	*r = (struct job_request){0};
}
