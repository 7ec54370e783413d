#include "controller/http/cors.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct cors {
	bool all;
	char **origins; /* [n], owned */
	size_t n;
};

/* Check for scheme://host[:port], in characters that a header may have. */
static bool is_origin(const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
	const char *host = strstr(s, "://");
	if (!host || host == s || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != (size_t)(host - s))
		return false;
	host += 3;
	return *host && strspn(host, plain) == strlen(host);
}

int cors_parse(const char *list, struct cors **out, struct why *why)
{
	struct cors *c = xcalloc(1, sizeof *c);
	char *copy = xstrdup(list), *rest = copy;
	int rc = 0;
	for (char *one; !rc && (one = strsep(&rest, ","));) {
		one += strspn(one, " ");
		for (size_t n = strlen(one); n && one[n - 1] == ' ';)
			one[--n] = '\0';
		if (!strcmp(one, "*")) {
			c->all = true;
		} else if (is_origin(one)) {
			c->origins = xrealloc(c->origins, c->n + 1, sizeof *c->origins);
			c->origins[c->n++] = xstrdup(one);
		} else {
			rc = err_why(why, -EINVAL,
				     "--cors-origin \"%s\": must be *, or origins such as "
				     "https://chat.example.org, separated by commas",
				     one);
		}
	}
	free(copy);
	if (rc) {
		cors_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void cors_free(struct cors *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		free(c->origins[i]);
	free(c->origins);
	free(c);
}

bool cors_allows(const struct cors *c, const char *origin)
{
	if (!c || !origin || !(is_origin(origin) || !strcmp(origin, "null")))
		return false;
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->origins[i], origin))
			return true;
	return c->all;
}

bool cors_is_own(const char *origin, const char *host)
{
	static const char *const schemes[] = {"http://", "https://"}, *const ports[] = {":80", ":443"};
	size_t n = host ? strlen(host) : 0;
	for (size_t i = 0; n && i < 2; i++) {
		size_t k = strlen(schemes[i]), p = strlen(ports[i]);
		if (strncasecmp(origin, schemes[i], k) != 0)
			continue;
		/* An origin omits the default port of its scheme. */
		size_t bare = n > p && !strcmp(host + n - p, ports[i]) ? n - p : n;
		return !strcasecmp(origin + k, host) ||
		       (!strncasecmp(origin + k, host, bare) && !origin[k + bare]);
	}
	return false;
}
