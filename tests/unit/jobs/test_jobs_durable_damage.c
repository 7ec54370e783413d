/* Durable jobs in a damaged journal give an error or the right result. */
#include "controller/front.h"
#include "tests/unit/jobs/durable_rig.h"

#include <zmq.h>

TestSuite(durable_damage, .init = init, .fini = fini, .timeout = 120);

static void flip(const char *needle, size_t n, long offset)
{
	char *data;
	size_t bytes;
	FILE *f = fopen(path, "r+");
	fseek(f, 0, SEEK_END);
	bytes = (size_t)ftell(f);
	data = xmalloc(bytes);
	rewind(f);
	cr_assert_eq(fread(data, 1, bytes, f), bytes);
	char *at = memmem(data, bytes, needle, n);
	cr_assert_not_null(at, "the bytes are not in the file");
	long place = at - data + offset;
	fseek(f, place, SEEK_SET);
	fputc(data[place] ^ 0x10, f);
	fclose(f);
	free(data);
}

Test(durable_damage, damaged_request_fails_its_job_alone)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new();
	start_durable(durable_request("needle-in-the-journal"), e);
	start_durable(durable_request("other"), f);
	stop_service();
	/* Flip a byte within the record, where the key's column comes first. */
	static const char in_record[] = "\xc3\xc6\0\0\0\x15needle-in-the-journal";
	flip(in_record, sizeof in_record - 1, 10);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_assert_eq(n_sent, 1);
	settle(1);
	cr_assert(job_finished(find(e->job)));
	jobs_result(jobs, find(e->job), &g->l);
	cr_expect_eq(g->code, E_INTERNAL);
	cr_expect(strstr(g->why, "is damaged"), "%s", g->why);
	cr_expect(!job_finished(find(f->job)));
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
}

Test(durable_damage, damaged_tokens_are_computed_again)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request(NULL), e);
	uint32_t a[] = {300, 301, 302}, b[] = {1300, 1301, 1302, 1303}, c[] = {400};
	tokens(job, 0, a, 3);
	jobs_save(jobs);
	tokens(job, 0, b, 4);
	jobs_save(jobs);
	tokens(job, 0, c, 1);
	stop_service();
	flip((const char *)b, sizeof b, 5);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_assert_eq(n_sent, 1);
	cr_assert_eq(sent[0]->n_had[0], 3);
	cr_expect_eq(memcmp(sent[0]->had, a, sizeof a), 0);
	recorder_free(e);
}

Test(durable_damage, damaged_result_is_an_error)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	finish(start_durable(durable_request(NULL), e), "needle in the text");
	stop_service();
	flip("needle in the text", 18, 3);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->code, E_INTERNAL);
	cr_expect(strstr(f->why, "is damaged"), "%s", f->why);
	recorder_free(e);
	recorder_free(f);
}

/* For each flipped byte, the journal is refused or every listed job is right. */
Test(durable_damage, flipped_bytes_never_give_a_wrong_result)
{
	struct recorder *e[8];
	for (int i = 0; i < 8; i++) {
		char key[8];
		snprintf(key, sizeof key, "k%d", i);
		e[i] = recorder_new();
		uint64_t job = start_durable(durable_request(key), e[i]);
		if (i % 2)
			finish(job, text);
		else
			generate(job, 0, text);
	}
	stop_service();
	char *good, text_of[sizeof text];
	size_t n;
	FILE *f = fopen(path, "r");
	fseek(f, 0, SEEK_END);
	n = (size_t)ftell(f);
	rewind(f);
	good = xmalloc(n);
	cr_assert_eq(fread(good, 1, n, f), n);
	fclose(f);
	int n_refused = 0, n_lives = 0;
	for (size_t at = 40; at < n && n_lives < 400; at += n / 400) {
		n_lives++;
		char bad = (char)(good[at] ^ (1 << at % 8));
		f = fopen(path, "w");
		fwrite(good, 1, n, f);
		fseek(f, (long)at, SEEK_SET);
		fputc(bad, f);
		fclose(f);
		if (start_service()) {
			n_refused++;
			continue;
		}
		for (int i = 0; i < 8; i++) {
			struct job *job = jobs_find(jobs, e[i]->job);
			if (!job || !job_finished(job))
				continue;
			struct recorder *r = recorder_new();
			jobs_result(jobs, job, &r->l);
			if (r->code == CODE_OK && r->done_finish[0] == FINISH_LENGTH) {
				snprintf(text_of, sizeof text_of, "%s", r->done[0].p);
				cr_expect_str_eq(text_of, text, "byte %zu", at);
			}
			recorder_free(r);
		}
		for (int i = 0; i < n_sent; i++)
			for (uint32_t k = 0; sent[i]->n_had && k < sent[i]->n_had[0]; k++)
				cr_expect_eq(sent[i]->had[k], e[0]->tokens[0][k], "byte %zu", at);
		stop_service();
	}
	cr_expect_lt(n_refused, n_lives);
	f = fopen(path, "w");
	fwrite(good, 1, n, f);
	fclose(f);
	free(good);
	for (int i = 0; i < 8; i++)
		recorder_free(e[i]);
}

static void start_front(int good_reads, int *rc)
{
	struct front *front;
	struct front_config cfg = {.journal = journal};
	void *zmq = zmq_ctx_new();
	why.text[0] = '\0';
	atomic_store(&disk.good_reads, good_reads);
	*rc = front_start(zmq, &demo.svc, &cfg, &front, &why);
	atomic_store(&disk.good_reads, -1);
	if (!*rc) {
		front_stop(front);
		front_free(front);
	}
	zmq_ctx_term(zmq);
}

/* The disk fails at any point of the recovery. Jobs read by then are freed, and the next run resumes them. */
Test(durable_damage, unreadable_disk_at_the_start_is_an_error_and_loses_nothing)
{
	enum { JOBS = 6 };
	struct recorder *e[JOBS];
	int rc = -1, n_failed = 0;
	for (int i = 0; i < JOBS; i++) {
		struct submit *s = durable_request(NULL);
		e[i] = recorder_new();
		s->tokens = xrealloc(s->tokens, 2000, sizeof *s->tokens); /* a record of several pages */
		for (s->n_tokens = 0; s->n_tokens < 1900; s->n_tokens++)
			s->tokens[s->n_tokens] = 600 + s->n_tokens % 1000;
		uint64_t job = start_durable(s, e[i]);
		generate(job, 0, "begun");
		if (i % 3 == 1) /* this job ends as soon as it is read */
			jobs_cancel(jobs, find(e[i]->job));
	}
	jobs_save(jobs);
	crash();
	for (int n = 0; rc; n++) {
		cr_assert_eq(open_journal(), 0, "%s", why.text);
		start_front(n, &rc);
		cr_expect(!rc || why.text[0], "%d without a reason", rc);
		n_failed += rc != 0;
		journal_close(journal);
	}
	cr_expect_gt(n_failed, JOBS, "%d", n_failed);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	for (int i = 0; i < JOBS; i++) {
		find(e[i]->job);
		recorder_free(e[i]);
	}
}
