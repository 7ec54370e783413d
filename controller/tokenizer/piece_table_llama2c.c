/* llama2.c's tokenizer.bin: the length of the longest piece, then for each id its score, length and bytes,
 * all little-endian, up to the end of the file. It is exported from a SentencePiece BPE model with byte
 * fallback: ids 0 to 2 are <unk>, <s> and </s>, followed by the 256 bytes; U+2581 is written as a space. */
#include "controller/tokenizer/piece_table.h"

#include "base/err.h"

#include <string.h>

enum { N_SPECIAL = 3, N_BYTES = 256, PIECE_MAX = 1 << 16 };

static int fail(size_t at, const char *what, struct why *why)
{
	return err_why(why, -EINVAL, "byte %zu: %s", at, what);
}

static int fail_cut(size_t piece, size_t at, size_t end, struct why *why)
{
	return err_why(
		why, -EINVAL,
		"piece %zu, from byte %zu on, reaches beyond the file's end at byte %zu; was the download "
		"or copy interrupted?",
		piece, at, end);
}

static void add_spaced(struct piece_table *pt, const char *p, size_t n, float score, int type)
{
	size_t from = pt->text.len; /* the buffer has room for everything: it does not move */
	for (size_t i = 0; i < n; i++) {
		if (p[i] == ' ')
			buf_put(&pt->text, "\xe2\x96\x81", 3);
		else
			buf_putc(&pt->text, p[i]);
	}
	piece_table_add(pt, pt->text.p + from, pt->text.len - from, score, type);
}

static void add(struct piece_table *pt, const char *p, size_t n, float score)
{
	static const char *const special[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
	size_t id = pt->n;
	if (id < N_SPECIAL) /* in the files these have line breaks around them */
		piece_table_add(pt, special[id], strlen(special[id]), 0, id ? ROW_CONTROL : ROW_UNKNOWN);
	else
		add_spaced(pt, p, n, score, id < N_SPECIAL + N_BYTES ? ROW_BYTE : ROW_NORMAL);
}

int llama2c_file_read(const void *data, size_t n, struct piece_table *pt, struct why *why)
{
	const char *p = data;
	uint32_t longest, length, most = 0;
	float score;
	if (n < sizeof longest)
		return fail(n, "the file ends within its header", why);
	memcpy(&longest, p, sizeof longest);
	if (longest == 0 || longest > PIECE_MAX)
		return fail(0, "the length of the longest piece is not one of 1 to 65536", why);
	buf_reserve(&pt->text, 3 * n);
	for (size_t at = sizeof longest; at < n; at += length) {
		const size_t from = at;
		if (n - at < sizeof score + sizeof length)
			return fail_cut(pt->n, from, n, why);
		memcpy(&score, p + at, sizeof score);
		memcpy(&length, p + at + sizeof score, sizeof length);
		at += sizeof score + sizeof length;
		if (length > longest)
			return fail(at, "a piece is longer than the longest", why);
		if (length > n - at)
			return fail_cut(pt->n, from, n, why);
		most = length > most ? length : most;
		add(pt, p + at, length, score);
	}
	if (most != longest)
		return err_why(why, -EINVAL,
			       "no piece is as long as the longest: the file ends at byte %zu after %zu "
			       "pieces; was "
			       "the download or copy interrupted?",
			       n, pt->n);
	if (pt->n < N_SPECIAL + N_BYTES)
		return err_why(
			why, -EINVAL,
			"%zu pieces up to the file's end at byte %zu: the 256 bytes are not among them; "
			"was the download or copy interrupted?",
			pt->n, n);
	pt->model = TABLE_SCORE_BPE;
	pt->remove_extra_whitespaces = false;
	pt->byte_fallback = true;
	pt->unk = 0;
	pt->bos = 1;
	pt->eos = 2;
	pt->add_bos = true;
	return 0;
}
