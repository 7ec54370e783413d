/* request_fields.h - the fields of a request in each dialect, with types and ranges.
 * The error names a field that is wrong, unknown or not built yet.  Lists and texts are only located here;
 * api.c turns them into parameters. */
#ifndef QUERN_CONTROLLER_REQUEST_REQUEST_FIELDS_H
#define QUERN_CONTROLLER_REQUEST_REQUEST_FIELDS_H

#include "controller/request/api.h"
#include "controller/request/field_table.h"

/* The values of a request, or their defaults.  Texts and trees are borrowed from the request; NULL: not
 * given. */
enum { SPACE_BYTES_MAX = 1000 }; /* limit of a whitespace pattern, bytes */

struct request_fields {
	double params[PARAMS_ROWS_MAX]; /* by row of params_rows; rows without `about` are unused */
	int64_t max_tokens;             /* 0: not given */
	int64_t max_completion_tokens;  /* chat's newer name for max_tokens, which it overrides */
	int64_t best_of;                /* -1: not given */
	int64_t beam_width;             /* -1: not given; a beam search sets it after request_fields_read() */
	enum params_early early;
	bool beams;                                      /* use_beam_search */
	int64_t logprobs, prompt_logprobs, top_logprobs; /* -1: none */
	int64_t seed;
	int64_t deadline_ms; /* 0: none */
	int64_t priority;
	bool has_seed, chat_logprobs, include_stop, skip_special, stream, keep, durable, echo;
	bool add_special, add_special_given;
	bool no_output; /* max_tokens 0 with echo: the reply has the prompt only */
	bool tokens_as_ids, return_token_ids, return_timing, include_usage, continuous_usage;
	bool has_stream_options;
	const json_t *stop, *stop_token_ids, *logit_bias, *allowed, *bad_words, *breakers;
	const json_t *prompt, *tokens, *messages;
	const json_t *tools, *tool_choice, *documents, *template_kwargs;
	/* Structured output (constraint_request.h); gbnf is the field `grammar`. */
	const json_t *response_format, *structured, *guided_json, *guided_regex, *guided_choice,
		*guided_grammar, *gbnf, *json_schema, *schema, *regex, *ebnf, *format, *structural;
	const char *guided_space; /* guided_whitespace_pattern; NULL: none */
	bool schema_exact;        /* true: schemas are not bounded */
	bool parallel_calls, show_reasoning, add_generation, continue_final;
	const char *reasoning_effort;
	const json_t *enable_thinking;
	int64_t thinking_budget; /* tokens; -1: not given */
	const char *traceparent, *tracestate;
	const char *user, *cache_salt, *model;
	const char *key;   /* idempotency key */
	char ignored[512]; /* ignored fields, "a, b" */
};

/* The value of a member of struct params in f->params: FIELD_PARAM(f, top_p). */
#define FIELD_PARAM(f, member) ((f)->params[params_row_at(offsetof(struct params, member)) - params_rows])

/* Return the parameters that generation_config.json sets, by the names of params.  The caller owns the
 * object. */
json_t *request_fields_model(const struct model_config *c);
/* Set the defaults: generation_config.json's, or vLLM's for the rest. */
void request_fields_init(struct request_fields *f, const struct model_config *config);

/* Read every field of the request into *f.  strict: unknown fields are refused; otherwise they are named in
 * f->ignored, as are known fields without effect.  -EINVAL with *p filled. */
int request_fields_read(const json_t *request, enum api_dialect dialect, bool strict,
			struct request_fields *f, struct api_problem *p);

/* Return the documented fields of API_CHAT or API_COMPLETIONS. */
const struct field_table *request_fields_table(enum api_dialect dialect);

/* The fields of structured output, for the tables of other APIs' requests. */
extern struct field_table request_constraint_fields;
/* Copy the client's fields of structured output to out, except names for which the API has a row of its own
 * in `own`. */
void request_constraint_fields_copy(const json_t *client, const struct field_table *own, json_t *out);

/* Append to rows the parameters of an API that has its own names for them; name_at is the offset of that name
 * in struct params_row.  Returns the number of rows.  rows has room for PARAMS_ROWS_MAX. */
size_t request_fields_params(size_t name_at, struct field_row *rows);

/* Add name to the ignored fields. */
void request_fields_ignore(struct request_fields *f, const char *name);

/* Check a beam search, after all fields were read.  map: the parameters' fields.  A beam search refuses
 * fields that it cannot honour, and ignores generation_config.json's sampling.  A search of width 1 becomes
 * greedy decoding. */
int request_fields_check_beams(const json_t *map, struct request_fields *f, struct api_problem *p);

#endif
