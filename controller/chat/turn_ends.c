#include "controller/chat/turn_ends.h"

#include "controller/chat/template_probe.h"

#include <string.h>

/* Names of tokens that no model writes within a turn. */
static const char *const names[] = {
	"<|im_end|>",
	"<|eot_id|>",
	"<|eom_id|>",
	"<|eot|>",
	"<end_of_turn>",
	"<turn|>",
	"<|end_of_turn|>",
	"<|END_OF_TURN_TOKEN|>",
	"<|end_of_text|>",
	"<|endoftext|>",
	"<|endofturn|>",
	"<|return|>",
	"<|call|>",
	"<end_of_utterance>",
	("<\xef\xbd\x9c"
	 "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
	"<EOT>",
	"<|EOT|>",
	"[e~[",
};

static void add(int64_t id, uint32_t *ids, int *n, int max)
{
	if (id < 0 || *n == max)
		return;
	for (int i = 0; i < *n; i++)
		if (ids[i] == (uint32_t)id)
			return;
	ids[(*n)++] = (uint32_t)id;
}

static bool is_frame(const struct reasoning_marks *marks, const char *text, size_t n)
{
	for (int i = 0; marks && i < REASONING_FRAMES_MAX && marks->frames[i]; i++)
		if (strlen(marks->frames[i]) == n && memcmp(marks->frames[i], text, n) == 0)
			return true;
	return false;
}

/* Return the longest token that is a prefix of text and that is special or, as in some files that store
 * markers as ordinary tokens, is enclosed in angle brackets; -1: none. *bytes: its length. */
static int64_t mark_at(const struct tokenizer *t, const char *text, size_t *bytes)
{
	char piece[TURN_END_MAX];
	for (size_t n = strlen(text); n > 1; n--) {
		memcpy(piece, text, n);
		piece[n] = 0;
		const int64_t id = tokenizer_id(t, piece);
		*bytes = n;
		if (id >= 0 && (tokenizer_is_special(t, (uint32_t)id) ||
				(n > 3 && piece[0] == '<' && piece[n - 1] == '>')))
			return id;
	}
	return -1;
}

void turn_ends_add(const struct chat *chat, const struct reasoning_marks *marks, const struct tokenizer *t,
		   uint32_t *ids, int *n, int max)
{
	const bool channels = tokenizer_id(t, channels_harmony.channel) >= 0;
	const char *at = chat && !channels ? chat_facts(chat, false)->turn_end : "";
	size_t bytes;
	int64_t id = mark_at(t, at, &bytes);
	while (id >= 0 && is_frame(marks, at, bytes)) {
		at += bytes;
		id = mark_at(t, at, &bytes);
	}
	/* If a template has no end of turn, the next message follows at once, in some templates with BOS. */
	if (id != tokenizer_bos(t))
		add(id, ids, n, max);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		add(tokenizer_id(t, names[i]), ids, n, max);
	if (!channels)
		add(tokenizer_id(t, "<|end|>"), ids, n, max);
}
