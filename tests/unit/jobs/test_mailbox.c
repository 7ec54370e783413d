/* The mailbox: the order of commands, and answers after it is closed. */
#include "controller/jobs/mailbox.h"

#include "base/alloc.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <string.h>

static struct mailbox *mailbox;

/* Calls of each callback, and the last arguments. */
static struct {
	int n_event, n_gone, n_status, n_done, n_snapshot, n_cancelled;
	enum code event, done, cancelled;
	bool gone_last; /* gone() came after the event */
} calls;

static void on_event(void *user, const struct job_event *e)
{
	(void)user;
	cr_assert_eq(e->kind, JOB_ERROR);
	calls.n_event++;
	calls.event = e->code;
}

static void on_gone(void *user)
{
	(void)user;
	calls.gone_last = calls.n_event > 0;
	calls.n_gone++;
}

static void on_status(void *user, const struct engine_status *s)
{
	cr_expect_null(s);
	cr_expect_eq(user, &calls);
	calls.n_status++;
}

static void on_done(void *user, enum code code, const char *why)
{
	cr_expect_eq(user, &calls);
	cr_expect_not_null(why);
	calls.n_done++;
	calls.done = code;
}

static void on_snapshot(void *user, struct mailbox_snapshot *s)
{
	cr_expect_eq(user, &calls);
	cr_expect_null(s->status);
	cr_expect_null(s->jobs);
	calls.n_snapshot++;
}

static void on_cancelled(void *user, enum code code)
{
	cr_expect_eq(user, &calls);
	calls.n_cancelled++;
	calls.cancelled = code;
}

static void start(void)
{
	mailbox = mailbox_new(512);
	cr_assert_not_null(mailbox);
}

static void stop(void)
{
	mailbox_free(mailbox);
}

TestSuite(mailbox, .init = start, .fini = stop, .timeout = 30);

/* Send one command of each kind that clients send. */
static void send_all(void)
{
	struct submit *s = xcalloc(1, sizeof *s);
	struct engine_cmd *order = xcalloc(1, sizeof *order);
	struct listener l = {on_event, on_gone, NULL, mailbox_listener_id(mailbox)};
	params_init(&s->params);
	params_init(&order->params);
	mailbox_submit(mailbox, &s, &l);
	mailbox_status(mailbox, on_status, &calls);
	mailbox_order(mailbox, &order, on_done, &calls);
	mailbox_snapshot(mailbox, 8, 3, on_snapshot, &calls);
	mailbox_cancel(mailbox, "0123", "alice", on_cancelled, &calls);
	mailbox_cancel(mailbox, "4567", NULL, NULL, NULL);
	mailbox_unlisten(mailbox, l.id);
	mailbox_written(mailbox, "89ab", true, -5, "the disk");
	cr_expect_null(s, "taken");
	cr_expect_null(order, "taken");
}

static bool is_readable(void)
{
	struct pollfd p = {.fd = mailbox_fd(mailbox), .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

Test(mailbox, commands_come_in_the_order_in_which_they_were_sent)
{
	static const enum mailbox_cmd_kind kinds[] = {MAILBOX_SUBMIT,   MAILBOX_STATUS, MAILBOX_ORDER,
						      MAILBOX_SNAPSHOT, MAILBOX_CANCEL, MAILBOX_CANCEL,
						      MAILBOX_UNLISTEN, MAILBOX_SETTLED};
	size_t n = 0;
	cr_expect_not(is_readable());
	send_all();
	cr_expect(is_readable());
	struct mailbox_cmd *next, *c = mailbox_take(mailbox, false);
	cr_expect_not(is_readable());
	for (; c; c = next, n++) {
		next = c->next;
		cr_assert_lt(n, sizeof kinds / sizeof *kinds);
		cr_expect_eq(c->kind, kinds[n], "command %zu", n);
		if (n == 3)
			cr_expect(c->n_cells == 8 && c->max_jobs == 3);
		if (n == 4)
			cr_expect(!strcmp(c->job, "0123") && !strcmp(c->owner, "alice"));
		if (n == 5)
			cr_expect(!strcmp(c->job, "4567") && !c->owner);
		if (n == 7)
			cr_expect(!strcmp(c->job, "89ab") && c->end && c->rc == -5 &&
				  !strcmp(c->why, "the disk"));
		mailbox_cmd_free(c);
	}
	cr_expect_eq(n, sizeof kinds / sizeof *kinds);
	cr_expect_null(mailbox_take(mailbox, false));
	cr_expect_eq(calls.n_event + calls.n_gone + calls.n_status + calls.n_done, 0);
	/* Once more, after the list was emptied. */
	mailbox_unlisten(mailbox, 7);
	c = mailbox_take(mailbox, false);
	cr_assert_not_null(c);
	cr_expect_eq(c->listener_id, 7);
	mailbox_cmd_free(c);
}

/* The HTTP threads outlive the front end's thread, so an unanswered request would never end. */
Test(mailbox, a_closed_mailbox_answers_each_command_once_at_once)
{
	cr_expect_null(mailbox_take(mailbox, true));
	send_all();
	cr_expect(calls.n_event == 1 && calls.event == E_NOT_READY);
	cr_expect(calls.n_gone == 1 && calls.gone_last);
	cr_expect_eq(calls.n_status, 1);
	cr_expect(calls.n_done == 1 && calls.done == E_NOT_READY);
	cr_expect_eq(calls.n_snapshot, 1);
	cr_expect(calls.n_cancelled == 1 && calls.cancelled == E_INTERNAL);
	cr_expect_not(is_readable());
	cr_expect_null(mailbox_take(mailbox, true));
}

Test(mailbox, commands_that_nothing_took_are_freed)
{
	send_all();
	mailbox_connect(mailbox);
	mailbox_quit(mailbox);
}
