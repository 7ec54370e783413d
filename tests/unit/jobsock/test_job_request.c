/* A full queue: the requests that are refused before their prompts are tokenized. */
#include "controller/message/engine_msg.h"
#include "controller/jobsock/job_request.h"
#include "proto/mp.h"
#include "tests/demo_service.h"

#include <criterion/criterion.h>

enum { CONTEXT = 2048 };

static struct demo demo;
static struct engine_load load;

static void start(void)
{
	demo_open(&demo);
	demo.svc.max_queued_jobs = 4;
	demo.svc.max_queued_tokens = 100;
	demo.svc.load = &load;
}

static void stop(void)
{
	demo_close(&demo);
}

TestSuite(full_queue, .init = start, .fini = stop, .timeout = 30);

/* Return the result of parsing a submit; CODE_OK: it would go to the table of jobs. */
static enum code submit(const char *prompt, const char *key, struct why *why)
{
	struct buf b = {0};
	struct job_request r;
	json_t *m = json_pack("{s:s, s:i, s:s, s:s*}", "op", "submit", "id", 1, "prompt", prompt, "key", key);
	mp_encode(&b, m);
	json_decref(m);
	job_request_parse(&r, &demo.svc, CONTEXT, b.p, b.len);
	enum code code = r.op == OP_SUBMIT ? CODE_OK : r.problem.code;
	err_why(why, 0, "%s", r.problem.why);
	job_request_fini(&r);
	buf_fini(&b);
	return code;
}

Test(full_queue, jobs_and_tokens_are_bounded)
{
	struct why why;
	cr_expect_eq(submit("Once", NULL, &why), CODE_OK);
	atomic_store(&load.n_queued, 4);
	cr_expect_eq(submit("Once", NULL, &why), E_OVERLOADED);
	cr_expect_str_eq(why.text, "the queue is full: 4 jobs, 0 tokens wait");
	atomic_store(&load.n_queued, 3);
	atomic_store(&load.queued_tokens, 100);
	cr_expect_eq(submit("Once", NULL, &why), E_OVERLOADED);
	cr_expect_str_eq(why.text, "the queue is full: 3 jobs, 100 tokens wait");
	atomic_store(&load.queued_tokens, 99);
	cr_expect_eq(submit("Once", NULL, &why), CODE_OK);
}

/* E_TOO_LONG is found only by tokenizing the prompt. */
Test(full_queue, prompt_is_not_tokenized)
{
	static struct why why;
	static char prompt[20000];
	memset(prompt, 'x', sizeof prompt - 1);
	cr_expect_eq(submit(prompt, NULL, &why), E_TOO_LONG);
	atomic_store(&load.n_queued, 4);
	cr_expect_eq(submit(prompt, NULL, &why), E_OVERLOADED);
}

Test(full_queue, request_with_a_key_may_be_a_known_job)
{
	struct why why;
	atomic_store(&load.n_queued, 4);
	cr_expect_eq(submit("Once", "mine", &why), CODE_OK);
}

Test(full_queue, without_a_known_load_requests_are_accepted)
{
	struct why why;
	atomic_store(&load.n_queued, 4);
	demo.svc.load = NULL;
	cr_expect_eq(submit("Once", NULL, &why), CODE_OK);
}
