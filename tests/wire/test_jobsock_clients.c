/* The job socket over real sockets: clients that disconnect or do not read, concurrent use of the mailbox,
 * start and stop. */
#include "controller/jobs/lines.h"
#include "tests/wire/jobsock_rig.h"

#include <sys/stat.h>

TestSuite(jobsock_clients, .init = start, .fini = stop, .timeout = 60);

Test(jobsock_clients, jobs_of_a_disconnected_client_are_cancelled)
{
	struct client c;
	client_open(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	client_send_json(&c, "{'op': 'submit', 'id': 2, 'tokens': [5], 'stream': true, 'params': {'n': 8}}");
	json_decref(expect(&c, "accepted"));
	json_decref(client_receive(&c));
	client_close(&c);
	cr_expect(eventually(engine_is_idle));
	cr_expect_eq(atomic_load(&engine.n_submitted), 2);
}

Test(jobsock_clients, kept_job_continues_without_its_client)
{
	struct client c, d;
	char ask[256];
	client_open(&c);
	client_send_json(
		&c,
		"{'op': 'submit', 'id': 1, 'tokens': [5], 'on_disconnect': 'keep', 'params': {'max_tokens': "
		"300}}");
	json_t *v = expect(&c, "accepted");
	client_close(&c);
	client_open(&d);
	snprintf(ask, sizeof ask, "{'op': 'attach', 'id': 1, 'job': '%s', 'from': 290}", str(v, "job"));
	json_decref(v);
	client_send_json(&d, ask);
	do {
		v = client_receive(&d);
		if (strcmp(str(v, "op"), "done") == 0)
			break;
		json_decref(v);
	} while (true);
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "length");
	json_decref(v);
	cr_expect_eq(atomic_load(&engine.n_cancelled), 0);
	client_close(&d);
}

/* --- requests for HTTP routes, held by a fake HTTP server --- */

static struct {
	_Atomic(struct line_request *) request;
	pthread_t front; /* the thread that called lines_put() */
	bool on_front;   /* the reply arrived on that thread */
} held;

static void hold_line(void *user, struct line_request *r, uint64_t tag)
{
	(void)user, (void)tag;
	held.front = pthread_self();
	atomic_store(&held.request, r);
}

static void drop_line(void *user, uint64_t tag)
{
	(void)user, (void)tag;
}

static bool line_is_held(void)
{
	return atomic_load(&held.request) != NULL;
}

static void answer_line(void *user)
{
	struct line_request *r = atomic_load(&held.request);
	struct line_reply reply = {.status = 200};
	(void)user;
	held.on_front = pthread_equal(pthread_self(), held.front);
	buf_puts(&reply.body, "{}");
	r->done(r->user, &reply);
	buf_fini(&reply.body);
	line_request_free(r);
}

static void on_cancelled(void *user, enum code code)
{
	if (code == E_INTERNAL)
		*(bool *)user = true;
}

/* The server replies after the front end has stopped taking commands. */
static void *answer_late(void *user)
{
	bool closed = false;
	for (; !closed; usleep(1000))
		mailbox_cancel(mailbox, "", NULL, on_cancelled, &closed);
	usleep(100000); /* lets the front end run to its end, if it can */
	mailbox_call(mailbox, answer_line, NULL);
	return user;
}

Test(jobsock_clients, a_line_that_is_held_at_the_end_is_replied_to)
{
	struct client c;
	pthread_t late;
	demo.svc.lines = lines_new();
	lines_open(demo.svc.lines, &(struct lines_server){.put = hold_line, .drop = drop_line});
	client_open(&c);
	client_send_json(&c, "{'op': 'request', 'id': 1, 'url': '/v1/completions', 'body': '{}'}");
	cr_assert(eventually(line_is_held));
	cr_assert_eq(pthread_create(&late, NULL, answer_late, NULL), 0);
	front_stop(front);
	pthread_join(late, NULL);
	cr_expect(held.on_front);
	json_t *v = expect(&c, "ok");
	cr_expect_eq(num(v, "status_code"), 200);
	json_decref(v);
	client_close(&c);
	lines_free(demo.svc.lines);
}

static bool four_submitted(void)
{
	return atomic_load(&engine.n_submitted) >= 4;
}

Test(jobsock_clients, short_lived_clients_leave_nothing)
{
	for (int i = 0; i < 50; i++) {
		struct client c;
		int linger = 200;
		client_open(&c);
		zmq_setsockopt(c.socket, ZMQ_LINGER, &linger, sizeof linger);
		client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
		if (i % 3 == 0)
			json_decref(expect(&c, "accepted"));
		client_close(&c);
	}
	cr_expect(eventually(four_submitted));
	struct client d;
	client_open(&d);
	expect_pong(&d);
	cr_expect(eventually(engine_is_idle));
	client_close(&d);
}

Test(jobsock_clients, client_that_does_not_read_loses_only_its_own_stream)
{
	struct client c, d;
	int one = 1;
	client_open(&d);
	/* A client with small buffers that never reads. */
	c.zmq = zmq_ctx_new();
	c.socket = zmq_socket(c.zmq, ZMQ_DEALER);
	zmq_setsockopt(c.socket, ZMQ_RCVHWM, &one, sizeof one);
	int small = 4096, zero = 0;
	zmq_setsockopt(c.socket, ZMQ_RCVBUF, &small, sizeof small);
	zmq_setsockopt(c.socket, ZMQ_LINGER, &zero, sizeof zero);
	cr_assert_eq(zmq_connect(c.socket, front_jobs_endpoint(front)), 0);
	for (int i = 0; i < 20; i++)
		client_send_json(
			&c, "{'op': 'submit', 'id': 1, 'tokens': [5], 'stream': true, 'params': {'n': 64, "
			    "'logprobs': 0}}");
	for (int i = 0; i < 5; i++) {
		struct buf text = {0};
		size_t n;
		client_send_json(&d, "{'op': 'submit', 'id': 2, 'tokens': [5], 'stream': true, 'params': "
				     "{'max_tokens': 10}}");
		json_decref(expect(&d, "accepted"));
		json_decref(expect_stream(&d, &text, &n));
		cr_expect_eq(n, 10);
		buf_fini(&text);
	}
	cr_expect(eventually(engine_is_idle));
	client_close(&c);
	expect_pong(&d);
	client_close(&d);
}

Test(jobsock_clients, many_clients_stream_at_once)
{
	enum { N = 200 };
	static struct client c[N];
	for (int i = 0; i < N; i++) {
		client_open(&c[i]);
		client_send_json(&c[i], "{'op': 'submit', 'id': 1, 'tokens': [5], 'stream': true, 'params': "
					"{'max_tokens': 20}}");
	}
	for (int i = 0; i < N; i++) {
		struct buf text = {0};
		size_t n;
		json_decref(expect(&c[i], "accepted"));
		json_decref(expect_stream(&c[i], &text, &n));
		cr_expect_eq(n, 20);
		buf_fini(&text);
		client_close(&c[i]);
	}
}

/* --- the mailbox, and the service's shutdown --- */

struct event_counts {
	atomic_int accepted, tokens, done, errors, gone;
};

static void on_event(void *user, const struct job_event *e)
{
	struct event_counts *n = user;
	atomic_fetch_add(&n->accepted, e->kind == JOB_ACCEPTED);
	atomic_fetch_add(&n->done, e->kind == JOB_DONE);
	atomic_fetch_add(&n->errors, e->kind == JOB_ERROR);
	if (e->kind == JOB_DELTA)
		atomic_fetch_add(&n->tokens, (int)e->delta.n_tokens);
}

static void on_gone(void *user)
{
	atomic_fetch_add(&((struct event_counts *)user)->gone, 1);
}

static struct submit *small_submit(uint32_t token, uint32_t max)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = max;
	s->tokens = xcalloc(1, sizeof *s->tokens);
	s->tokens[0] = token;
	s->n_tokens = 1;
	s->stream = s->skip_special = true;
	return s;
}

struct submitter {
	struct event_counts *counts;
	int n;
};

static void *submit_many(void *arg)
{
	struct submitter *t = arg;
	for (int i = 0; i < t->n; i++) {
		struct listener l = {on_event, on_gone, &t->counts[i], mailbox_listener_id(mailbox)};
		struct submit *s = small_submit(i % 10 == 9 ? FAKE_HANGS : 5, 5);
		mailbox_submit(mailbox, &s, &l);
		if (i % 10 == 9)
			mailbox_unlisten(mailbox, l.id);
	}
	return NULL;
}

Test(jobsock_clients, threads_submit_and_unlisten_concurrently)
{
	enum { THREADS = 4, EACH = 250 };
	static struct event_counts counts[THREADS][EACH];
	struct submitter t[THREADS];
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		t[i] = (struct submitter){counts[i], EACH};
		pthread_create(&threads[i], NULL, submit_many, &t[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < EACH; k++) {
			struct event_counts *e = &counts[i][k];
			int64_t until = clock_us() + WAIT_MS * 1000LL;
			while (!atomic_load(&e->gone) && clock_us() < until)
				usleep(1000);
			cr_expect_eq(atomic_load(&e->gone), 1);
			if (k % 10 == 9)
				continue;
			cr_expect_eq(atomic_load(&e->accepted), 1);
			cr_expect_eq(atomic_load(&e->done), 1);
			cr_expect_eq(atomic_load(&e->tokens), 5);
		}
	cr_expect(eventually(engine_is_idle));
}

Test(jobsock_clients, readiness_follows_the_engine)
{
	for (int i = 0; i < 3000 && !mailbox_ready(mailbox); i++)
		usleep(10000);
	cr_expect(mailbox_ready(mailbox));
	cr_expect_eq(mailbox_max_context(mailbox), 2048);
}

/* These tests start and stop the service themselves. */

Test(jobsock_life, stop_ends_all_jobs_and_notifies_listeners, .timeout = 60)
{
	struct client c;
	static struct event_counts n;
	start();
	client_open(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_decref(expect(&c, "accepted"));
	struct listener l = {on_event, on_gone, &n, mailbox_listener_id(mailbox)};
	struct submit *s = small_submit(FAKE_HANGS, 5);
	mailbox_submit(mailbox, &s, &l);
	while (!atomic_load(&n.accepted))
		usleep(1000);
	front_stop(front);
	json_t *v = expect(&c, "done");
	cr_expect_str_eq(str(output(v, 0), "finish_reason"), "abort");
	json_decref(v);
	cr_expect_eq(atomic_load(&n.done), 1);
	cr_expect_eq(atomic_load(&n.gone), 1);
	client_close(&c);
	fake_stop(&engine);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

Test(jobsock_life, other_machines_are_refused_unless_insecure, .timeout = 60)
{
	struct front_config cfg = {.jobs = "tcp://0.0.0.0:*"};
	struct why why;
	demo_open(&demo);
	zmq = zmq_ctx_new();
	cr_expect_eq(front_start(zmq, &demo.svc, &cfg, &front, &why), -EPERM);
	cr_expect(strstr(why.text, "--insecure"), "%s", why.text);
	cfg.insecure = true;
	cr_assert_eq(front_start(zmq, &demo.svc, &cfg, &front, &why), 0, "%s", why.text);
	front_stop(front);
	front_free(front);
	zmq_ctx_term(zmq);
	demo_close(&demo);
}

Test(jobsock_life, endpoint_in_use_is_named, .timeout = 60)
{
	struct front_config cfg = {0};
	struct front *other;
	struct why why;
	start();
	snprintf(cfg.jobs, sizeof cfg.jobs, "%s", front_jobs_endpoint(front));
	void *zmq2 = zmq_ctx_new();
	cr_expect_eq(front_start(zmq2, &demo.svc, &cfg, &other, &why), -EADDRINUSE);
	cr_expect(strstr(why.text, cfg.jobs), "%s", why.text);
	zmq_ctx_term(zmq2);
	stop();
}

Test(jobsock_life, unix_socket_is_only_for_its_owner, .timeout = 60)
{
	struct client c;
	struct stat st;
	char path[64], endpoint[80];
	snprintf(path, sizeof path, "/tmp/quern-jobs-%d", getpid());
	snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
	start_at(endpoint);
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 077, 0);
	client_open(&c);
	expect_pong(&c);
	client_send_json(&c, "{'op': 'submit', 'id': 1, 'tokens': [7]}");
	json_decref(expect(&c, "accepted"));
	client_close(&c);
	cr_expect(eventually(engine_is_idle));
	stop();
	unlink(path);
}
