#include "cli/models/source.h"

#include "base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

bool source_is_url(const char *text)
{
	return strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
}

bool source_origin(const char *url, char *out, size_t n)
{
	if (!source_is_url(url))
		return false;
	const char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "/?#");
	if (end == host || memchr(host, '@', (size_t)(end - host)) || (size_t)(end - url) >= n)
		return false;
	for (const char *p = url; p < end; p++)
		*out++ = (char)tolower((unsigned char)*p);
	*out = '\0';
	return true;
}

void source_escape(struct buf *out, const char *text, bool keep_slashes)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (strchr(name_chars, *p) || *p == '~' || (*p == '/' && keep_slashes))
			buf_putc(out, (char)*p);
		else
			buf_printf(out, "%%%02X", *p);
}

/* ---- names ---- */

static bool part_is_valid(const char *p, size_t n)
{
	return n > 0 && n <= SOURCE_PART_MAX && *p != '.' && *p != '-' && strspn(p, name_chars) >= n;
}

static bool revision_is_valid(const char *p)
{
	return *p && *p != '/' && *p != '-' && strlen(p) < SOURCE_REVISION && !strstr(p, "..") &&
	       !strstr(p, "//") &&
	       p[strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+")] == '\0';
}

int source_name(const char *text, char name[2 * SOURCE_PART_MAX + 2], char revision[SOURCE_REVISION],
		struct why *why)
{
	const char *at = strchr(text, '@'), *end = at ? at : text + strlen(text),
		   *slash = memchr(text, '/', (size_t)(end - text));
	if (!slash || !part_is_valid(text, (size_t)(slash - text)) ||
	    !part_is_valid(slash + 1, (size_t)(end - slash - 1)))
		return err_why(
			why, -EINVAL,
			"\"%.200s\" is not the name of a model: ORG/NAME or ORG/NAME@REVISION, of letters, "
			"digits, '.', '_' and '-'",
			text);
	if (at && !revision_is_valid(at + 1))
		return err_why(why, -EINVAL, "\"%.150s\" is not a revision: a branch, a tag or a commit",
			       at + 1);
	snprintf(name, 2 * SOURCE_PART_MAX + 2, "%.*s", (int)(end - text), text);
	snprintf(revision, SOURCE_REVISION, "%s", at ? at + 1 : "");
	return 0;
}

int source_path_check(const char *path, struct why *why)
{
	int depth = 0;
	if (!*path || strlen(path) > SOURCE_PATH_MAX)
		return err_why(why, -EBADMSG, "a file of the server has a name of %zu bytes", strlen(path));
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (*p < 0x20 || *p == 0x7f || *p == '\\')
			return err_why(
				why, -EBADMSG,
				"a file of the server has a control character or a backslash in its name: %s",
				path);
	for (const char *p = path, *next = NULL; p; p = next) {
		const size_t n = strcspn(p, "/");
		next = p[n] ? p + n + 1 : NULL;
		if (n == 0 || *p == '.' || n > 200 || ++depth > SOURCE_DEPTH_MAX)
			return err_why(
				why, -EBADMSG,
				"a file of the server has a name that would leave the model's directory, or "
				"is hidden, or too long or deep: %s",
				path);
	}
	return 0;
}

/* ---- addresses ---- */

static int bad_url(const char *text, struct why *why)
{
	return err_why(why, -EINVAL,
		       "\"%.300s\" is not an address to fetch from: http[s]://HOST/PATH, without a user or a "
		       "password in it (a token comes from $QUERN_TOKEN)",
		       text);
}

/* Copy a name; characters that names may not contain become '-'. */
static void put_part(char *out, size_t n, const char *p, size_t len)
{
	size_t k = 0;
	for (size_t i = 0; i < len && k + 1 < n; i++)
		if (strchr(name_chars, p[i]) && (k || (p[i] != '.' && p[i] != '-')))
			out[k++] = p[i];
		else if (k)
			out[k++] = '-';
	if (k == 0)
		out[k++] = 'x';
	out[k] = '\0';
}

/* Return the last component of a path without a query. */
static const char *last_part(const char *path, const char *end, size_t *n)
{
	const char *e = end;
	while (e > path && e[-1] == '/')
		e--;
	const char *p = e;
	while (p > path && p[-1] != '/')
		p--;
	*n = (size_t)(e - p);
	return p;
}

static bool names_a_file(const char *p, size_t n)
{
	static const char *const suffixes[] = {".gguf", ".bin",   ".safetensors", ".ak48",
					       ".ak42", ".model", ".json"};
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		const size_t m = strlen(suffixes[i]);
		if (n > m && strncasecmp(p + n - m, suffixes[i], m) == 0)
			return true;
	}
	return false;
}

/* Parse a page of the hub: ENDPOINT/ORG/NAME, /ORG/NAME/tree/REVISION, as shown by a browser.  false: another
 * address. */
static bool page_of_hub(const char *path, struct source *s)
{
	char org[SOURCE_PART_MAX + 1], name[SOURCE_PART_MAX + 1], rev[SOURCE_REVISION] = "main";
	int n = 0;
	if (sscanf(path, "/%96[^/?#]/%96[^/?#]%n", org, name, &n) != 2)
		return false;
	if (strncmp(path + n, "/tree/", 6) == 0) {
		if (sscanf(path + n, "/tree/%127[^?#]", rev) != 1)
			return false;
	} else if (path[n] && strcmp(path + n, "/") != 0) {
		return false;
	}
	if (!part_is_valid(org, strlen(org)) || !part_is_valid(name, strlen(name)) ||
	    !revision_is_valid(rev) || names_a_file(name, strlen(name)))
		return false;
	s->kind = SOURCE_HUB;
	snprintf(s->name, sizeof s->name, "%s/%s", org, name);
	snprintf(s->revision, sizeof s->revision, "%s", rev);
	return true;
}

static int parse_url(const char *text, struct source *s, struct why *why)
{
	char origin[SOURCE_URL_MAX], hub[SOURCE_URL_MAX], host[SOURCE_PART_MAX + 1],
		part[SOURCE_PART_MAX + 1];
	size_t n;
	if (strlen(text) + 2 > SOURCE_URL_MAX || !source_origin(text, origin, sizeof origin))
		return bad_url(text, why);
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p <= 0x20 || *p >= 0x7f)
			return bad_url(text, why);
	const char *path = text + strlen(origin), *end = path + strcspn(path, "?#");
	const size_t to_hub = strlen(s->endpoint);
	source_origin(s->endpoint, hub, sizeof hub);
	if (strcmp(hub, origin) == 0 &&
	    strncmp(text + strlen(origin), s->endpoint + strlen(hub), to_hub - strlen(hub)) == 0 &&
	    page_of_hub(text + to_hub, s))
		return 0;
	const char *last = last_part(path, end, &n);
	s->kind = end > path && end[-1] != '/' && names_a_file(last, n) ? SOURCE_FILE : SOURCE_DIR;
	snprintf(s->url, sizeof s->url, "%.*s%s%s", (int)(end - text), text,
		 s->kind == SOURCE_DIR && (end == path || end[-1] != '/') ? "/" : "", end);
	put_part(host, sizeof host, strstr(origin, "://") + 3, strlen(strstr(origin, "://") + 3));
	put_part(part, sizeof part, n ? last : "model", n ? n : 5);
	if (s->kind == SOURCE_FILE)
		snprintf(s->file, sizeof s->file, "%s", part);
	snprintf(s->name, sizeof s->name, "%s/%s", host, part);
	return 0;
}

int source_parse(const char *text, const char *endpoint, const char *as, struct source *s, struct why *why)
{
	char rest[SOURCE_REVISION], origin[SOURCE_URL_MAX];
	*s = (struct source){0};
	if (strlen(endpoint) >= sizeof s->endpoint / 2 || !source_origin(endpoint, origin, sizeof origin) ||
	    strpbrk(endpoint, "?# "))
		return bad_url(endpoint, why);
	snprintf(s->endpoint, sizeof s->endpoint, "%s", endpoint);
	for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/'; n--)
		s->endpoint[n - 1] = '\0';
	int rc = source_is_url(text) ? parse_url(text, s, why) : source_name(text, s->name, s->revision, why);
	if (!rc && s->kind == SOURCE_HUB && !s->revision[0])
		snprintf(s->revision, sizeof s->revision, "main");
	if (!rc && as)
		rc = source_name(as, s->name, rest, why);
	if (!rc && as && rest[0])
		rc = err_why(why, -EINVAL, "--as is \"%.200s\": a name, without a revision", as);
	return rc;
}
