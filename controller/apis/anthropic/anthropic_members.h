/* anthropic_members.h - the members of the objects within a request of Anthropic's: of messages, their
 * blocks, tools, the choice of one, thinking.  Those without effect are named ("tools.cache_control"),
 * unknown ones too, or refused with --strict.  Their values are read elsewhere.  Constant data. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MEMBERS_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MEMBERS_H

#include "controller/apis/translate.h"

extern const struct field_table anthropic_message_members, anthropic_text_members, anthropic_use_members,
	anthropic_result_members, anthropic_thought_members, anthropic_tool_members, anthropic_choice_members,
	anthropic_thinking_members, anthropic_format_members, anthropic_metadata_members;

#endif
