/* toolreq.h - the tools of a chat request: whether they are well-formed, and which may be called.
 * Pure. */
#ifndef QUERN_CONTROLLER_TOOLREQ_H
#define QUERN_CONTROLLER_TOOLREQ_H

#include "controller/api.h"
#include "controller/tools.h"

#include <jansson.h>

enum { TOOLREQ_TOOLS_MAX = 1024, TOOLREQ_NAME_MAX = 64 };

struct toolreq {
	const json_t *tools; /* for the template; NULL: none.  Borrowed */
	bool may_call;       /* calls in the output are looked for */
	const char *forced;  /* the tool that is to be called, borrowed; NULL: the model chooses */
};

/* tools: [{"type": "function", "function": {"name", "description"?, "parameters"?}}, ...] or NULL;
 * choice: "none", "auto", "required", {"type": "function", "function": {"name"}} or NULL.
 * style: what the model's calls look like.  -EINVAL with *p filled. */
int toolreq_read(const json_t *tools, const json_t *choice, enum tools_style style, struct toolreq *out,
		 struct api_problem *p);

#endif
