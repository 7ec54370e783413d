/* chatreq.h - what a chat request says beside its sampling: messages, tools, variables of the
 * template, to a prompt; and what is to be looked for in its outputs. */
#ifndef QUERN_CONTROLLER_CHATREQ_H
#define QUERN_CONTROLLER_CHATREQ_H

#include "controller/said.h"
#include "controller/api.h"
#include "controller/toolreq.h"

#include <jansson.h>

struct chatreq {
	const json_t *messages, *documents; /* borrowed, as all of it */
	const json_t *kwargs;               /* chat_template_kwargs */
	const char *reasoning_effort;
	bool openai; /* the job socket takes {role, content} with strings only */
	bool add_generation, continue_final;
	struct toolreq tools;
};

/* Renders into *out (which the caller ends with chat_prompt_fini(), also after an error).  Variables
 * that the template does not know are named in ignored ("a, b"), or refused where svc->strict.
 * thought_open: the prompt ends within a thought.  -EINVAL with *p filled. */
int chatreq_render(const struct service *svc, uint32_t max_context, const struct chatreq *r,
		   struct chat_prompt *out, bool *thought_open, char *ignored, size_t ignored_n,
		   struct api_problem *p);

/* How outputs say calls and thoughts, into svc, whose chat and tokenizer are set.  tools: "auto" (from
 * the model's template), "none", "hermes", "llama3"; reasoning: "auto", "none", "qwen3",
 * "deepseek_r1" (an output begins within a thought).  -EINVAL for other words. */
int chatreq_styles(struct service *svc, const char *tools, const char *reasoning, char *why, size_t why_n);

#endif
