/* anthropic_members.h - tables of the members of the objects within an Anthropic request: messages and their
 * blocks, tools, tool_choice, thinking.  Members without effect are named ("tools.cache_control"), as are
 * unknown ones (refused with --strict).  Their values are read elsewhere.  Constant data. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MEMBERS_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MEMBERS_H

#include "controller/apis/translate.h"

extern const struct field_table anthropic_message_members, anthropic_text_members, anthropic_use_members,
	anthropic_result_members, anthropic_thought_members, anthropic_tool_members, anthropic_choice_members,
	anthropic_thinking_members, anthropic_format_members, anthropic_metadata_members;

#endif
