/* cases.h - the paths that are swept, from their beginning to their end. */
#ifndef QUERN_TESTS_INJECT_CASES_H
#define QUERN_TESTS_INJECT_CASES_H

#include <stddef.h>

struct inject_case {
	const char *name;
	/* What the path needs and is no part of it; once per process. */
	void (*prepare)(void);
	/* The path: everything that it made is freed again, whatever came of it.  0, or an error whose
	 * reason is in why. */
	int (*run)(char *why, size_t why_n);
};

extern const struct inject_case inject_cases[];
extern const size_t n_inject_cases;

/* Serving: of the cases, those that start threads (serving.c). */
void serving_prepare(void);
void serving_cleanup(void);
int serving_http(char *why, size_t why_n);
int serving_upload(char *why, size_t why_n);
int serving_jobs(char *why, size_t why_n);
int serving_journal(char *why, size_t why_n);

/* Keys in files; the list of those that are let in (keys.c). */
void keys_prepare(void);
int keys_files(char *why, size_t why_n);
int keys_api(char *why, size_t why_n);
int keys_allow(char *why, size_t why_n);

/* Workers and the engine that they work for (workers.c): one worker; more and fewer while it runs; a
 * group of two. */
void workers_prepare(void);
int workers_serve(char *why, size_t why_n);
int workers_scale(char *why, size_t why_n);
int workers_group(char *why, size_t why_n);

#endif
