/* durable_rig.h - the table of jobs with a real journal, through several lives of the controller; the
 * engine is made up by the test. */
#ifndef QUERN_TESTS_DURABLE_RIG_H
#define QUERN_TESTS_DURABLE_RIG_H

#include "base/alloc.h"
#include "controller/jobs.h"
#include "controller/journal.h"
#include "tests/demo_service.h"
#include "tests/disk.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { SENT_MAX = 256, LIVES_MAX = 64 };

static struct demo demo;
static struct journal *journal;
static struct jobs *jobs;
static struct jobs *ended[LIVES_MAX]; /* by a crash: nobody tidied up */
static int n_ended;
static struct engine_cmd *sent[SENT_MAX];
static int n_sent;
static char dir[64], path[128], why[512];
static uint64_t last_listener;
static const char *numerics = "class a"; /* of the replica that chooses tokens */

/* What the journal's thread says, for ours. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct {
		char id[JOBS_ID_SIZE], why[256];
		bool end;
		int rc;
	} v[SENT_MAX];
	int n, taken;
} said = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static inline void take_command(void *user, struct engine_cmd *c)
{
	(void)user;
	cr_assert_lt(n_sent, SENT_MAX);
	sent[n_sent++] = c;
}

static inline void on_settled(void *user, const char *id, bool end, int rc, const char *text)
{
	(void)user;
	pthread_mutex_lock(&said.lock);
	snprintf(said.v[said.n].id, JOBS_ID_SIZE, "%s", id);
	snprintf(said.v[said.n].why, 256, "%s", text);
	said.v[said.n].end = end;
	said.v[said.n++].rc = rc;
	pthread_cond_signal(&said.more);
	pthread_mutex_unlock(&said.lock);
}

/* Until the journal has told n more things. */
static inline void settle(int n)
{
	for (; n > 0; n--) {
		pthread_mutex_lock(&said.lock);
		while (said.taken == said.n)
			pthread_cond_wait(&said.more, &said.lock);
		int i = said.taken++;
		pthread_mutex_unlock(&said.lock);
		jobs_settled(jobs, said.v[i].id, said.v[i].end, said.v[i].rc, said.v[i].why, 10);
		jobs_check(jobs);
	}
}

static inline int begin_life(void)
{
	for (int i = 0; i < n_sent; i++)
		engine_cmd_free(sent[i]);
	n_sent = 0;
	said.n = said.taken = 0;
	int rc =
		journal_open(&(struct journal_config){.path = path, .model = "m"}, &journal, why, sizeof why);
	if (rc)
		return rc;
	jobs = jobs_new(&demo.svc, take_command, NULL);
	rc = jobs_recover(jobs, journal, on_settled, 0, why, sizeof why);
	cr_assert_eq(rc, 0, "%s", why);
	jobs_check(jobs);
	return 0;
}

static inline void crash(void)
{
	journal_end(journal);
	journal_close(journal);
	cr_assert_lt(n_ended, LIVES_MAX);
	ended[n_ended++] = jobs;
	journal = NULL;
	jobs = NULL;
}

static inline void stop_service(void)
{
	jobs_end(jobs, 0);
	journal_end(journal);
	jobs_check(jobs);
	jobs_free(jobs);
	journal_close(journal);
	journal = NULL;
	jobs = NULL;
}

static inline void reborn(void)
{
	crash();
	cr_assert_eq(begin_life(), 0, "%s", why);
}

static inline void init(void)
{
	disk_install();
	demo_open(&demo);
	demo.svc.keep_durable_us = 3600 * 1000000LL;
	demo.svc.journal_bytes = 1 << 30;
	snprintf(dir, sizeof dir, "/tmp/quern-durable-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	cr_assert_eq(begin_life(), 0, "%s", why);
}

static inline void fini(void)
{
	if (jobs)
		stop_service();
	for (int i = 0; i < n_sent; i++)
		engine_cmd_free(sent[i]);
	DIR *d = opendir(dir);
	for (struct dirent *e; (e = readdir(d));) {
		char name[512];
		snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
		unlink(name);
	}
	closedir(d);
	rmdir(dir);
	demo_close(&demo);
}

/* --- a listener --- */

struct ear {
	struct listener l;
	struct buf said, text[4], done[4];
	uint32_t tokens[256], n_tokens, n_done[4];
	enum finish finish[4];
	char stop_string[32];
	double cumulative;
	int64_t total_us;
	char job[JOBS_ID_SIZE];
	enum code code;
	char why[512];
};

static inline void hear(void *user, const struct job_event *ev)
{
	static const char *const names[] = {"accepted", "delta", "done", "error"};
	struct ear *e = user;
	buf_printf(&e->said, "%s ", names[ev->kind]);
	if (ev->job)
		snprintf(e->job, sizeof e->job, "%s", ev->job);
	if (ev->kind == JOB_DELTA) {
		buf_put(&e->text[ev->delta.index], ev->delta.text, ev->delta.text_n);
		for (uint32_t i = 0; ev->delta.index == 0 && i < ev->delta.n_tokens; i++)
			e->tokens[e->n_tokens++] = ev->delta.tokens[i];
	}
	for (uint32_t i = 0; ev->kind == JOB_DONE && i < ev->n_outputs; i++) {
		const struct output_view *o = &ev->outputs[i];
		buf_put(&e->done[i], o->text, o->text_n);
		e->n_done[i] = o->n_tokens;
		e->finish[i] = o->finish;
		e->cumulative = o->cumulative_logprob;
		if (o->stop_string)
			snprintf(e->stop_string, sizeof e->stop_string, "%s", o->stop_string);
	}
	e->total_us = ev->total_us;
	if (ev->kind == JOB_ERROR) {
		e->code = ev->code;
		snprintf(e->why, sizeof e->why, "%s", ev->why);
	}
}

static inline void hear_gone(void *user)
{
	buf_puts(&((struct ear *)user)->said, "gone");
}

static inline struct ear *ear_new(void)
{
	struct ear *e = xcalloc(1, sizeof *e);
	e->l = (struct listener){hear, hear_gone, e, ++last_listener};
	buf_puts(&e->said, "");
	for (int i = 0; i < 4; i++) {
		buf_puts(&e->text[i], "");
		buf_puts(&e->done[i], "");
	}
	return e;
}

static inline void ear_free(struct ear *e)
{
	buf_fini(&e->said);
	for (int i = 0; i < 4; i++) {
		buf_fini(&e->text[i]);
		buf_fini(&e->done[i]);
	}
	free(e);
}

/* --- the engine's side --- */

static inline struct submit *request(const char *key)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = 100;
	s->params.seed = 7;
	s->params.temperature = 0.5f;
	s->params.stop_ids = xcalloc(1, sizeof *s->params.stop_ids);
	s->params.stop_ids[0] = 1663;
	s->params.n_stop_ids = 1;
	s->tokens = xcalloc(3, sizeof *s->tokens);
	s->tokens[1] = 11;
	s->tokens[2] = 12;
	s->n_tokens = 3;
	s->stream = true;
	s->skip_special = true;
	s->durable = s->keep = true;
	s->key = key ? xstrdup(key) : NULL;
	s->user = xstrdup("ann");
	s->priority = -3;
	return s;
}

static inline void accept_job(uint64_t number)
{
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = number}, 0);
}

/* Submitted, accepted, on the disk; the engine's number of the job. */
static inline uint64_t start(struct submit *s, struct ear *e)
{
	jobs_submit(jobs, &s, &e->l, 0);
	cr_assert_gt(n_sent, 0, "refused: %s", e->why);
	cr_assert_eq(sent[n_sent - 1]->kind, ENGINE_SUBMIT);
	uint64_t number = sent[n_sent - 1]->job;
	accept_job(number);
	settle(1);
	return number;
}

static inline void tokens(uint64_t job, uint32_t index, const uint32_t *ids, size_t n)
{
	struct engine_token t[256];
	uint32_t top_ids[256];
	float top[256];
	for (size_t i = 0; i < n; i++) {
		t[i] = (struct engine_token){.job = job,
					     .index = index,
					     .token = ids[i],
					     .logprob = -0.5f,
					     .rank = 1,
					     .n_top = 1,
					     .top0 = (uint32_t)i,
					     .stop = ids[i] == 1663};
		top_ids[i] = ids[i];
		top[i] = -0.5f;
	}
	struct engine_event e = {.kind = ENGINE_TOKENS,
				 .tokens = t,
				 .n_tokens = (uint32_t)n,
				 .top_ids = top_ids,
				 .top_logprobs = top};
	snprintf(e.numerics, sizeof e.numerics, "%s", numerics);
	jobs_event(jobs, &e, 0);
	jobs_check(jobs);
}

static inline struct token_ids encode(const char *text)
{
	struct token_ids ids = {0};
	cr_assert_eq(tokenizer_encode(demo.tokenizer, text, strlen(text), 0, NULL, 0, &ids, why, sizeof why),
		     0);
	return ids;
}

static inline uint32_t say(uint64_t job, uint32_t index, const char *text)
{
	struct token_ids ids = encode(text);
	for (size_t i = 0; i < ids.n; i++)
		tokens(job, index, ids.ids + i, 1);
	uint32_t n = (uint32_t)ids.n;
	token_ids_fini(&ids);
	return n;
}

static inline void output_done(uint64_t job, uint32_t index, enum finish finish, int64_t token)
{
	struct engine_event e = {.kind = ENGINE_OUTPUT_DONE,
				 .job = job,
				 .index = index,
				 .finish = finish,
				 .stop_token = token};
	jobs_event(jobs, &e, 0);
}

static inline void job_done(uint64_t job)
{
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_JOB_DONE, .job = job, .total_us = 77}, 0);
	jobs_check(jobs);
}

static inline struct job *find(const char *id)
{
	struct job *job = jobs_find(jobs, id);
	cr_assert_not_null(job, "job %s is lost", id);
	return job;
}

static const char text[] = "Once upon a time there was a caf\xc3\xa9. The end.";

static inline void finish(uint64_t job, const char *what)
{
	say(job, 0, what);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	settle(1);
}

#endif
