/* bus_model.c - encoding of a model's files for a worker: the list, and chunks.  Pure.
 *
 *   files  [why, model, first, [[name, size, SHA-256], ...]]
 *   chunk  [why, file, offset, checksum, bytes]
 *          checksum  XXH3, 64 bits, of the bytes, with the offset as seed
 *
 * why: "", or the reason of the controller's refusal; then the rest is empty. */
#include "proto/bus.h"

#include "base/alloc.h"
#include "base/err.h"
#include "proto/bus_impl.h"

#include <string.h>
#include <xxhash.h>

enum { FILES_FIELDS = 4, FILE_FIELDS = 3, CHUNK_FIELDS = 5, WHY = 512 };

static void pack_text(msgpack_packer *pk, const char *text)
{
	msgpack_pack_str(pk, strlen(text));
	msgpack_pack_str_body(pk, text, strlen(text));
}

void bus_encode_files(const struct manifest *m, const char *refusal, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, BUS_FILES);
	msgpack_pack_array(&pk, FILES_FIELDS);
	pack_text(&pk, refusal);
	pack_text(&pk, m->model);
	pack_text(&pk, m->first ? m->first : "");
	msgpack_pack_array(&pk, m->n);
	for (uint32_t i = 0; i < m->n; i++) {
		msgpack_pack_array(&pk, FILE_FIELDS);
		pack_text(&pk, m->files[i].name);
		msgpack_pack_uint64(&pk, (uint64_t)m->files[i].size);
		bus_pack_bin(&pk, m->files[i].digest, MANIFEST_DIGEST);
	}
}

static void read_file(struct cursor *c, struct manifest *m)
{
	struct why why;
	char name[MANIFEST_NAME_MAX + 1];
	uint32_t n;
	if (cursor_array(c, "file") != FILE_FIELDS)
		cursor_fail(c, "files: an entry has the wrong number of fields");
	cursor_str(c, "name", name, sizeof name);
	const uint64_t size = cursor_uint(c, "size", INT64_MAX);
	const uint8_t *digest = cursor_bin(c, "digest", 1, MANIFEST_DIGEST, &n);
	if (!c->bad && n != MANIFEST_DIGEST)
		cursor_fail(c, "files: a digest of the wrong size");
	if (!c->bad && manifest_add(m, name, (int64_t)size, digest, &why))
		cursor_fail(c, why.text);
}

/* Return -ENODATA with the peer's reason if it refused, else 0. */
static int refused(const char *text, struct why *why)
{
	return text[0] ? err_why(why, -ENODATA, "%s", text) : 0;
}

int bus_decode_files(const void *bytes, size_t n, struct manifest *out, struct why *why)
{
	struct cursor c;
	char text[WHY], first[MANIFEST_NAME_MAX + 1];
	*out = (struct manifest){0};
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	if (type != BUS_FILES)
		return err_why(why, -EBADMSG, "not a list of files");
	if (cursor_array(&c, "files") != FILES_FIELDS)
		cursor_fail(&c, "files: the wrong number of fields");
	cursor_str(&c, "why", text, sizeof text);
	cursor_str(&c, "model", out->model, sizeof out->model);
	cursor_str(&c, "first", first, sizeof first);
	const uint32_t n_files = cursor_array(&c, "list");
	for (uint32_t i = 0; i < n_files && !c.bad; i++)
		read_file(&c, out);
	if (first[0])
		out->first = xstrdup(first);
	int rc = bus_finish_read(&c, why);
	if (!rc)
		rc = refused(text, why);
	if (!rc)
		rc = manifest_check(out, why);
	if (rc)
		manifest_fini(out);
	return rc;
}

void bus_encode_chunk(const struct bus_chunk *k, const char *refusal, struct buf *out)
{
	msgpack_packer pk;
	bus_pack_head(&pk, out, BUS_CHUNK);
	msgpack_pack_array(&pk, CHUNK_FIELDS);
	pack_text(&pk, refusal);
	msgpack_pack_uint32(&pk, k->file);
	msgpack_pack_uint64(&pk, k->offset);
	msgpack_pack_uint64(&pk, XXH3_64bits_withSeed(k->n ? k->bytes : "", k->n, k->offset));
	bus_pack_bin(&pk, k->bytes, k->n);
}

int bus_decode_chunk(const void *bytes, size_t n, struct bus_chunk *out, struct why *why)
{
	struct cursor c;
	char text[WHY];
	*out = (struct bus_chunk){0};
	int type = bus_read_head(&c, bytes, n, why);
	if (type < 0)
		return type;
	if (type != BUS_CHUNK)
		return err_why(why, -EBADMSG, "not a chunk");
	if (cursor_array(&c, "chunk") != CHUNK_FIELDS)
		cursor_fail(&c, "chunk: the wrong number of fields");
	cursor_str(&c, "why", text, sizeof text);
	out->file = (uint32_t)cursor_uint(&c, "file", MANIFEST_FILES_MAX - 1);
	out->offset = cursor_uint(&c, "offset", MANIFEST_BYTES_MAX);
	const uint64_t sum = cursor_uint(&c, "checksum", UINT64_MAX);
	out->bytes = cursor_bin(&c, "bytes", 1, BUS_CHUNK_MAX, &out->n);
	int rc = bus_finish_read(&c, why);
	if (!rc)
		rc = refused(text, why);
	if (!rc && (!out->n || XXH3_64bits_withSeed(out->bytes, out->n, out->offset) != sum))
		rc = err_why(why, -EBADMSG,
			     "a chunk's checksum is not the one that was sent: it was damaged on the way");
	return rc;
}
