/* read_rig.h - compares a client's request with the request that a reader makes of it, for tests of
 * readers. */
#ifndef QUERN_TESTS_UNIT_APIS_READ_RIG_H
#define QUERN_TESTS_UNIT_APIS_READ_RIG_H

#include "base/err.h"
#include "base/json.h"
#include "controller/request/api_error.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static inline json_t *parsed(const char *text)
{
	json_t *v;
	struct why why;
	cr_assert_eq(json_parse(text, strlen(text), &v, &why), 0, "%s: %s", text, why.text);
	return v;
}

static inline void expect_json(const json_t *got, const char *want, const char *of)
{
	json_t *w = parsed(want);
	char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS);
	cr_expect(json_equal(got, w), "%s\nbecame %s\nnot    %s", of, text, want);
	free(text);
	json_decref(w);
}

#endif
