/* Whose turn it is: shares of users. */
#include "controller/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static enum queue_ready ready(const struct seq *s, void *user)
{
	(void)s;
	(void)user;
	return QUEUE_READY;
}

/* Of 400 turns of one token each, how many the first of two users gets. */
static int turns(uint32_t share_a, uint32_t share_b)
{
	struct queue *q = queue_new(INT64_MAX);
	struct group g[2] = {{.user = 1, .share = share_a, .order = 1},
			     {.user = 2, .share = share_b, .order = 2}};
	struct seq s[2] = {{.group = &g[0]}, {.group = &g[1]}};
	int n = 0;
	for (int i = 0; i < 2; i++) {
		queue_join(q, &g[i]);
		queue_push(q, &s[i]);
	}
	for (int i = 0; i < 400; i++) {
		struct seq *next = queue_pick(q, 0, ready, NULL);
		n += next == &s[0];
		queue_charge(q, next->group, 1);
	}
	for (int i = 0; i < 2; i++) {
		queue_remove(q, &s[i]);
		queue_leave(q, &g[i]);
	}
	queue_free(q);
	return n;
}

Test(queue, users_of_one_share_are_served_alike)
{
	cr_expect(turns(1, 1) == 200);
	cr_expect(turns(0, 0) == 200, "no share is 1");
	cr_expect(abs(turns(7, 7) - 200) <= 7);
}

Test(queue, a_larger_share_is_served_more)
{
	cr_expect(abs(turns(3, 1) - 300) <= 3, "%d", turns(3, 1));
	cr_expect(abs(turns(1, 9) - 40) <= 9, "%d", turns(1, 9));
}
