/* keys.h - the keys of a request: which there are in each dialect, their types and ranges.
 * A key that is wrong, unknown or not built yet is named.  Lists and texts are only found
 * here; api.c turns them into parameters. */
#ifndef QUERN_CONTROLLER_KEYS_H
#define QUERN_CONTROLLER_KEYS_H

#include "controller/api.h"

/* What a request says.  Texts and trees are borrowed from it; NULL where it says nothing. */
struct wants {
	double temperature, top_p, min_p, presence, frequency, repetition;
	int64_t top_k, n;
	int64_t max_tokens;            /* 0: not given */
	int64_t max_completion_tokens; /* chat's newer name; goes before max_tokens */
	int64_t min_tokens;
	int64_t best_of;                                 /* -1: not given */
	int64_t beam_width;                              /* -1: not given; a search has it set after keys_read() */
	double length_penalty;
	enum params_early early;
	bool beams; /* use_beam_search */
	int64_t logprobs, prompt_logprobs, top_logprobs; /* -1: none */
	int64_t seed;
	int64_t deadline_ms; /* 0: none */
	int64_t priority;
	bool has_seed, chat_logprobs, ignore_eos, include_stop, skip_special, stream, keep, durable, echo;
	bool add_special, add_special_given;
	bool no_output; /* max_tokens 0, with echo: only the prompt is wanted */
	bool tokens_as_ids, return_token_ids, return_timing, include_usage, continuous_usage;
	bool has_stream_options;
	const json_t *stop, *stop_token_ids, *logit_bias, *allowed, *bad_words;
	const json_t *prompt, *tokens, *messages;
	const json_t *tools, *tool_choice, *documents, *template_kwargs;
	bool parallel_calls, show_thoughts, add_generation, continue_final;
	const char *reasoning_effort;
	const char *user, *key, *cache_salt, *model;
	char ignored[512];
};

/* The defaults: generation_config.json's where it has some, else vLLM's. */
void wants_init(struct wants *w, const struct model_config *config);

/* Read every key of the request into *w.  strict: unknown keys are refused; else they
 * are named in w->ignored, as are known ones that change nothing here.  -EINVAL with *p filled. */
int keys_read(const json_t *request, enum api_dialect dialect, bool strict, struct wants *w,
	      struct api_problem *p);

/* After all keys were read, map: those of the parameters.  What a beam search cannot honour is
 * refused; what generation_config.json says of sampling does not count for one.  A search of width 1
 * becomes greedy decoding. */
int keys_check_beams(const json_t *map, struct wants *w, struct api_problem *p);

#endif
