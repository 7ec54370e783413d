#include "controller/apis/anthropic/anthropic_read.h"

#define READ(name)                                                                                           \
	{                                                                                                    \
		name, FIELD_ANY, FIELD_HONOURED, 0, 0, NULL, NULL                                            \
	}
#define IGNORED(name)                                                                                        \
	{                                                                                                    \
		name, FIELD_ANY, FIELD_IGNORED, 0, 0, NULL, NULL                                             \
	}
#define TABLE(name, rows) const struct field_table name = {rows, sizeof(rows) / sizeof *(rows), NULL}

static const struct field_row message[] = {READ("role"), READ("content")};
TABLE(anthropic_message_members, message);

static const struct field_row text[] = {READ("type"), READ("text"), IGNORED("cache_control"),
					IGNORED("citations")};
TABLE(anthropic_text_members, text);

static const struct field_row use[] = {READ("type"),  READ("id"),        READ("name"),
				       READ("input"), IGNORED("caller"), IGNORED("cache_control")};
TABLE(anthropic_use_members, use);

/* is_error: false has no effect; the reader of the block names true as ignored. */
static const struct field_row result[] = {READ("type"), READ("tool_use_id"), READ("content"),
					  READ("is_error"), IGNORED("cache_control")};
TABLE(anthropic_result_members, result);

/* The signature only marks reasoning as complete. */
static const struct field_row thinking_block[] = {READ("type"), READ("thinking"), READ("signature")};
TABLE(anthropic_thinking_block_members, thinking_block);

static const struct field_row tool[] = {
	READ("type"),
	READ("name"),
	READ("description"),
	READ("input_schema"),
	READ("strict"),
	IGNORED("cache_control"),
	IGNORED("defer_loading"),
	IGNORED("allowed_callers"),
	IGNORED("input_examples"),
	IGNORED("eager_input_streaming"),
};
TABLE(anthropic_tool_members, tool);

static const struct field_row choice[] = {READ("type"), READ("name"), READ("disable_parallel_tool_use")};
TABLE(anthropic_choice_members, choice);

static const struct field_row thinking[] = {READ("type"), READ("budget_tokens"), READ("display")};
TABLE(anthropic_thinking_members, thinking);

static const struct field_row format[] = {READ("type"), READ("schema")};
TABLE(anthropic_format_members, format);

static const struct field_row metadata[] = {READ("user_id")};
TABLE(anthropic_metadata_members, metadata);
