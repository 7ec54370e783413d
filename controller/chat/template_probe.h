/* template_probe.h - detects the features that a chat template supports, once at load, by rendering test
 * conversations that contain needles. Templates are untrusted: every rendering has the limits of jinja.h. */
#ifndef QUERN_CONTROLLER_CHAT_TEMPLATE_PROBE_H
#define QUERN_CONTROLLER_CHAT_TEMPLATE_PROBE_H

#include "controller/chat/chat_template.h"
#include "controller/chat/tools_passing.h"

#include <stdbool.h>

enum { TURN_END_MAX = 128 /* bytes */, TEMPLATE_SHORT_ID = 9 };

/* Roles that templates treat differently; unlisted roles count as the user's. */
enum template_role {
	ROLE_SYSTEM, /* also developer */
	ROLE_USER,
	ROLE_ASSISTANT,
	ROLE_TOOL, /* also function */
	TEMPLATE_ROLES
};
enum template_role template_role_of(const char *role);

struct template_facts {
	/* Shapes of a message's content that the template shows: a string, a list of parts. */
	struct {
		bool text, parts;
	} content[TEMPLATE_ROLES];
	/* How the template takes tools.  In the facts for requests without tools: TOOLS_PASS_NONE, or
	 * TOOLS_PASS_FUNCTIONS if the template needs its variables. */
	enum tools_passing tools;
	bool calls;          /* shows calls of earlier messages */
	bool calls_and_text; /* shows calls of a message that also has text */
	bool parallel;       /* shows several calls of one message */
	bool results;        /* shows results of calls, messages of the role tool */
	bool argument_text;  /* takes a call's arguments only as JSON text */
	bool short_ids;      /* refuses ids of calls other than TEMPLATE_SHORT_ID letters and digits */
	bool developer;      /* takes the role developer; false: replaced by system */
	/* Orders of messages that the template accepts and shows. */
	bool system;          /* a system message at the beginning */
	bool systems;         /* several system messages at the beginning */
	bool later_system;    /* a system message after other messages, shown in its place */
	bool users;           /* consecutive user messages */
	bool assistants;      /* consecutive assistant messages */
	bool user_after_tool; /* a user message after a tool's result */
	/* Text that the template writes after an assistant message's content, without leading blanks; cut
	 * off at TURN_END_MAX - 1 bytes. "": none. */
	char turn_end[TURN_END_MAX];
};

/* tools: probe requests with tools; some templates treat them differently. */
void template_probe(const struct chat_template *t, bool tools, struct template_facts *out);

#endif
