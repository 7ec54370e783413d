/* tools_passing.h - the ways in which chat templates receive a request's tools. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_PASSING_H
#define QUERN_CONTROLLER_CHAT_TOOLS_PASSING_H

#include <jansson.h>

enum tools_passing {
	TOOLS_PASS_NONE,     /* the template shows no tools */
	TOOLS_PASS_VARIABLE, /* variable tools: a list as in OpenAI's API */
	TOOLS_PASS_CUSTOM,   /* variable custom_tools: the same list (vLLM's template of Llama 4) */
	TOOLS_PASS_XML,      /* variable xml_tools: a list of functions (SmolLM3) */
	TOOLS_PASS_MEMBER,   /* member tools of the system message: JSON text of functions (Phi-4-mini) */
	/* Variables functions, JSON text of functions, and datetime, today's date.  The template needs both,
	 * without tools too (Firefunction). */
	TOOLS_PASS_FUNCTIONS,
	TOOLS_N_PASSINGS
};

/* Pass tools in addition to the variable `tools`: in messages, adding a system message if there is none, or
 * in variables, which may be NULL. Return the variables, owned by the caller, or NULL. */
json_t *tools_pass(enum tools_passing way, const json_t *tools, const json_t *variables, json_t *messages);

#endif
