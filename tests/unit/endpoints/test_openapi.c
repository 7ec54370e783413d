/* The OpenAPI document matches the table of routes. */
#include "controller/endpoints/routes.h"

#include "controller/endpoints/endpoints.h"
#include "controller/http/http.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

/* Return whether the route serves this path of the document, such as "/v1/files/{id}". */
static bool serves(const struct http_route *r, const char *path)
{
	const size_t n = strlen(r->path);
	return r->flags & ROUTE_PREFIX ? strncmp(path, r->path, n) == 0 && path[n]
				       : strcmp(path, r->path) == 0;
}

static bool described(json_t *paths, const struct http_route *r, const char *method)
{
	const char *path;
	json_t *operations;
	json_object_foreach(paths, path, operations)
	{
		if (serves(r, path) && json_object_get(operations, method))
			return true;
	}
	return false;
}

Test(openapi, every_route_and_method_is_described)
{
	size_t n;
	const struct http_route *routes = endpoints_routes(&n);
	json_t *doc = openapi_document(), *paths = json_object_get(doc, "paths");
	for (size_t i = 0; i < n; i++) {
		char method[16];
		size_t k = 0;
		for (const char *p = routes[i].allow;; p++) {
			if (isalpha((unsigned char)*p)) {
				method[k++] = (char)tolower((unsigned char)*p);
				continue;
			}
			method[k] = 0;
			k = 0;
			if (method[0] && strcmp(method, "head") != 0)
				cr_expect(described(paths, &routes[i], method), "%s %s", method,
					  routes[i].path);
			if (!*p)
				break;
		}
	}
	json_decref(doc);
}

Test(openapi, metrics_come_in_two_formats)
{
	json_t *doc = openapi_document(), *content = NULL;
	cr_assert_eq(json_unpack(doc, "{s:{s:{s:{s:{s:{s:o}}}}}}", "paths", "/metrics", "get", "responses",
				 "200", "content", &content),
		     0);
	cr_expect_eq(json_object_size(content), 2u);
	cr_expect(json_object_get(content, "text/plain") &&
		  json_object_get(content, "application/openmetrics-text"));
	json_decref(doc);
}

Test(openapi, everything_described_is_a_route)
{
	size_t n;
	const struct http_route *routes = endpoints_routes(&n);
	json_t *doc = openapi_document(), *operations;
	const char *path;
	json_object_foreach(json_object_get(doc, "paths"), path, operations)
	{
		bool found = false;
		for (size_t i = 0; i < n; i++)
			found = found || serves(&routes[i], path);
		cr_expect(found, "%s", path);
	}
	json_decref(doc);
}
