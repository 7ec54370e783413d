/* api_rig.h - reads a request's JSON with the demo's service, for the tests of api.h. */
#ifndef QUERN_TESTS_UNIT_REQUEST_API_RIG_H
#define QUERN_TESTS_UNIT_REQUEST_API_RIG_H

#include "base/err.h"
#include "base/json.h"
#include "controller/request/api.h"
#include "tests/demo_service.h"

static struct demo demo;

static void open_demo(void)
{
	demo_open(&demo);
}

static void close_demo(void)
{
	demo_close(&demo);
}

static json_t *parsed(const char *text)
{
	json_t *v;
	struct why why;
	cr_assert_eq(json_parse(text, strlen(text), &v, &why), 0, "%s: %s", text, why.text);
	return v;
}

static int submit(enum api_dialect dialect, const char *text, struct submit **s, struct api_reply *reply,
		  struct api_problem *p)
{
	json_t *request = parsed(text);
	*s = NULL;
	int rc = api_submit(&demo.svc, 2048, request, dialect, 0, s, reply, p);
	json_decref(request);
	return rc;
}

#endif
