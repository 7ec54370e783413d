/* A pulled model: the disk's state when a file, and then the model, get their final names. */
#include "cli/models/cache.h"
#include "cli/models/part.h"

#include "base/file.h"
#include "tests/synced_renames.h"

#include <sys/stat.h>

#define SHA256_OF_HELLO "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static struct why why;
static char root[] = "/tmp/quern-pulled-XXXXXX";

static void make(void)
{
	cr_assert(mkdtemp(root));
	setenv("QUERN_MODELS", root, 1);
}

static void drop(void)
{
	char command[64];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(pulled, .init = make, .fini = drop);

/* Write a file of five bytes that arrive at once. */
static void fetch(const char *dir, const struct file_entry *f)
{
	struct part p = {0};
	bool caught_up = false;
	cr_assert_eq(part_open(&p, dir, f, &why), 0, "%s", why.text);
	cr_assert_eq(part_write(&p, part_free_piece(&p), "hello", 5, &why), 0, "%s", why.text);
	cr_assert_eq(part_hash(&p, INT64_MAX, &caught_up, &why), 0, "%s", why.text);
	cr_assert(caught_up && part_is_complete(&p));
	cr_assert_eq(part_finish(&p, &why), 0, "%s", why.text);
	part_close(&p);
}

Test(pulled, each_file_and_the_model_are_on_the_disk_before_they_have_their_names)
{
	struct file_entry files[] = {
		{.path = "config.json",
		 .size = 5,
		 .digest = DIGEST_SHA256,
		 .hex = SHA256_OF_HELLO,
		 .chosen = true},
		{.path = "1_Pooling/config.json", .size = 5, .digest = DIGEST_NONE, .chosen = true},
	};
	struct file_list l = {.files = files, .n = 2, .commit = "0123456789abcdef0123456789abcdef01234567"};
	struct source s = {
		.kind = SOURCE_HUB, .endpoint = "https://hub", .name = "org/name", .revision = "main"};
	struct cache_target place;
	cr_assert_eq(cache_target_open(&place, s.name, l.commit, &why), 0, "%s", why.text);
	cr_assert_eq(cache_target_stage(&place, &l, &why), 0, "%s", why.text);
	synced_below = root;
	for (size_t i = 0; i < l.n; i++)
		fetch(place.staging, &files[i]);
	cr_assert_eq(cache_target_publish(&place, &s, &l, &why), 0, "%s", why.text);
	synced_below = NULL;
	cr_expect_geq(synced_expect(), 4);
	cr_expect(cache_target_has(&place, &l));
	cache_target_close(&place);
}
