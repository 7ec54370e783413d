/* schema_index.c - the place of each subschema, and the targets of references.
 * Owns: a place per object and array of the schema, anchors, and resources by URI. A resource is the root,
 * or a schema with its own $id (id in draft 4): references within it are relative to it. */
#include "grammar/schema/schema_impl.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct place {
	const json_t *node, *up; /* up NULL: the root */
	const char *key;         /* key in the parent, if it is an object */
	size_t i;                /* index in the parent, if it is an array */
	const struct place *resource;
	char *uri; /* URI of a resource: absolute or as written, without fragment; owned */
};

struct anchor {
	struct anchor *next;
	uint64_t hash;
	const char *name;
	const struct place *resource;
	const json_t *node;
};

static struct place *place_of(const struct schema *s, const json_t *node)
{
	return map_get(&s->places, (uintptr_t)node);
}

/* ---- URIs (RFC 3986, 5.2, without dot segments) ---- */

static size_t scheme_len(const char *uri)
{
	size_t n = strspn(uri, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
	return n && uri[n] == ':' ? n + 1 : 0;
}

/* Resolve ref, without its fragment, relative to base. */
static char *uri_join(const char *base, const char *ref)
{
	const int n = (int)strcspn(ref, "#");
	const size_t scheme = scheme_len(base);
	if (!n)
		return xstrdup(base);
	if (scheme_len(ref))
		return xasprintf("%.*s", n, ref);
	size_t path = scheme; /* offset of base's path */
	if (!strncmp(base + scheme, "//", 2))
		path += 2 + strcspn(base + scheme + 2, "/");
	if (ref[0] == '/' && ref[1] == '/')
		return xasprintf("%.*s%.*s", (int)scheme, base, n, ref);
	if (ref[0] == '/')
		return xasprintf("%.*s%.*s", (int)path, base, n, ref);
	const char *slash = strrchr(base + path, '/');
	if (!slash)
		return xasprintf("%.*s%s%.*s", (int)path, base, path > scheme ? "/" : "", n, ref);
	return xasprintf("%.*s%.*s", (int)(slash + 1 - base), base, n, ref);
}

/* ---- building ---- */

static uint64_t anchor_hash(const char *name, const void *resource)
{
	return XXH3_64bits(name, strlen(name)) ^ (uintptr_t)resource * 0x9e3779b97f4a7c15u;
}

static void anchor_put(struct schema *s, const char *name, const struct place *resource, const json_t *node)
{
	struct anchor *a = schema_alloc(s, sizeof *a);
	const uint64_t h = anchor_hash(name, resource);
	*a = (struct anchor){.next = map_get(&s->anchors, h), .hash = h, .name = name, .resource = resource};
	a->node = node;
	map_put(&s->anchors, h, a);
}

static const json_t *anchor_get(const struct schema *s, const char *name, const struct place *resource)
{
	for (struct anchor *a = map_get(&s->anchors, anchor_hash(name, resource)); a; a = a->next)
		if (a->resource == resource && !strcmp(a->name, name))
			return a->node;
	return NULL;
}

/* Set the place's resource, and register its names. */
static void place_identify(struct schema *s, struct place *p, const struct place *up)
{
	const char *id = json_string_value(json_object_get(p->node, "$id"));
	const char *anchor = json_string_value(json_object_get(p->node, "$anchor"));
	if (!id)
		id = json_string_value(json_object_get(p->node, "id"));
	p->resource = up ? up->resource : p;
	if (!up)
		p->uri = xstrdup("");
	if (id && id[0] == '#') {
		anchor_put(s, id + 1, p->resource, p->node);
	} else if (id) {
		char *uri = uri_join(p->resource->uri, id);
		free(p->uri);
		p->uri = uri;
		p->resource = p;
		anchor_put(s, p->uri, NULL, p->node);
	}
	if (anchor)
		anchor_put(s, anchor, p->resource, p->node);
}

static struct place *place_add(struct schema *s, const json_t *node, const struct place *up)
{
	struct place *p = schema_alloc(s, sizeof *p);
	*p = (struct place){.node = node, .up = up ? up->node : NULL, .resource = up ? up->resource : p};
	map_put(&s->places, (uintptr_t)node, p);
	return p;
}

/* Return true if the keyword holds values, which are never schemas. */
static bool holds_values(const char *key)
{
	return !strcmp(key, "enum") || !strcmp(key, "const") || !strcmp(key, "default") ||
	       !strcmp(key, "examples") || !strcmp(key, "example");
}

/* Return true if all members of an object under this key are schemas, whatever their names. */
static bool holds_schemas(const char *key)
{
	return key &&
	       (!strcmp(key, "properties") || !strcmp(key, "patternProperties") || !strcmp(key, "$defs") ||
		!strcmp(key, "definitions") || !strcmp(key, "dependentSchemas"));
}

/* Refuse NUL in patterns, names and references, which are C strings: a truncated text would accept more. */
static void check_text(struct schema *s, const json_t *text, const struct place *up, const char *key)
{
	const bool free_text =
		key && (!strcmp(key, "const") || !strcmp(key, "default") || !strcmp(key, "title") ||
			!strcmp(key, "description") || !strcmp(key, "$comment"));
	if (!s->err && !free_text && strlen(json_string_value(text)) != json_string_length(text))
		schema_error(s, -ENOTSUP, up ? up->node : text, "%s%sa text with a NUL character",
			     key ? key : "", key ? ": " : "");
}

/* The JSON reader bounds the depth (base/json.h). */
static void index_walk(struct schema *s, const json_t *node, const struct place *up, const char *key,
		       size_t i, bool values)
{
	if (json_is_string(node) && !values)
		check_text(s, node, up, key);
	if ((!json_is_object(node) && !json_is_array(node)) || place_of(s, node))
		return;
	struct place *p = place_add(s, node, up);
	p->key = key;
	p->i = i;
	if (json_is_object(node)) {
		const char *k;
		json_t *v;
		if (!values)
			place_identify(s, p, up);
		json_object_foreach((json_t *)node, k, v)
			index_walk(s, v, p, k, 0, values || (!holds_schemas(key) && holds_values(k)));
	} else {
		for (size_t j = 0; j < json_array_size(node); j++)
			index_walk(s, json_array_get(node, j), p, NULL, j, values);
	}
}

int index_build(struct schema *s)
{
	const char *draft = json_string_value(json_object_get(s->root, "$schema"));
	s->ref_alone = draft && (strstr(draft, "draft-03") || strstr(draft, "draft-04") ||
				 strstr(draft, "draft-06") || strstr(draft, "draft-07"));
	index_walk(s, s->root, NULL, NULL, 0, false);
	return s->err;
}

void index_made(struct schema *s, const json_t *made, const json_t *for_value)
{
	struct place *p = schema_alloc(s, sizeof *p), *of = place_of(s, for_value);
	*p = of ? *of : (struct place){.node = made};
	p->uri = NULL;
	map_put(&s->places, (uintptr_t)made, p);
}

void index_fini(struct schema *s)
{
	for (size_t i = 0; i < s->places.cap; i++) {
		struct place *p = s->places.slots[i].value;
		if (p)
			free(p->uri);
	}
	map_fini(&s->places);
	map_fini(&s->anchors);
	map_fini(&s->made_for);
}

static void put_path(const struct schema *s, const struct place *p, struct buf *out)
{
	if (!p || !p->up)
		return;
	put_path(s, place_of(s, p->up), out);
	if (!p->key) {
		buf_printf(out, "/%zu", p->i);
		return;
	}
	buf_putc(out, '/');
	for (const char *k = p->key; *k; k++) {
		if (*k == '~' || *k == '/')
			buf_puts(out, *k == '~' ? "~0" : "~1");
		else
			buf_putc(out, *k);
	}
}

void index_path(const struct schema *s, const json_t *at, struct buf *out)
{
	buf_putc(out, '#');
	put_path(s, at ? place_of(s, at) : NULL, out);
}

/* ---- references ---- */

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Decode percent escapes in place. */
static void percent_decode(char *p)
{
	char *to = p;
	for (; *p; p++) {
		if (*p == '%' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
			*to++ = (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
			p += 2;
		} else {
			*to++ = *p;
		}
	}
	*to = 0;
}

/* Decode ~1 to / and ~0 to ~ in place (RFC 6901). */
static void pointer_decode(char *p)
{
	char *to = p;
	for (; *p; p++) {
		if (*p == '~' && (p[1] == '0' || p[1] == '1'))
			*to++ = *++p == '0' ? '~' : '/';
		else
			*to++ = *p;
	}
	*to = 0;
}

static const json_t *pointer_get(const json_t *at, const char *pointer)
{
	char *copy = xstrdup(pointer), *part = copy;
	percent_decode(copy);
	while (at && part && *part) {
		char *next = strchr(part + 1, '/'), *end;
		if (next)
			*next = 0;
		pointer_decode(++part);
		if (json_is_array(at)) {
			size_t i = strtoul(part, &end, 10);
			at = *part && !*end ? json_array_get(at, i) : NULL;
		} else {
			at = json_object_get(at, part);
		}
		if (next)
			*next = '/';
		part = next;
	}
	free(copy);
	return at;
}

const json_t *index_resolve(struct schema *s, const json_t *owner, const char *ref)
{
	const struct place *p = place_of(s, owner), *resource = p ? p->resource : NULL;
	const char *hash = strchr(ref, '#'), *fragment = hash ? hash + 1 : "";
	const json_t *at = NULL;
	if (ref[0] != '#' && *ref && resource) {
		char *uri = uri_join(resource->uri, ref);
		at = anchor_get(s, uri, NULL);
		free(uri);
		resource = at ? place_of(s, at) : NULL;
	}
	if (resource && !*fragment)
		at = resource->node;
	else if (resource && *fragment == '/')
		at = pointer_get(resource->node, fragment);
	else if (resource)
		at = anchor_get(s, fragment, resource);
	/* Some generators give every schema an id, and yet write references that are relative to the root. */
	if (!at && ref[0] == '#' && *fragment == '/')
		at = pointer_get(s->root, fragment);
	if (!at && ref[0] == '#' && resource && *fragment != '/')
		at = anchor_get(s, fragment, place_of(s, s->root));
	if (!at)
		schema_error(s, -ENOTSUP, owner, "$ref \"%.200s\" leads to nothing in this schema", ref);
	else if (!json_is_object(at) && !json_is_boolean(at))
		schema_error(s, -EINVAL, owner, "$ref \"%.200s\" leads to a value that is no schema", ref);
	return s->err ? NULL : at;
}
