/* request_fields.h - the fields of a request: those of each dialect, their types and ranges.
 * A field that is wrong, unknown or not built yet is named in the error.  Lists and texts are only located
 * here; api.c turns them into parameters. */
#ifndef QUERN_CONTROLLER_REQUEST_REQUEST_FIELDS_H
#define QUERN_CONTROLLER_REQUEST_REQUEST_FIELDS_H

#include "controller/request/api.h"
#include "controller/request/field_table.h"

/* The values of a request, or their defaults.  Texts and trees are borrowed from it; NULL: not given. */
enum { SPACE_BYTES_MAX = 1000 }; /* of a pattern of whitespace */

struct request_fields {
	double temperature, top_p, min_p, presence, frequency, repetition;
	double typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
	double mirostat_tau, mirostat_eta;
	int64_t dry_allowed, dry_last_n, mirostat;
	int64_t top_k, n;
	int64_t max_tokens;            /* 0: not given */
	int64_t max_completion_tokens; /* chat's newer name; overrides max_tokens */
	int64_t min_tokens;
	int64_t best_of;    /* -1: not given */
	int64_t beam_width; /* -1: not given; a search has it set after request_fields_read() */
	double length_penalty;
	enum params_early early;
	bool beams;                                      /* use_beam_search */
	int64_t logprobs, prompt_logprobs, top_logprobs; /* -1: none */
	int64_t seed;
	int64_t deadline_ms; /* 0: none */
	int64_t priority;
	bool has_seed, chat_logprobs, ignore_eos, include_stop, skip_special, stream, keep, durable, echo;
	bool add_special, add_special_given;
	bool no_output; /* max_tokens 0, with echo: the reply has the prompt only */
	bool tokens_as_ids, return_token_ids, return_timing, include_usage, continuous_usage;
	bool has_stream_options;
	const json_t *stop, *stop_token_ids, *logit_bias, *allowed, *bad_words, *breakers;
	const json_t *prompt, *tokens, *messages;
	const json_t *tools, *tool_choice, *documents, *template_kwargs;
	/* What outputs must look like (form_request.h); gbnf: grammar. */
	const json_t *response_format, *structured, *guided_json, *guided_regex, *guided_choice,
		*guided_grammar, *gbnf, *json_schema;
	const char *guided_space; /* guided_whitespace_pattern; NULL: none */
	bool parallel_calls, show_reasoning, add_generation, continue_final;
	const char *reasoning_effort;
	const json_t *enable_thinking;
	int64_t thinking_budget; /* tokens; -1: not given */
	const char *traceparent, *tracestate;
	const char *user, *cache_salt, *model;
	const char *key;   /* idempotency key */
	char ignored[512]; /* fields without effect, "a, b" */
};

/* What generation_config.json sets, by the names of params: an object of the caller's. */
json_t *request_fields_model(const struct model_config *c);
/* The defaults: generation_config.json's where it has some, else vLLM's. */
void request_fields_init(struct request_fields *f, const struct model_config *config);

/* Reads every field of the request into *f.  strict: unknown fields are refused; else they
 * are named in f->ignored, as are known ones without effect.  -EINVAL with *p filled. */
int request_fields_read(const json_t *request, enum api_dialect dialect, bool strict,
			struct request_fields *f, struct api_problem *p);

/* The fields of API_CHAT or API_COMPLETIONS, for people. */
const struct field_table *request_fields_table(enum api_dialect dialect);

/* Names a field as one without effect. */
void request_fields_ignore(struct request_fields *f, const char *name);

/* After all fields were read; map: those of the parameters.  A beam search refuses fields that it cannot
 * honour, and ignores generation_config.json's sampling.  A search of width 1 becomes greedy decoding. */
int request_fields_check_beams(const json_t *map, struct request_fields *f, struct api_problem *p);

#endif
