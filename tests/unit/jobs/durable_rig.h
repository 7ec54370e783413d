/* durable_rig.h - the table of jobs (jobs_rig.h) with a real journal, across several runs of the
 * controller. */
#ifndef QUERN_TESTS_UNIT_JOBS_DURABLE_RIG_H
#define QUERN_TESTS_UNIT_JOBS_DURABLE_RIG_H

#include "base/err.h"
#include "controller/jobs/journal.h"
#include "tests/disk.h"
#include "tests/unit/jobs/jobs_rig.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { LIVES_MAX = 64 };

static struct journal *journal;
static struct jobs *crashed[LIVES_MAX]; /* tables of crashed runs, which were never freed */
static int n_crashed;
static struct why why;
static char dir[64], path[128];

static const char text[] = "Once upon a time there was a caf\xc3\xa9. The end.";

/* Operations that the journal's thread reported as stored or failed, for the table's thread. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct {
		char id[JOBS_ID_SIZE], why[256];
		bool end;
		int rc;
	} v[SENT_MAX];
	int n, taken;
} written = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static inline void on_written(void *user, const char *id, bool end, int rc, const char *reason)
{
	(void)user;
	pthread_mutex_lock(&written.lock);
	snprintf(written.v[written.n].id, JOBS_ID_SIZE, "%s", id);
	snprintf(written.v[written.n].why, 256, "%s", reason);
	written.v[written.n].end = end;
	written.v[written.n++].rc = rc;
	pthread_cond_signal(&written.more);
	pthread_mutex_unlock(&written.lock);
}

/* Wait for n more reports of the journal. */
static inline void settle(int n)
{
	for (; n > 0; n--) {
		pthread_mutex_lock(&written.lock);
		while (written.taken == written.n)
			pthread_cond_wait(&written.more, &written.lock);
		int i = written.taken++;
		pthread_mutex_unlock(&written.lock);
		jobs_written(jobs, written.v[i].id, written.v[i].end, written.v[i].rc, written.v[i].why, 10);
		jobs_check(jobs);
	}
}

/* --- runs of the controller --- */

static inline int open_journal(void)
{
	static const char *const tables[] = {jobs_schema, NULL};
	struct journal_config cfg = {.path = path, .model = "m", .schemas = tables};
	return journal_open(&cfg, &journal, &why);
}

static inline int start_service(void)
{
	forget_commands();
	written.n = written.taken = 0;
	int rc = open_journal();
	if (rc)
		return rc;
	jobs = jobs_new(&demo.svc, take_command, NULL);
	rc = jobs_recover(jobs, journal, on_written, 0, &why);
	cr_assert_eq(rc, 0, "%s", why.text);
	jobs_check(jobs);
	return 0;
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

/* End the run without jobs_end(): only the data on the disk remain. */
static inline void crash(void)
{
	journal_end(journal);
	journal_close(journal);
	cr_assert_lt(n_crashed, LIVES_MAX);
	crashed[n_crashed++] = jobs;
	journal = NULL;
	jobs = NULL;
}

static inline void restart(void)
{
	crash();
	cr_assert_eq(start_service(), 0, "%s", why.text);
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
	cr_assert_eq(start_service(), 0, "%s", why.text);
}

static inline void fini(void)
{
	if (jobs)
		stop_service();
	forget_commands();
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

/* --- durable jobs --- */

static inline struct submit *durable_request(const char *key)
{
	struct submit *s = request(true);
	s->params.seed = 7;
	s->params.temperature = 0.5f;
	s->params.stop_ids = xcalloc(1, sizeof *s->params.stop_ids);
	s->params.stop_ids[0] = 1663;
	s->params.n_stop_ids = 1;
	s->durable = s->keep = true;
	s->key = key ? xstrdup(key) : NULL;
	s->user = xstrdup("ann");
	s->priority = -3;
	return s;
}

/* Call start() and wait until the job is on the disk. */
static inline uint64_t start_durable(struct submit *s, struct recorder *r)
{
	uint64_t job = start(s, r);
	settle(1);
	return job;
}

static inline struct job *find(const char *id)
{
	struct job *job = jobs_find(jobs, id);
	cr_assert_not_null(job, "job %s is lost", id);
	return job;
}

/* End the job after this text of its only output, and wait until the end is on the disk. */
static inline void finish(uint64_t job, const char *output)
{
	generate(job, 0, output);
	finish_job(job);
	settle(1);
}

#endif
