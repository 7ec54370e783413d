#include "controller/chat/tools_format.h"

#include <errno.h>
#include <string.h>

/* DeepSeek's markers: their bars and blanks are not ASCII. */
#define DS_BAR       "\xef\xbd\x9c"
#define DS_GAP       "\xe2\x96\x81"
#define DS(a, b, c)  "<" DS_BAR a DS_GAP b DS_GAP c DS_BAR ">"
#define DS_CALLS     DS("tool", "calls", "begin")
#define DS_CALLS_END DS("tool", "calls", "end")
#define DS_CALL      DS("tool", "call", "begin")
#define DS_CALL_END  DS("tool", "call", "end")
#define DS_SEP       "<" DS_BAR "tool" DS_GAP "sep" DS_BAR ">"
#define DSML         DS_BAR "DSML" DS_BAR

static const struct tools_format formats[TOOLS_N_STYLES] = {
	[TOOLS_HERMES] = {.name = "hermes",
			  .words = {"<tool_call>"},
			  .unless = "<tool_calls>", /* Apriel */
			  .marks = {{"<tool_call>", 0, false}},
			  .steps = {{TOOLS_OP_OBJECT, NULL, 0}},
			  .then = {{"</tool_call>", -1, false}},
			  .spellings = {{.call = "<tool_call>\n{\"name\": \"",
					 .args = "\", \"arguments\": ",
					 .close = "}\n</tool_call>",
					 .between = "\n"}},
			  .before = "<tool_call>\n{\"name\": \"",
			  .after = "\", \"arguments\":"},
	[TOOLS_LLAMA3] = {.name = "llama3",
			  .words = {"<|python_tag|>"},
			  .unless = "<function=", /* Functionary */
			  .marks = {{"{", 0, true}},
			  .tag = "<|python_tag|>",
			  .at_start = true,
			  .steps = {{TOOLS_OP_OBJECT, NULL, 0}},
			  .then = {{";", -1, false}, {"{", 0, true}},
			  .spellings = {{.call = "{\"name\": \"",
					 .args = "\", \"parameters\": ",
					 .close = "}",
					 .between = "; "}},
			  .before = "{\"name\": \"",
			  .after = "\", \"parameters\":"},
	[TOOLS_PYTHONIC] = {.name = "pythonic",
			    .words = {"<|python_start|>"},
			    .marks = {{"[", 0, false}},
			    .tag = "<|python_start|>",
			    .at_start = true,
			    .steps = {{TOOLS_OP_NAME, NULL, 0},
				      {TOOLS_OP_LITERAL, "(", 0},
				      {TOOLS_OP_LITERALS, NULL, 0}},
			    .then = {{",", 0, false}, {"]", -1, false}, {"<|python_end|>", -1, false}},
			    .literals = {'=', ')', NULL},
			    .spellings =
				    {{.open = "[", .args = "(", .close = ")", .between = ", ", .end = "]"}},
			    .before = "[",
			    .after = "("},
	[TOOLS_LFM2] = {.name = "lfm2",
			.words = {"<|tool_call_start|>"},
			.marks = {{"<|tool_call_start|>", 0, false}},
			.steps = {{TOOLS_OP_LITERAL, "[", 0},
				  {TOOLS_OP_NAME, NULL, 0},
				  {TOOLS_OP_LITERAL, "(", 0},
				  {TOOLS_OP_LITERALS, NULL, 0}},
			.then = {{",", 1, false}, {"]", -1, false}, {"<|tool_call_end|>", -1, false}},
			.literals = {'=', ')', NULL},
			.spellings = {{.open = "<|tool_call_start|>[",
				       .args = "(",
				       .close = ")",
				       .between = ", ",
				       .end = "]<|tool_call_end|>"}},
			.before = "<|tool_call_start|>[",
			.after = "("},
	[TOOLS_QWEN3_CODER] = {.name = "qwen3_coder",
			       .words = {"<function=", "<parameter="},
			       .marks = {{"<tool_call>", 0, false}, {"<function=", 1, false}},
			       .steps = {{TOOLS_OP_LITERAL, "<function=", 0},
					 {TOOLS_OP_NAME, NULL, 0},
					 {TOOLS_OP_LITERAL, ">", 0},
					 {TOOLS_OP_PAIRS, NULL, 0}},
			       .then = {{"</function>", -1, false}, {"</tool_call>", -1, false}},
			       .tags = {"<parameter=", ">", "", NULL, "</parameter>"},
			       .spellings = {{.call = "<tool_call>\n<function=",
					      .args = ">\n",
					      .close = "</function>\n</tool_call>",
					      .between = "\n",
					      .line = "\n",
					      .pair_end = "\n"}},
			       .before = "<tool_call>\n<function=",
			       .after = ">\n"},
	[TOOLS_SEED_OSS] = {.name = "seed_oss",
			    .words = {"<seed:tool_call>"},
			    .marks = {{"<seed:tool_call>", 0, false}},
			    .steps = {{TOOLS_OP_LITERAL, "<function=", 0},
				      {TOOLS_OP_NAME, NULL, 0},
				      {TOOLS_OP_LITERAL, ">", 0},
				      {TOOLS_OP_PAIRS, NULL, 0}},
			    .then = {{"</function>", -1, false},
				     {"</seed:tool_call>", -1, false},
				     {"<function=", 1, false}},
			    .tags = {"<parameter=", ">", "", NULL, "</parameter>"},
			    .spellings = {{.call = "<seed:tool_call>\n<function=",
					   .args = ">\n",
					   .close = "</function>\n</seed:tool_call>",
					   .between = "\n",
					   .pair_end = "\n"}},
			    .before = "<seed:tool_call>\n<function=",
			    .after = ">\n"},
	[TOOLS_MINIMAX_M2] = {.name = "minimax_m2",
			      .words = {"<minimax:tool_call>"},
			      .marks = {{"<minimax:tool_call>", 0, false}},
			      .steps = {{TOOLS_OP_LITERAL, "<invoke name=\"", 0},
					{TOOLS_OP_NAME, NULL, 0},
					{TOOLS_OP_LITERAL, "\">", 0},
					{TOOLS_OP_PAIRS, NULL, 0}},
			      .then = {{"</invoke>", -1, false},
				       {"</minimax:tool_call>", -1, false},
				       {"<invoke name=\"", 1, false}},
			      .tags = {"<parameter name=\"", "\">", "", NULL, "</parameter>"},
			      .spellings = {{.open = "<minimax:tool_call>\n",
					     .call = "<invoke name=\"",
					     .args = "\">\n",
					     .close = "</invoke>\n",
					     .end = "</minimax:tool_call>",
					     .pair_end = "\n"}},
			      .before = "<minimax:tool_call>\n<invoke name=\"",
			      .after = "\">\n"},
	[TOOLS_GLM45] = {.name = "glm45",
			 .words = {"<arg_key>", "<tool_call>"},
			 .marks = {{"<tool_call>", 0, false}},
			 .steps = {{TOOLS_OP_NAME, NULL, 0}, {TOOLS_OP_PAIRS, NULL, 0}},
			 .then = {{"</tool_call>", -1, false}},
			 .tags = {"<arg_key>", "</arg_key>", "<arg_value>", NULL, "</arg_value>"},
			 .spellings = {{.call = "<tool_call>",
					.args = "\n",
					.close = "</tool_call>",
					.between = "\n",
					.gap = "\n",
					.pair_end = "\n"}},
			 .before = "<tool_call>",
			 .after = "\n"},
	[TOOLS_DEEPSEEK_V3] = {.name = "deepseek_v3", /* also R1 */
			       .words = {DS_CALL, "```json"},
			       .marks = {{DS_CALLS, 0, false}, {DS_CALL, 1, false}},
			       .steps = {{TOOLS_OP_LITERAL, DS_CALL, 0},
					 {TOOLS_OP_LITERAL, "function", 0},
					 {TOOLS_OP_LITERAL, DS_SEP, 0},
					 {TOOLS_OP_NAME, NULL, 0},
					 {TOOLS_OP_LITERAL, "```json", 0},
					 {TOOLS_OP_JSON, NULL, 0}},
			       .then = {{"```", -1, false},
					{DS_CALL_END, -1, false},
					{DS_CALLS_END, -1, false},
					{DS_CALL, 1, false}},
			       .spellings = {{.open = DS_CALLS,
					      .call = DS_CALL "function" DS_SEP,
					      .args = "\n```json\n",
					      .close = "\n```" DS_CALL_END,
					      .between = "\n",
					      .end = DS_CALLS_END}},
			       .before = DS_CALLS DS_CALL "function" DS_SEP,
			       .after = "\n```json\n"},
	[TOOLS_DEEPSEEK_V31] = {.name = "deepseek_v31",
				.words = {DS_CALL},
				.marks = {{DS_CALLS, 0, false}, {DS_CALL, 1, false}},
				.steps = {{TOOLS_OP_LITERAL, DS_CALL, 0},
					  {TOOLS_OP_NAME, NULL, 0},
					  {TOOLS_OP_LITERAL, DS_SEP, 0},
					  {TOOLS_OP_JSON, NULL, 0}},
				.then = {{DS_CALL_END, -1, false},
					 {DS_CALLS_END, -1, false},
					 {DS_CALL, 1, false}},
				.spellings = {{.open = DS_CALLS,
					       .call = DS_CALL,
					       .args = DS_SEP,
					       .close = DS_CALL_END,
					       .end = DS_CALLS_END}},
				.before = DS_CALLS DS_CALL,
				.after = DS_SEP},
	[TOOLS_DEEPSEEK_V32] = {.name = "deepseek_v32",
				.words = {DSML},
				.marks = {{"<" DSML "function_calls>", 0, false},
					  {"<" DSML "tool_calls>", 0, false}},
				.steps = {{TOOLS_OP_LITERAL, "<" DSML "invoke name=\"", 0},
					  {TOOLS_OP_NAME, NULL, 0},
					  {TOOLS_OP_LITERAL, "\">", 0},
					  {TOOLS_OP_PAIRS, NULL, 0}},
				.then = {{"</" DSML "invoke>", -1, false},
					 {"</" DSML "function_calls>", -1, false},
					 {"</" DSML "tool_calls>", -1, false},
					 {"<" DSML "invoke name=\"", 1, false}},
				.tags = {"<" DSML "parameter name=\"", "\"", "string=\"false\">",
					 "string=\"true\">", "</" DSML "parameter>"},
				.spellings = {{.open = "<" DSML "function_calls>\n",
					       .call = "<" DSML "invoke name=\"",
					       .args = "\">\n",
					       .close = "</" DSML "invoke>\n",
					       .end = "</" DSML "function_calls>",
					       .gap = " ",
					       .pair_end = "\n"}},
				.before = "<" DSML "function_calls>\n<" DSML "invoke name=\"",
				.after = "\">\n"},
	[TOOLS_KIMI_K2] = {.name = "kimi_k2",
			   .words = {"<|tool_call_begin|>"},
			   .marks = {{"<|tool_calls_section_begin|>", 0, false},
				     {"<|tool_call_begin|>", 1, false}},
			   .steps = {{TOOLS_OP_LITERAL, "<|tool_call_begin|>", 0},
				     {TOOLS_OP_NAME, "functions.", 0},
				     {TOOLS_OP_ID, ":", 0},
				     {TOOLS_OP_LITERAL, "<|tool_call_argument_begin|>", 0},
				     {TOOLS_OP_JSON, NULL, 0}},
			   .then = {{"<|tool_call_end|>", -1, false},
				    {"<|tool_calls_section_end|>", -1, false},
				    {"<|tool_call_begin|>", 1, false}},
			   .spellings = {{.open = "<|tool_calls_section_begin|>",
					  .call = "<|tool_call_begin|>functions.",
					  .args = ":\1<|tool_call_argument_begin|>",
					  .close = "<|tool_call_end|>",
					  .end = "<|tool_calls_section_end|>"}},
			   .before = "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
			   .after = ":0<|tool_call_argument_begin|>"},
	[TOOLS_MISTRAL] = {.name = "mistral",
			   .words = {"[TOOL_CALLS]"},
			   .marks = {{"[TOOL_CALLS]", 0, false}},
			   .steps = {{TOOLS_OP_IF, "[", 6}, /* before version 11: a list of objects */
				     {TOOLS_OP_NAME, NULL, 0},
				     {TOOLS_OP_ID, "[CALL_ID]", 0},
				     {TOOLS_OP_MAYBE, "[ARGS]", 0},
				     {TOOLS_OP_JSON, NULL, 0},
				     {TOOLS_OP_END, NULL, 0},
				     {TOOLS_OP_OBJECT, NULL, 0}},
			   .then = {{",", 6, false}, {"]", -1, false}},
			   .spellings = {{.needs = "[ARGS]", .call = "[TOOL_CALLS]", .args = "[ARGS]"},
					 {.open = "[TOOL_CALLS][",
					  .call = "{\"name\": \"",
					  .args = "\", \"arguments\": ",
					  .close = "}",
					  .between = ", ",
					  .end = "]"}},
			   .before = "[TOOL_CALLS]",
			   .after = "[ARGS]"},
	[TOOLS_GRANITE] = {.name = "granite",
			   .words = {"<|tool_call|>"},
			   .marks = {{"<|tool_call|>", 0, false}, {"<tool_call>", 0, false}},
			   .steps = {{TOOLS_OP_LITERAL, "[", 0}, {TOOLS_OP_OBJECT, NULL, 0}},
			   .then = {{",", 1, false}, {"]", -1, false}},
			   .spellings = {{.open = "<|tool_call|>[",
					  .call = "{\"name\": \"",
					  .args = "\", \"arguments\": ",
					  .close = "}",
					  .between = ", ",
					  .end = "]"}},
			   .before = "<|tool_call|>[{\"name\": \"",
			   .after = "\", \"arguments\":"},
	[TOOLS_PHI4] = {.name = "phi4",
			.words = {"<|tool|>", "<|/tool|>"},
			.marks = {{"<|tool_call|>", 0, false}, {"functools", 0, false}},
			.steps = {{TOOLS_OP_LITERAL, "[", 0}, {TOOLS_OP_OBJECT, NULL, 0}},
			.then = {{",", 1, false}, {"]", -1, false}, {"<|/tool_call|>", -1, false}},
			.spellings = {{.open = "<|tool_call|>[",
				       .call = "{\"name\": \"",
				       .args = "\", \"arguments\": ",
				       .close = "}",
				       .between = ", ",
				       .end = "]<|/tool_call|>"}},
			.before = "<|tool_call|>[{\"name\": \"",
			.after = "\", \"arguments\":"},
	[TOOLS_COHERE] = {.name = "cohere",
			  .words = {"<|START_ACTION|>"},
			  .marks = {{"<|START_ACTION|>", 0, false}},
			  .steps = {{TOOLS_OP_LITERAL, "[", 0}, {TOOLS_OP_OBJECT, NULL, 0}},
			  .then = {{",", 1, false}, {"]", -1, false}, {"<|END_ACTION|>", -1, false}},
			  .spellings = {{.open = "<|START_ACTION|>[",
					 .call = "{\"tool_call_id\": \"\1\", \"tool_name\": \"",
					 .args = "\", \"parameters\": ",
					 .close = "}",
					 .between = ", ",
					 .end = "]<|END_ACTION|>"}},
			  .before = "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"",
			  .after = "\", \"parameters\":"},
	[TOOLS_GEMMA4] = {.name = "gemma4",
			  .words = {"<|tool_call>"},
			  .marks = {{"<|tool_call>", 0, false}},
			  .steps = {{TOOLS_OP_LITERAL, "call:", 0},
				    {TOOLS_OP_NAME, NULL, 0},
				    {TOOLS_OP_LITERAL, "{", 0},
				    {TOOLS_OP_LITERALS, NULL, 0}},
			  .then = {{"<tool_call|>", -1, false}},
			  .literals = {':', '}', "<|\"|>"},
			  .spellings = {{.call = "<|tool_call>call:", .args = "{", .close = "}<tool_call|>"}},
			  .before = "<|tool_call>call:",
			  .after = "{"},
	[TOOLS_APERTUS] = {.name = "apertus",
			   .words = {"<|tools_prefix|>"},
			   .marks = {{"<|tools_prefix|>", 0, false}},
			   .steps = {{TOOLS_OP_LITERAL, "[", 0},
				     {TOOLS_OP_LITERAL, "{\"", 0},
				     {TOOLS_OP_NAME, NULL, 0},
				     {TOOLS_OP_LITERAL, "\":", 0},
				     {TOOLS_OP_JSON, NULL, 0},
				     {TOOLS_OP_LITERAL, "}", 0}},
			   .then = {{",", 1, false}, {"]", -1, false}, {"<|tools_suffix|>", -1, false}},
			   .spellings = {{.open = "<|tools_prefix|>[",
					  .call = "{\"",
					  .args = "\": ",
					  .close = "}",
					  .between = ", ",
					  .end = "]<|tools_suffix|>"}},
			   .before = "<|tools_prefix|>[{\"",
			   .after = "\":"},
	[TOOLS_HARMONY] = {.name = "harmony",
			   .words = {"<|channel|>", "<|call|>"},
			   .marks = {{"<|channel|>commentary to=", 0, false}},
			   .steps = {{TOOLS_OP_NAME, "functions.", 0},
				     {TOOLS_OP_MAYBE, "<|constrain|>", 0},
				     {TOOLS_OP_MAYBE, "json", 0},
				     {TOOLS_OP_LITERAL, "<|message|>", 0},
				     {TOOLS_OP_JSON, NULL, 0}},
			   .then = {{"<|call|>", -1, false}},
			   .spellings = {{.call = "<|channel|>commentary to=functions.",
					  .args = " <|constrain|>json<|message|>",
					  .alone = true}},
			   .before = "<|channel|>commentary to=functions.",
			   .after = " <|constrain|>json<|message|>",
			   .channels = &channels_harmony},
};

/* The order of recognition: words of later formats also occur in templates of earlier ones. */
static const enum tools_style order[] = {
	TOOLS_DEEPSEEK_V32, TOOLS_DEEPSEEK_V3, TOOLS_DEEPSEEK_V31, TOOLS_KIMI_K2, TOOLS_SEED_OSS,
	TOOLS_MINIMAX_M2,   TOOLS_QWEN3_CODER, TOOLS_GLM45,        TOOLS_GEMMA4,  TOOLS_APERTUS,
	TOOLS_LFM2,         TOOLS_PHI4,        TOOLS_GRANITE,      TOOLS_COHERE,  TOOLS_MISTRAL,
	TOOLS_HERMES,       TOOLS_PYTHONIC,    TOOLS_LLAMA3,       TOOLS_HARMONY,
};

const struct tools_format *tools_format(enum tools_style style)
{
	return style == TOOLS_NONE ? NULL : &formats[style];
}

int tools_style_parse(const char *name, enum tools_style *out)
{
	if (!strcmp(name, "none")) {
		*out = TOOLS_NONE;
		return 0;
	}
	for (int i = 0; i < TOOLS_N_STYLES; i++)
		if (formats[i].name && !strcmp(formats[i].name, name)) {
			*out = (enum tools_style)i;
			return 0;
		}
	return -EINVAL;
}

const char *tools_style_names(void)
{
	return "none, hermes, llama3, pythonic, lfm2, qwen3_coder, seed_oss, minimax_m2, glm45, deepseek_v3, "
	       "deepseek_v31, deepseek_v32, kimi_k2, mistral, granite, phi4, cohere, gemma4, apertus or "
	       "harmony";
}

enum tools_style tools_style_of(bool (*mentions)(const void *user, const char *word),
				bool (*fits)(const void *user, enum tools_style style), const void *user)
{
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		const char *unless = formats[order[i]].unless;
		bool all = !unless || !mentions(user, unless);
		for (int w = 0; w < TOOLS_WORDS_MAX && formats[order[i]].words[w]; w++)
			all = all && mentions(user, formats[order[i]].words[w]);
		if (all && (!fits || fits(user, order[i])))
			return order[i];
	}
	/* LFM2's template shows the tools but no calls. */
	if (mentions(user, "<|tool_list_start|>") && (!fits || fits(user, TOOLS_LFM2)))
		return TOOLS_LFM2;
	/* Llama 3's template for models that call only custom tools. */
	if (mentions(user, "<|start_header_id|>") && mentions(user, "\"parameters\": ") &&
	    (!fits || fits(user, TOOLS_LLAMA3)))
		return TOOLS_LLAMA3;
	return TOOLS_NONE;
}

enum tools_style tools_style_first(bool (*fits)(const void *user, enum tools_style style), const void *user)
{
	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		if (fits(user, order[i]))
			return order[i];
	return TOOLS_NONE;
}
