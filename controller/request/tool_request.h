/* tool_request.h - the tools of a chat request: checks them and decides which may be called.  Pure. */
#ifndef QUERN_CONTROLLER_REQUEST_TOOL_REQUEST_H
#define QUERN_CONTROLLER_REQUEST_TOOL_REQUEST_H

#include "controller/chat/tools.h"
#include "controller/request/api_error.h"

#include <jansson.h>

enum { TOOLREQ_TOOLS_MAX = 1024, TOOLREQ_NAME_MAX = 64 };

struct tool_request {
	const json_t *tools; /* for the template; NULL: none.  Borrowed */
	bool may_call;       /* outputs are searched for calls */
	const char *forced;  /* the tool to call, borrowed; NULL: the model chooses */
	bool required;       /* at least one call */
	/* [{"function": {"name"}}, ...]: the only tools that may be called; NULL: all.  Borrowed */
	const json_t *allowed;
	bool strict; /* at least one tool is strict: its arguments follow its schema */
};

/* Read the tools.  tools: [{"type": "function", "function": {"name", "description"?, "parameters"?}}, ...] or
 * NULL.  choice: "none", "auto", "required", {"type": "function", "function": {"name"}}, {"type":
 * "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}} or NULL.  style: the
 * style of the model's calls.  -EINVAL with *p filled. */
int tool_request_read(const json_t *tools, const json_t *choice, enum tools_style style,
		      struct tool_request *out, struct api_problem *p);

/* Return the tools that may be called: a new reference. */
json_t *tool_request_callable(const struct tool_request *t);

#endif
