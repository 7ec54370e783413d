/* The names of tokenizer.ggml.pre and their split patterns, which are those of the models' own
 * tokenizer.json. Each pattern splits the words left by the pattern before it. */
#include "controller/tokenizer/piece_table.h"

#include "base/err.h"
#include "controller/tokenizer/splitter.h"

#include <stdio.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* numbers: the pattern for numbers */
#define LLAMA3(numbers)                                                                                      \
	CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* end: the pattern after a word */
#define CASED(end, numbers)                                                                                  \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end   \
	"|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITE
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3(rest)                                                                                      \
	ASCII_PUNCTUATION "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" rest
#define HAN      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define SENTENCE " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
#define HAN_WIDE "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

/* Letters with case, as DeepSeek LLM lists them. */
#define DEEPSEEK_LETTERS                                                                                     \
	"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"               \
	"\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"           \
	"\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"              \
	"\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"               \
	"\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"                \
	"\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"               \
	"\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"                \
	"\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"           \
	"\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"                \
	"\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"              \
	"\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"                 \
	"\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
#define DEEPSEEK_PUNCTUATION "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"

enum pre_flags {
	PRE_NFC = 1,
	PRE_IGNORE_MERGES = 2,
	PRE_BOS = 4,
};

static const struct pre {
	const char *names; /* each with a space on both sides */
	unsigned flags;
	const char *splits[TABLE_SPLITS_MAX]; /* NULL: GPT-2's pattern */
	int n;
} pres[] = {
	{" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
	 PRE_IGNORE_MERGES | PRE_BOS,
	 {LLAMA3("\\p{N}{1,3}")},
	 1},
	{" dbrx smaug-bpe glm4 chatglm-bpe ", 0, {LLAMA3("\\p{N}{1,3}")}, 1},
	{" qwen2 deepseek-r1-qwen ", PRE_NFC, {LLAMA3("\\p{N}")}, 1},
	{" stablelm2 hunyuan solar-open megrez kormo grok-2 ", 0, {LLAMA3("\\p{N}")}, 1},
	{" qwen35 ",
	 PRE_NFC,
	 {CONTRACTIONS
	  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITE},
	 1},
	{" minicpm5 ", PRE_IGNORE_MERGES, {"\\p{N}{1,3}", LLAMA3("\\p{N}+")}, 2},
	{" gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling ", 0, {NULL}, 1},
	{" mpt olmo ", PRE_NFC, {NULL}, 1},
	{" starcoder refact smollm codeshell exaone minerva-7b mellum2 ", 0, {"\\p{N}", NULL}, 2},
	{" command-r ", PRE_NFC, {"\\p{N}", NULL}, 2},
	{" falcon ", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", NULL, "[0-9][0-9][0-9]"}, 3},
	{" default ", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", NULL, "\\p{N}+", "[0-9][0-9][0-9]"}, 4},
	{" deepseek-llm ",
	 0,
	 {"[\\r\\n]", "\\s?[" DEEPSEEK_LETTERS "]+", "\\s?[" DEEPSEEK_PUNCTUATION "]+", "\\s+$", HAN_WIDE,
	  "\\p{N}"},
	 6},
	{" deepseek-coder ", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_WIDE, "\\p{N}"}, 5},
	{" deepseek-v3 hunyuan-dense joyai-llm ", 0, {"\\p{N}{1,3}", HAN, DEEPSEEK3("[\\r\\n]*|" WHITE)}, 3},
	{" tekken ", PRE_IGNORE_MERGES | PRE_BOS, {CASED("", "\\p{N}")}, 1},
	{" gpt-4o llama4 kanana2 minimax-m2 ", 0, {CASED(CONTRACTIONS "?", "\\p{N}{1,3}")}, 1},
	{" bloom poro-chat gpt3-finnish ", 0, {SENTENCE}, 1},
	{" viking ", 0, {SENTENCE, "\\p{N}"}, 2},
	{" seed-coder ",
	 0,
	 {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" WHITE},
	 1},
	{" bailingmoe bailingmoe2 llada-moe ",
	 0,
	 {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
	  "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
	  "\\s+(?!\\S)|\\s+"},
	 1},
};

static bool listed(const char *names, const char *name, size_t n)
{
	const char *p = names;
	while ((p = memmem(p, strlen(p), name, n)) != NULL) {
		if (p[-1] == ' ' && p[n] == ' ')
			return true;
		p++;
	}
	return false;
}

int piece_table_set_pre(struct piece_table *pt, const char *name, size_t n, struct why *why)
{
	const struct pre *pre = NULL;
	for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]) && n && !memchr(name, ' ', n); i++)
		if (listed(pres[i].names, name, n))
			pre = &pres[i];
	if (!pre)
		return err_why(
			why, -ENOTSUP,
			"tokenizer.ggml.pre \"%.*s\" is not known: how it splits text is not in the file; "
			"put the model's tokenizer.json next to it",
			(int)(n < 60 ? n : 60), name);
	pt->nfc = pre->flags & PRE_NFC;
	pt->ignore_merges = pre->flags & PRE_IGNORE_MERGES;
	pt->add_bos = pre->flags & PRE_BOS;
	pt->n_splits = pre->n;
	for (int i = 0; i < pre->n; i++)
		pt->splits[i] = pre->splits[i] ? pre->splits[i] : splitter_gpt2_pattern;
	return 0;
}

/* Return true if the splits are those of pre; a NULL in the table is GPT-2's pattern. */
static bool same_splits(const struct pre *pre, const char *const *splits, int n)
{
	if (pre->n != n)
		return false;
	for (int i = 0; i < n; i++)
		if (strcmp(pre->splits[i] ? pre->splits[i] : splitter_gpt2_pattern, splits[i]) != 0)
			return false;
	return true;
}

bool piece_table_pre_name(const char *const *splits, int n, bool nfc, bool ignore_merges, char *out,
			  size_t out_n)
{
	for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
		const struct pre *pre = &pres[i];
		if (!(pre->flags & PRE_NFC) != !nfc || !(pre->flags & PRE_IGNORE_MERGES) != !ignore_merges ||
		    !same_splits(pre, splits, n))
			continue;
		snprintf(out, out_n, "%.*s", (int)strcspn(pre->names + 1, " "), pre->names + 1);
		return true;
	}
	return false;
}
