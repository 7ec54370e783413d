/* Batch sizes that decoding steps are padded to, and the steps that are padded. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/graphs.h"
#include "worker/tp_group.h"

#include <pthread.h>

/* Beyond 8 rows a step is padded by at most a third, and never above the largest size. */
Test(graphs, sizes_lie_close_and_end_with_the_largest)
{
	int sizes[GRAPHS_MAX];
	cr_assert_eq(graphs_sizes(0, sizes), 0);
	for (int most = 1; most <= 4096; most++) {
		const int n = graphs_sizes(most, sizes), last = most < 512 ? most : 512;
		cr_assert(n >= 1 && n <= GRAPHS_MAX);
		cr_assert_eq(sizes[0], 1);
		cr_assert_eq(sizes[n - 1], last);
		for (int i = 1; i < n; i++) {
			cr_assert_gt(sizes[i], sizes[i - 1], "of %d", most);
			const int pads = sizes[i] - sizes[i - 1] - 1;
			cr_assert_leq(pads,
				      sizes[i] <= 8     ? 3
				      : sizes[i] <= 256 ? 7
							: 15,
				      "of %d: %d", most, sizes[i]);
		}
	}
}

/* ---- a fake device that counts ---- */

static _Thread_local struct {
	int kept, launched, freed, fail_at, error; /* fail_at: number of the failing graph, from 1; 0: none */
	int64_t bytes_free;
	int pad_to;
} dev;

static void info(struct kern_dev *d, struct kern_info *out)
{
	(void)d;
	*out = (struct kern_info){.bytes_free = dev.bytes_free};
}

static int batch_set(struct kern_stream *s, const struct kern_batch *b)
{
	(void)s;
	cr_assert(b->n_rows == 0 && b->n_seqs == 0 && b->n_logits == 0);
	dev.pad_to = b->pad_to;
	return 0;
}

static int nothing(struct kern_stream *s)
{
	(void)s;
	return 0;
}

static int end(struct kern_stream *s, struct kern_graph **out)
{
	(void)s;
	if (++dev.kept == dev.fail_at) {
		*out = NULL;
		return dev.error;
	}
	dev.bytes_free -= 1000;
	*out = (struct kern_graph *)(uintptr_t)dev.pad_to;
	return 0;
}

static int launch(struct kern_stream *s, struct kern_graph *g)
{
	(void)s;
	dev.launched = (int)(uintptr_t)g;
	return 0;
}

static void free_graph(struct kern_graph *g)
{
	dev.freed += g != NULL;
}

/* The fake model only records the number of rows. */
int model_forward(struct model *m, struct kern_kv *kv, const int32_t *tokens, int n_rows)
{
	(void)m;
	(void)kv;
	(void)tokens;
	cr_assert_eq(n_rows, dev.pad_to);
	return 0;
}

int model_head(struct model *m, int n_logits)
{
	(void)m;
	cr_assert_eq(n_logits, dev.pad_to);
	return 0;
}

static const struct kern_ops ops = {
	.info = info,
	.batch_set = batch_set,
	.stream_sync = nothing,
	.graph_begin = nothing,
	.graph_end = end,
	.graph_launch = launch,
	.graph_free = free_graph,
};

static int rising;

static void progress(void *arg, unsigned permille)
{
	(void)arg;
	cr_assert((int)permille > rising && permille <= 1000);
	rising = (int)permille;
}

static int make(struct graphs **g, const struct kern_ops *with, int max_rows, struct why *why)
{
	const struct graphs_args a = {.ops = with, .max_rows = max_rows, .progress = progress};
	dev.bytes_free = 100000;
	return graphs_new(g, &a, why);
}

static int pick(const struct graphs *g, int rows, int seqs, int logits)
{
	const struct kern_batch b = {.n_rows = rows, .n_seqs = seqs, .n_logits = logits};
	return graphs_pick(g, &b);
}

Test(graphs, a_step_takes_the_least_size_that_holds_its_rows_and_logits)
{
	struct why why = {""};
	struct graphs *g;
	cr_assert_eq(make(&g, &ops, 40, &why), 0, "%s", why.text);
	cr_assert_eq(rising, 1000);
	cr_assert_eq(graphs_count(g), 8);
	cr_assert_eq(graphs_bytes(g), 8000);
	cr_assert_eq(pick(g, 1, 1, 1), 1);
	cr_assert_eq(pick(g, 3, 3, 3), 4);
	cr_assert_eq(pick(g, 3, 3, 9), 16, "forks want more rows of logits than there are rows");
	cr_assert_eq(pick(g, 33, 33, 1), 40);
	cr_assert_eq(pick(g, 41, 41, 41), 0, "more than the largest");
	cr_assert_eq(pick(g, 5, 4, 4), 0, "a run of two rows");
	cr_assert_eq(pick(g, 2, 2, 0), 0, "nothing is wanted");
	cr_assert_eq(graphs_launch(g, 24), 0);
	cr_assert_eq(dev.launched, 24);
	cr_assert_eq(graphs_launched(g), 1);
	graphs_free(g);
	cr_assert_eq(dev.freed, 8);
}

Test(graphs, where_memory_ends_the_small_sizes_are_kept)
{
	struct why why = {""};
	struct graphs *g;
	dev.fail_at = 5;
	dev.error = -ENOMEM;
	cr_assert_eq(make(&g, &ops, 40, &why), 0, "%s", why.text);
	cr_assert_eq(graphs_count(g), 4);
	cr_assert_eq(pick(g, 8, 8, 8), 8);
	cr_assert_eq(pick(g, 9, 9, 9), 0);
	graphs_free(g);
	cr_assert_eq(dev.freed, 4);
}

/* ---- a group: each rank is a thread with a fake device ---- */

struct rank {
	struct tp_group_args join;
	int fail_at, error, kept, freed, rc;
	struct why why;
};

static void *rank_main(void *arg)
{
	struct rank *r = arg;
	struct tp_group *group;
	struct graphs *g;
	if ((r->rc = tp_group_join(&group, &r->join, &r->why)))
		return NULL;
	const struct graphs_args a = {.ops = &ops, .group = group, .max_rows = 40};
	dev.fail_at = r->fail_at;
	dev.error = r->error;
	r->rc = graphs_new(&g, &a, &r->why);
	r->kept = graphs_count(g);
	graphs_free(g);
	r->freed = dev.freed;
	bool ok = true; /* the other rank reads the last message */
	tp_group_all(group, &ok);
	tp_group_leave(group);
	return NULL;
}

static void run_ranks(struct rank ranks[2])
{
	struct tp_group_rendezvous *mine = NULL;
	struct why why;
	char rendezvous[COLL_RENDEZVOUS_SIZE];
	pthread_t threads[2];
	cr_assert_eq(tp_group_rendezvous_new(&mine, "cpu", rendezvous, &why), 0, "%s", why.text);
	for (int i = 0; i < 2; i++) {
		ranks[i].join = (struct tp_group_args){.device = "cpu",
						       .epoch = 1,
						       .rank = i,
						       .n_ranks = 2,
						       .rendezvous = rendezvous,
						       .mine = i ? NULL : &mine,
						       .max_cols = 1,
						       .timeout_ms = 60000};
		cr_assert_eq(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	tp_group_rendezvous_free(mine);
}

/* All ranks launch the same graph, or none: a rank that launched alone would wait forever. */
Test(graphs, ranks_keep_the_sizes_that_all_of_them_have)
{
	struct rank ranks[2] = {[1] = {.fail_at = 4, .error = -ENOMEM}};
	run_ranks(ranks);
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(ranks[i].rc, 0, "rank %d: %s", i, ranks[i].why.text);
		cr_expect_eq(ranks[i].kept, 3, "rank %d keeps %d", i, ranks[i].kept);
	}
	cr_expect_eq(ranks[0].freed, 4, "also the one that the other could not make");
}

Test(graphs, a_device_that_cannot_keep_a_step_is_told_with_what_to_do)
{
	struct why why = {""};
	struct graphs *g;
	dev.fail_at = 2;
	dev.error = -EIO;
	cr_assert_eq(make(&g, &ops, 40, &why), -EIO);
	cr_assert(g == NULL && strstr(why.text, "--no-graphs"), "%s", why.text);
	cr_assert_eq(dev.freed, 1);
}

Test(graphs, a_table_without_graphs_has_none)
{
	struct why why = {""};
	struct graphs *g;
	struct kern_ops without = ops;
	without.graph_begin = NULL;
	cr_assert_eq(make(&g, &without, 40, &why), 0);
	cr_assert(g == NULL);
	cr_assert_eq(pick(g, 1, 1, 1), 0);
	cr_assert_eq(graphs_bytes(g), 0);
	graphs_free(g);
}
