#include "proto/mp.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

enum {
	OBJECTS_REQUEST = 2 * 1000 * 1000, /* a prompt of a million ids, with room to spare */
	OBJECTS_REPLY = 16 * 1000 * 1000,
	BYTES_REPLY = 256 << 20,
	TREE = 4,        /* tree memory per byte of a request */
	KEYS_MAX = 4096, /* per map; they are sorted to find duplicates */
	KEY_SHOWN = 40,
};

struct mp_limits mp_limits_request(size_t bytes)
{
	return (struct mp_limits){
		.bytes = bytes, .objects = OBJECTS_REQUEST, .depth = MP_DEPTH_MAX, .tree = TREE * bytes};
}

struct mp_limits mp_limits_reply(void)
{
	return (struct mp_limits){
		.bytes = BYTES_REPLY, .objects = OBJECTS_REPLY, .depth = MP_DEPTH_MAX, .tree = SIZE_MAX};
}

/* ---- the scan ---- */

enum kind { KIND_NIL, KIND_BOOL, KIND_INT, KIND_FLOAT, KIND_STR, KIND_ARRAY, KIND_MAP };

/* The header of a value. */
struct head {
	enum kind kind;
	uint32_t count;      /* elements of an array, pairs of a map, bytes of a string */
	const uint8_t *body; /* after the header; after the whole value if it is a scalar */
};

struct scan {
	const uint8_t *begin, *p, *end;
	size_t objects; /* remaining allowance */
	size_t tree;    /* remaining allowance, bytes of memory */
	struct why *why;
};

static uint32_t be(const uint8_t *p, unsigned n)
{
	uint32_t v = 0;
	for (unsigned i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static int truncated(const struct scan *s)
{
	return err_why(s->why, -EINVAL, "msgpack: the message ends within a value at byte %zu",
		       (size_t)(s->p - s->begin));
}

/* Read a header with a length or count of n bytes. */
static int head_sized(const struct scan *s, struct head *h, enum kind kind, unsigned n)
{
	if ((size_t)(s->end - s->p) < 1 + n)
		return truncated(s);
	*h = (struct head){.kind = kind, .count = be(s->p + 1, n), .body = s->p + 1 + n};
	return 0;
}

static int head_scalar(const struct scan *s, struct head *h, enum kind kind, unsigned n)
{
	if ((size_t)(s->end - s->p) < 1 + n)
		return truncated(s);
	*h = (struct head){.kind = kind, .body = s->p + 1 + n};
	return 0;
}

/* Read the header at s->p. */
static int scan_head(const struct scan *s, struct head *h)
{
	if (s->p == s->end)
		return truncated(s);
	uint8_t t = *s->p;
	size_t at = (size_t)(s->p - s->begin);
	if (t <= 0x7f || t >= 0xe0)
		return head_scalar(s, h, KIND_INT, 0);
	if (t <= 0x8f)
		*h = (struct head){KIND_MAP, t & 0x0f, s->p + 1};
	else if (t <= 0x9f)
		*h = (struct head){KIND_ARRAY, t & 0x0f, s->p + 1};
	else if (t <= 0xbf)
		*h = (struct head){KIND_STR, t & 0x1f, s->p + 1};
	else
		switch (t) {
		case 0xc0:
			return head_scalar(s, h, KIND_NIL, 0);
		case 0xc2:
		case 0xc3:
			return head_scalar(s, h, KIND_BOOL, 0);
		case 0xc4:
		case 0xc5:
		case 0xc6:
			return err_why(s->why, -EINVAL,
				       "msgpack: the binary type at byte %zu is not accepted: send a string",
				       at);
		case 0xca:
			return head_scalar(s, h, KIND_FLOAT, 4);
		case 0xcb:
			return head_scalar(s, h, KIND_FLOAT, 8);
		case 0xcc:
		case 0xd0:
			return head_scalar(s, h, KIND_INT, 1);
		case 0xcd:
		case 0xd1:
			return head_scalar(s, h, KIND_INT, 2);
		case 0xce:
		case 0xd2:
			return head_scalar(s, h, KIND_INT, 4);
		case 0xcf:
		case 0xd3:
			return head_scalar(s, h, KIND_INT, 8);
		case 0xd9:
			return head_sized(s, h, KIND_STR, 1);
		case 0xda:
			return head_sized(s, h, KIND_STR, 2);
		case 0xdb:
			return head_sized(s, h, KIND_STR, 4);
		case 0xdc:
			return head_sized(s, h, KIND_ARRAY, 2);
		case 0xdd:
			return head_sized(s, h, KIND_ARRAY, 4);
		case 0xde:
			return head_sized(s, h, KIND_MAP, 2);
		case 0xdf:
			return head_sized(s, h, KIND_MAP, 4);
		case 0xc1:
			return err_why(s->why, -EINVAL, "msgpack: byte %zu is 0xc1, which is never used", at);
		default:
			return err_why(s->why, -EINVAL,
				       "msgpack: the extension type at byte %zu is not accepted", at);
		}
	return 0;
}

/* Return the length of the UTF-8 character at p; 0: invalid (RFC 3629). */
static size_t utf8_char(const uint8_t *p, size_t n)
{
	uint8_t c = p[0];
	if (c < 0x80)
		return 1;
	size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4 || n < need)
		return 0;
	uint8_t lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	uint8_t hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	if (p[1] < lo || p[1] > hi)
		return 0;
	for (size_t i = 2; i < need; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return need;
}

static int scan_str(struct scan *s, const struct head *h)
{
	if ((size_t)(s->end - h->body) < h->count)
		return err_why(s->why, -EINVAL,
			       "msgpack: a string of %u bytes at byte %zu, but %zu bytes are left", h->count,
			       (size_t)(s->p - s->begin), (size_t)(s->end - h->body));
	const uint8_t *p = h->body, *end = h->body + h->count;
	while (p < end) {
		uint64_t eight;
		if (end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) {
			p += 8;
			continue;
		}
		size_t n = utf8_char(p, (size_t)(end - p));
		if (!n)
			return err_why(s->why, -EINVAL,
				       "msgpack: the string at byte %zu is not UTF-8 (its byte %zu)",
				       (size_t)(s->p - s->begin), (size_t)(p - h->body));
		p += n;
	}
	s->p = end;
	return 0;
}

struct key {
	const uint8_t *p;
	uint32_t n;
};

static int key_compare(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	uint32_t n = x->n < y->n ? x->n : y->n;
	int c = n ? memcmp(x->p, y->p, n) : 0;
	return c ? c : (x->n > y->n) - (x->n < y->n);
}

static int scan_value(struct scan *s, unsigned depth);

static int keys_unique(const struct scan *s, struct key *keys, uint32_t n)
{
	qsort(keys, n, sizeof *keys, key_compare);
	for (uint32_t i = 1; i < n; i++)
		if (key_compare(&keys[i - 1], &keys[i]) == 0)
			return err_why(s->why, -EINVAL, "msgpack: duplicate key %.*s",
				       keys[i].n < KEY_SHOWN ? (int)keys[i].n : KEY_SHOWN,
				       (const char *)keys[i].p);
	return 0;
}

static int scan_map(struct scan *s, uint32_t n, unsigned depth)
{
	if (n > KEYS_MAX)
		return err_why(s->why, -E2BIG, "msgpack: a map of %u keys, at most %d are accepted", n,
			       KEYS_MAX);
	struct key few[32], *keys = n <= 32 ? few : xcalloc(n, sizeof *keys);
	int rc = 0;
	for (uint32_t i = 0; i < n && !rc; i++) {
		struct head h;
		rc = scan_head(s, &h);
		if (!rc && h.kind != KIND_STR)
			rc = err_why(s->why, -EINVAL, "msgpack: the map key at byte %zu is not a string",
				     (size_t)(s->p - s->begin));
		if (!rc)
			rc = scan_str(s, &h);
		if (rc)
			break;
		keys[i] = (struct key){h.body, h.count};
		if (memchr(h.body, 0, h.count))
			rc = err_why(s->why, -EINVAL, "msgpack: a map key holds a NUL byte");
		else
			rc = scan_value(s, depth);
	}
	if (!rc)
		rc = keys_unique(s, keys, n);
	if (keys != few)
		free(keys);
	return rc;
}

/* Charge the memory of a value without its elements. */
static int scan_memory(struct scan *s, const struct head *h)
{
	static const size_t node[] = {[KIND_INT] = JSON_BYTES_NUMBER,
				      [KIND_FLOAT] = JSON_BYTES_NUMBER,
				      [KIND_STR] = JSON_BYTES_STRING,
				      [KIND_ARRAY] = JSON_BYTES_ARRAY,
				      [KIND_MAP] = JSON_BYTES_OBJECT};
	size_t n = JSON_BYTES_ELEMENT + node[h->kind];
	if (h->kind == KIND_STR)
		n += h->count;
	if (h->kind == KIND_MAP)
		n += (size_t)h->count * JSON_BYTES_KEY;
	if (n > s->tree)
		return err_why(
			s->why, -E2BIG,
			"msgpack: the values up to byte %zu take more memory than is accepted: send fewer "
			"values",
			(size_t)(s->p - s->begin));
	s->tree -= n;
	return 0;
}

static int scan_value(struct scan *s, unsigned depth)
{
	struct head h;
	int rc = scan_head(s, &h);
	if (rc)
		return rc;
	if (h.kind == KIND_STR) {
		rc = scan_str(s, &h);
		return rc ? rc : scan_memory(s, &h);
	}
	if (h.kind != KIND_ARRAY && h.kind != KIND_MAP) {
		s->p = h.body;
		return scan_memory(s, &h);
	}
	if (depth == 0)
		return err_why(s->why, -E2BIG, "msgpack: nested too deep at byte %zu",
			       (size_t)(s->p - s->begin));
	/* Every element takes at least one byte, so a header cannot claim more elements than bytes are
	 * left. */
	uint64_t elements = (uint64_t)h.count * (h.kind == KIND_MAP ? 2 : 1);
	if (elements > (uint64_t)(s->end - h.body))
		return err_why(s->why, -EINVAL,
			       "msgpack: %s of %u elements at byte %zu, but %zu bytes are left",
			       h.kind == KIND_MAP ? "a map" : "an array", h.count, (size_t)(s->p - s->begin),
			       (size_t)(s->end - h.body));
	if (elements > s->objects)
		return err_why(s->why, -E2BIG, "msgpack: more values than are accepted (byte %zu)",
			       (size_t)(s->p - s->begin));
	s->objects -= elements;
	rc = scan_memory(s, &h);
	if (rc)
		return rc;
	s->p = h.body;
	if (h.kind == KIND_MAP)
		return scan_map(s, h.count, depth - 1);
	for (uint32_t i = 0; i < h.count; i++)
		if ((rc = scan_value(s, depth - 1)))
			return rc;
	return 0;
}

static int scan(const void *bytes, size_t n, const struct mp_limits *limits, struct why *why)
{
	assert(limits->depth <= MP_DEPTH_MAX);
	if (n > limits->bytes)
		return err_why(why, -E2BIG, "the message has %zu bytes, at most %zu are accepted", n,
			       limits->bytes);
	struct scan s = {bytes, bytes, (const uint8_t *)bytes + n, limits->objects, limits->tree, why};
	int rc = scan_value(&s, limits->depth);
	if (!rc && s.p != s.end)
		rc = err_why(why, -EINVAL, "msgpack: %zu bytes follow the value", (size_t)(s.end - s.p));
	return rc;
}

int mp_find(const void *bytes, size_t n, const char *key, const void **value, size_t *value_n)
{
	struct scan s = {bytes, bytes, (const uint8_t *)bytes + n, OBJECTS_REQUEST, SIZE_MAX, NULL};
	struct head h;
	if (scan_head(&s, &h) || h.kind != KIND_MAP)
		return -ENOENT;
	s.p = h.body;
	for (uint32_t i = 0; i < h.count; i++) {
		struct head k;
		if (scan_head(&s, &k) || k.kind != KIND_STR || scan_str(&s, &k))
			return -ENOENT;
		const uint8_t *from = s.p;
		if (scan_value(&s, MP_DEPTH_MAX))
			return -ENOENT;
		if (k.count == strlen(key) && memcmp(k.body, key, k.count) == 0) {
			*value = from;
			*value_n = (size_t)(s.p - from);
			return 0;
		}
	}
	return -ENOENT;
}

/* ---- building ---- */

struct build {
	struct why *why;
};

static json_t *to_json(const struct build *b, const msgpack_object *o, const char *name);

static json_t *array_to_json(const struct build *b, const msgpack_object_array *from, const char *name)
{
	json_t *a = json_array();
	for (uint32_t i = 0; a && i < from->size; i++) {
		json_t *v = to_json(b, &from->ptr[i], name);
		if (!v || json_array_append_new(a, v)) {
			json_decref(a);
			return NULL;
		}
	}
	return a;
}

static json_t *map_to_json(const struct build *b, const msgpack_object_map *from, const char *own)
{
	json_t *m = json_object();
	for (uint32_t i = 0; m && i < from->size; i++) {
		const msgpack_object_str *k = &from->ptr[i].key.via.str;
		char *name = xmalloc((size_t)k->size + 1);
		if (k->size)
			memcpy(name, k->ptr, k->size);
		name[k->size] = 0;
		json_t *v = to_json(b, &from->ptr[i].val, name);
		int failed = !v || json_object_set_new_nocheck(m, name, v);
		free(name);
		if (failed) {
			if (own)
				err_prefix(b->why, -EINVAL, "%.*s", KEY_SHOWN, own);
			json_decref(m);
			return NULL;
		}
	}
	return m;
}

/* name: key of the value, for the reason; NULL: the whole message.  Returns NULL after an error, with the
 * reason in why. */
static json_t *to_json(const struct build *b, const msgpack_object *o, const char *name)
{
	switch (o->type) {
	case MSGPACK_OBJECT_NIL:
		return json_null();
	case MSGPACK_OBJECT_BOOLEAN:
		return json_boolean(o->via.boolean);
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		return o->via.u64 <= INT64_MAX ? json_integer((json_int_t)o->via.u64)
					       : json_real((double)o->via.u64);
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return json_integer(o->via.i64);
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		if (!isfinite(o->via.f64))
			err_why(b->why, -EINVAL, "%.*s is not a finite number", KEY_SHOWN,
				name ? name : "the message");
		return json_real(o->via.f64); /* NULL if not finite */
	case MSGPACK_OBJECT_STR:
		/* msgpack's pointer is NULL for an empty string. */
		return json_stringn_nocheck(o->via.str.size ? o->via.str.ptr : "", o->via.str.size);
	case MSGPACK_OBJECT_ARRAY:
		return array_to_json(b, &o->via.array, name);
	case MSGPACK_OBJECT_MAP:
		return map_to_json(b, &o->via.map, name);
	default:
		return NULL;
	}
}

int mp_decode(const void *bytes, size_t n, const struct mp_limits *limits, json_t **out, struct why *why)
{
	int rc = scan(bytes, n, limits, why);
	if (rc)
		return rc;
	msgpack_zone zone;
	if (!msgpack_zone_init(&zone, MSGPACK_ZONE_CHUNK_SIZE))
		return err_why(why, -ENOMEM, "out of memory for a message of %zu bytes", n);
	msgpack_object o;
	size_t off = 0;
	msgpack_unpack_return r = msgpack_unpack(bytes, n, &off, &zone, &o);
	if (r != MSGPACK_UNPACK_SUCCESS) {
		rc = err_why(why, r == MSGPACK_UNPACK_NOMEM_ERROR ? -ENOMEM : -EINVAL,
			     "msgpack: the message cannot be unpacked");
	} else {
		struct build b = {why};
		err_why(why, 0, "msgpack: out of memory");
		*out = to_json(&b, &o, NULL);
		if (!*out)
			rc = -EINVAL;
	}
	msgpack_zone_destroy(&zone);
	return rc;
}

/* ---- writing ---- */

static int put(void *to, const char *bytes, size_t n)
{
	buf_put(to, bytes, n);
	return 0;
}

static msgpack_packer packer(struct buf *out)
{
	msgpack_packer k;
	msgpack_packer_init(&k, out, put);
	return k;
}

void mp_put_map(struct buf *out, uint32_t n)
{
	msgpack_packer k = packer(out);
	msgpack_pack_map(&k, n);
}

void mp_put_array(struct buf *out, uint32_t n)
{
	msgpack_packer k = packer(out);
	msgpack_pack_array(&k, n);
}

void mp_put_str(struct buf *out, const char *s, size_t n)
{
	msgpack_packer k = packer(out);
	msgpack_pack_str(&k, n);
	msgpack_pack_str_body(&k, s, n);
}

void mp_put_cstr(struct buf *out, const char *s)
{
	mp_put_str(out, s, strlen(s));
}

void mp_put_bin(struct buf *out, size_t n)
{
	msgpack_packer k = packer(out);
	msgpack_pack_bin(&k, n);
}

void mp_put_uint(struct buf *out, uint64_t v)
{
	msgpack_packer k = packer(out);
	msgpack_pack_uint64(&k, v);
}

void mp_put_int(struct buf *out, int64_t v)
{
	msgpack_packer k = packer(out);
	msgpack_pack_int64(&k, v);
}

void mp_put_double(struct buf *out, double v)
{
	msgpack_packer k = packer(out);
	if (isfinite(v))
		msgpack_pack_double(&k, v);
	else
		msgpack_pack_nil(&k);
}

void mp_put_float(struct buf *out, float v)
{
	msgpack_packer k = packer(out);
	if (isfinite(v))
		msgpack_pack_float(&k, v);
	else
		msgpack_pack_nil(&k);
}

void mp_put_bool(struct buf *out, int v)
{
	msgpack_packer k = packer(out);
	if (v)
		msgpack_pack_true(&k);
	else
		msgpack_pack_false(&k);
}

void mp_put_nil(struct buf *out)
{
	msgpack_packer k = packer(out);
	msgpack_pack_nil(&k);
}

void mp_encode(struct buf *out, const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_NULL:
		mp_put_nil(out);
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		mp_put_bool(out, json_is_true(v));
		break;
	case JSON_INTEGER:
		mp_put_int(out, json_integer_value(v));
		break;
	case JSON_REAL:
		mp_put_double(out, json_real_value(v));
		break;
	case JSON_STRING:
		mp_put_str(out, json_string_value(v), json_string_length(v));
		break;
	case JSON_ARRAY: {
		size_t i;
		const json_t *e;
		mp_put_array(out, (uint32_t)json_array_size(v));
		json_array_foreach(v, i, e) mp_encode(out, e);
		break;
	}
	case JSON_OBJECT: {
		const char *key;
		json_t *e, *o = (json_t *)v; /* json_object_foreach() takes no const */
		mp_put_map(out, (uint32_t)json_object_size(v));
		json_object_foreach(o, key, e)
		{
			mp_put_cstr(out, key);
			mp_encode(out, e);
		}
		break;
	}
	}
}
