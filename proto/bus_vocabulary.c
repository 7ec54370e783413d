/* bus_vocabulary.c - encoding of vocabularies.  Pure.
 *
 *   vocabulary  [checksum, lengths, kinds, bytes]
 *               lengths  a little-endian 16-bit word for each token
 *               kinds    a byte for each token
 *               bytes    of all tokens, concatenated */
#include "proto/bus.h"

#include "base/err.h"
#include "proto/bus_impl.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "columns travel little-endian");
_Static_assert((int)VOCABULARY_TOKEN_BYTES_MAX <= UINT16_MAX, "a length is 16 bits");

enum { FIELDS = 4 };

void bus_encode_vocabulary(const struct vocabulary *v, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, BUS_VOCABULARY);
	msgpack_pack_array(&pk, FIELDS);
	msgpack_pack_uint64(&pk, vocabulary_checksum(v));
	msgpack_pack_bin(&pk, (size_t)v->n * 2);
	for (uint32_t i = 0; i < v->n; i++) {
		uint16_t length = (uint16_t)(v->at[i + 1] - v->at[i]);
		msgpack_pack_bin_body(&pk, &length, sizeof length);
	}
	bus_pack_bin(&pk, v->kinds, v->n);
	bus_pack_bin(&pk, v->bytes, v->n ? v->at[v->n] : 0);
}

static void read_tokens(struct cursor *c, uint32_t n_vocab, struct vocabulary *v)
{
	uint32_t n, n_kinds, n_bytes;
	size_t most = n_vocab < VOCABULARY_TOKENS_MAX ? n_vocab : VOCABULARY_TOKENS_MAX;
	const char *lengths = cursor_bin(c, "lengths", 2, most, &n);
	const uint8_t *kinds = cursor_bin(c, "kinds", 1, most, &n_kinds);
	const char *bytes = cursor_bin(c, "bytes", 1, BUS_MESSAGE_MAX, &n_bytes);
	uint32_t at = 0;
	if (n != n_kinds)
		cursor_fail(c, "vocabulary: as many kinds as lengths are due");
	for (uint32_t i = 0; i < n && !c->bad; i++) {
		uint16_t length;
		memcpy(&length, lengths + 2 * (size_t)i, sizeof length);
		if (length > VOCABULARY_TOKEN_BYTES_MAX || kinds[i] >= N_VOCABULARY_KINDS)
			cursor_fail(c, "vocabulary: a token out of range");
		else if (length > n_bytes - at)
			cursor_fail(c, "vocabulary: bytes that are not there");
		else
			vocabulary_add(v, bytes + at, length, (enum vocabulary_kind)kinds[i]);
		at += c->bad ? 0 : length;
	}
	if (at != n_bytes)
		cursor_fail(c, "vocabulary: bytes of no token");
}

int bus_decode_vocabulary(const void *bytes, size_t n, uint32_t n_vocab, struct vocabulary *out,
			  struct why *why)
{
	struct cursor c;
	vocabulary_clear(out);
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	if (type != BUS_VOCABULARY)
		return err_why(why, -EBADMSG, "not a vocabulary");
	if (cursor_array(&c, "vocabulary") != FIELDS)
		cursor_fail(&c, "vocabulary: the wrong number of fields");
	uint64_t sum = cursor_uint(&c, "checksum", UINT64_MAX);
	read_tokens(&c, n_vocab, out);
	int rc = bus_finish_read(&c, why);
	if (!rc && vocabulary_checksum(out) != sum)
		rc = err_why(
			why, -EBADMSG,
			"vocabulary: its checksum is not the one that was sent: it was damaged on the way");
	if (rc)
		vocabulary_clear(out);
	return rc;
}
