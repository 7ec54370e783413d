/* The file of crossovers that --fast reads: one measurement holds for one device and one build. */
#include "worker/tune.h"

#include "base/file.h"
#include "bench/kernels_tune.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tune got; /* static: too large for the stack */

static const char good[] =
	"{\"quern_tune\": 1, \"device\": \"NVIDIA H200\", \"isa\": \"sm_90\", \"build\": \"abc\","
	" \"comment\": [1, 2], \"layers\": ["
	"{\"type\": \"awq\", \"k\": 4096, \"n\": 6144, \"above\": 96, \"why\": {}},"
	"{\"type\": \"f16\", \"k\": 4096, \"n\": 151936, \"above\": null},"
	"{\"type\": \"bf16\", \"above\": 0}]}";

/* ---- a temporary folder ---- */

static char folder[64];

static void make_folder(void)
{
	snprintf(folder, sizeof folder, "/tmp/quern-tune-XXXXXX");
	cr_assert(mkdtemp(folder) != NULL);
}

static void remove_folder(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
	static char path[4][256];
	static int next;
	char *p = path[next++ % 4];
	snprintf(p, sizeof path[0], "%s/%s", folder, name);
	return p;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	cr_assert(f != NULL);
	fputs(text, f);
	fclose(f);
}

/* ---- reading ---- */

Test(tune, a_file_has_the_crossovers_of_layers)
{
	struct why why;
	cr_assert_eq(tune_parse(&got, good, strlen(good), &why), 0, "%s", why.text);
	cr_assert_str_eq(got.device, "NVIDIA H200");
	cr_assert_str_eq(got.isa, "sm_90");
	cr_assert_str_eq(got.build, "abc");
	cr_assert_eq(got.n, 3);
	cr_assert(got.layers[0].dtype == KERN_AWQ4 && got.layers[0].k == 4096 && got.layers[0].n == 6144);
	cr_assert_eq(got.layers[0].rows, 96);
	cr_assert(got.layers[1].dtype == KERN_F16 && got.layers[1].rows == INT_MAX);
	cr_assert(got.layers[2].dtype == KERN_BF16 && got.layers[2].rows == 0 && got.layers[2].k == 0);
}

Test(tune, an_error_is_named_and_nothing_is_kept)
{
#define HEAD   "{\"quern_tune\": 1, \"device\": \"d\", \"isa\": \"i\", \"build\": \"b\", \"layers\": "
#define LAYERS HEAD "[{\"type\": \"awq\", \"k\": 8, \"n\": 8, \"above\": 1}, "
	static const struct {
		const char *text, *word;
	} bad[] = {
		{"", "JSON"},
		{"{", "JSON"},
		{"[]", "object"},
		{"7", "object"},
		{"{}", "quern_tune"},
		{"{\"quern_tune\": 2}", "quern_tune"},
		{"{\"quern_tune\": \"1\"}", "quern_tune"},
		{"{\"quern_tune\": 1}", "device"},
		{"{\"quern_tune\": 1, \"device\": 5}", "device"},
		{"{\"quern_tune\": 1, \"device\": \"\"}", "device"},
		{"{\"quern_tune\": 1, \"device\": "
		 "\"1234567890123456789012345678901234567890123456789012345678901234\"}",
		 "device"},
		{"{\"quern_tune\": 1, \"device\": \"d\"}", "isa"},
		{"{\"quern_tune\": 1, \"device\": \"d\", \"isa\": \"i\"}", "build"},
		{"{\"quern_tune\": 1, \"device\": \"d\", \"isa\": \"i\", \"build\": \"b\"}", "layers"},
		{HEAD "{}}", "layers"},
		{HEAD "[7]}", "layer 0"},
		{HEAD "[{}]}", "type"},
		{HEAD "[{\"type\": \"f32\"}]}", "awq, f16 or bf16"},
		{HEAD "[{\"type\": 3}]}", "type"},
		{LAYERS "{\"type\": \"awq\"}]}", "layer 1: \"above\""},
		{LAYERS "{\"type\": \"awq\", \"n\": 8, \"above\": 1}]}", "layer 1: \"k\""},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"above\": 1}]}", "layer 1: \"n\""},
		{LAYERS "{\"type\": \"awq\", \"k\": 0, \"n\": 8, \"above\": 1}]}", "k"},
		{LAYERS "{\"type\": \"awq\", \"k\": 4294967304, \"n\": 8, \"above\": 1}]}", "k"},
		{LAYERS "{\"type\": \"awq\", \"k\": 1.5, \"n\": 8, \"above\": 1}]}", "k"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": -8, \"above\": 1}]}", "n"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": 16}]}", "above"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": 16, \"above\": -1}]}", "above"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": 16, \"above\": 99999999}]}", "above"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": 16, \"above\": \"all\"}]}", "above"},
		{LAYERS "{\"type\": \"awq\", \"k\": 8, \"n\": 8, \"above\": 2}]}", "the same layer as 0"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct why why = {""};
		memset(&got, 0x55, sizeof got);
		cr_assert_eq(tune_parse(&got, bad[i].text, strlen(bad[i].text), &why), -EINVAL, "%s",
			     bad[i].text);
		cr_assert(strstr(why.text, bad[i].word), "%s: %s", bad[i].text, why.text);
		cr_assert_eq(got.n, 0);
	}
}

Test(tune, too_many_layers_are_refused)
{
	struct why why = {""};
	char *text = malloc(TUNE_LAYERS_MAX * 80), *p = text;
	p += sprintf(p, HEAD "[");
	for (int i = 0; i <= TUNE_LAYERS_MAX; i++)
		p += sprintf(p, "%s{\"type\": \"awq\", \"k\": %d, \"n\": 8, \"above\": 1}", i ? "," : "",
			     i + 1);
	sprintf(p, "]}");
	cr_assert_eq(tune_parse(&got, text, strlen(text), &why), -EINVAL);
	cr_assert(strstr(why.text, "layers"), "%s", why.text);
	free(text);
}

Test(tune, an_invalid_file_is_named_with_the_remedy, .init = make_folder, .fini = remove_folder)
{
	struct why why = {""};
	write_file(in_folder("x.json"), "{\"quern_tune\": 9}");
	cr_assert_eq(tune_read(&got, in_folder("x.json"), &why), -EINVAL);
	cr_assert(strstr(why.text, "x.json") && strstr(why.text, "quern_tune") && strstr(why.text, "--tune"),
		  "%s", why.text);
	cr_assert_eq(tune_read(&got, in_folder("none.json"), &why), -ENOENT);
	cr_assert(strstr(why.text, "none.json"), "%s", why.text);
}

/* ---- writing ---- */

Test(tune, a_written_file_is_read_back, .init = make_folder, .fini = remove_folder)
{
	static struct tune t;
	struct why why = {""};
	const char *path = in_folder("a/b/t.json");
	cr_assert_eq(tune_parse(&t, good, strlen(good), &why), 0);
	cr_assert_eq(tune_write(&t, path, &why), 0, "%s", why.text); /* creates the folders */
	cr_assert_eq(tune_read(&got, path, &why), 0, "%s", why.text);
	cr_assert(memcmp(&t, &got, sizeof t) == 0);
	t.n = 1;
	cr_assert_eq(tune_write(&t, path, &why), 0, "%s", why.text); /* replaces the file */
	cr_assert_eq(tune_read(&got, path, &why), 0, "%s", why.text);
	cr_assert_eq(got.n, 1);
}

Test(tune, a_failure_to_write_has_its_reason, .init = make_folder, .fini = remove_folder)
{
	static struct tune t;
	struct why why = {""};
	cr_assert_eq(tune_parse(&t, good, strlen(good), &why), 0);
	write_file(in_folder("file"), "");
	cr_assert_lt(tune_write(&t, in_folder("file/t.json"), &why), 0);
	cr_assert(strstr(why.text, "file/t.json"), "%s", why.text);
}

Test(tune, the_file_name_is_of_the_device_and_stays_in_its_folder)
{
	char path[256];
	cr_assert_eq(tune_path(path, sizeof path, "/cache", "/home/x", "NVIDIA H200"), 0);
	cr_assert_str_eq(path, "/cache/quern/tune-nvidia-h200.json");
	cr_assert_eq(tune_path(path, sizeof path, NULL, "/home/x", "NVIDIA GeForce RTX 4090"), 0);
	cr_assert_str_eq(path, "/home/x/.cache/quern/tune-nvidia-geforce-rtx-4090.json");
	cr_assert_eq(tune_path(path, sizeof path, "relative", "/home/x", "../../etc/x (y)"), 0);
	cr_assert_str_eq(path, "/home/x/.cache/quern/tune-etc-x-y.json");
	cr_assert_eq(tune_path(path, sizeof path, NULL, NULL, "x"), -ENOENT);
	cr_assert_eq(tune_path(path, 12, "/cache", NULL, "x"), -ENAMETOOLONG);
}

/* ---- use ---- */

static struct kern_info info;
static int n_given = -1;
static struct kern_crossover given[8];

static void fake_info(struct kern_dev *d, struct kern_info *out)
{
	(void)d;
	*out = info;
}

static void fake_crossovers(struct kern_dev *d, const struct kern_crossover *c, int n)
{
	(void)d;
	n_given = n;
	memcpy(given, c, (size_t)(n < 8 ? n : 8) * sizeof *c);
}

static const struct kern_ops fake = {.info = fake_info, .crossovers = fake_crossovers};

static void setup(void)
{
	make_folder();
	snprintf(info.name, sizeof info.name, "NVIDIA H200");
	snprintf(info.isa, sizeof info.isa, "sm_90");
	snprintf(info.build, sizeof info.build, "abc");
	cr_assert_eq(mkdir(in_folder("quern"), 0700), 0);
}

static int use(const char *file, struct why *why)
{
	const struct tune_source from = {.file = file, .xdg_cache = folder};
	return tune_use(&fake, NULL, &from, why);
}

Test(tune, a_worker_uses_the_crossovers_of_its_device, .init = setup, .fini = remove_folder)
{
	struct why why = {""};
	cr_assert_eq(use(NULL, &why), 0, "%s", why.text); /* no file */
	cr_assert_eq(n_given, -1);
	write_file(in_folder("quern/tune-nvidia-h200.json"), good);
	cr_assert_eq(use(NULL, &why), 0, "%s", why.text);
	cr_assert_eq(n_given, 3);
	cr_assert(given[0].k == 4096 && given[0].rows == 96);
}

Test(tune, crossovers_of_another_device_or_build_are_ignored, .init = setup, .fini = remove_folder)
{
	struct why why = {""};
	write_file(in_folder("t.json"), good);
	snprintf(info.name, sizeof info.name, "NVIDIA A100");
	cr_assert_eq(use(in_folder("t.json"), &why), 0, "%s", why.text);
	snprintf(info.name, sizeof info.name, "NVIDIA H200");
	snprintf(info.build, sizeof info.build, "abd");
	cr_assert_eq(use(in_folder("t.json"), &why), 0, "%s", why.text);
	snprintf(info.build, sizeof info.build, "abc");
	snprintf(info.isa, sizeof info.isa, "sm_100");
	cr_assert_eq(use(in_folder("t.json"), &why), 0, "%s", why.text);
	cr_assert_eq(n_given, -1);
	cr_assert_eq(tune_parse(&got, good, strlen(good), NULL), 0);
	cr_assert(!tune_fits(&got, &info, &why));
	cr_assert(strstr(why.text, "sm_90") && strstr(why.text, "sm_100"), "%s", why.text);
}

Test(tune, a_file_named_by_tune_must_be_valid_the_default_need_not, .init = setup, .fini = remove_folder)
{
	struct why why = {""};
	write_file(in_folder("quern/tune-nvidia-h200.json"), "nonsense");
	cr_assert_eq(use(NULL, &why), 0, "%s", why.text);
	cr_assert_eq(use(in_folder("quern/tune-nvidia-h200.json"), &why), -EINVAL);
	cr_assert(strstr(why.text, "--tune") && strstr(why.text, "h200.json"), "%s", why.text);
	cr_assert_eq(use(in_folder("none"), &why), -ENOENT);
	cr_assert_eq(n_given, -1);
}

Test(tune, a_device_without_fast_kernels_needs_no_file, .init = setup, .fini = remove_folder)
{
	struct why why = {""};
	info.build[0] = 0;
	cr_assert_eq(use(in_folder("none"), &why), 0, "%s", why.text);
	cr_assert_eq(n_given, -1);
}

/* ---- from measurements to a crossover ---- */

Test(tune, the_crossover_is_where_fast_wins_from_then_on)
{
	static const int rows[] = {1, 64, 128, 256, 512};
	static const double ours[] = {1, 10, 20, 40, 80};
	static const double late[] = {5, 30, 30, 30, 50}, early[] = {0.5, 5, 5, 5, 5},
			    never[] = {5, 30, 30, 41, 81}, unsteady[] = {0.5, 5, 30, 30, 30},
			    hardly[] = {5, 5, 5, 5, 79.5};
	cr_assert_eq(kernels_tune_crossover(rows, ours, late, 5), 128);
	cr_assert_eq(kernels_tune_crossover(rows, ours, early, 5), 0);
	cr_assert_eq(kernels_tune_crossover(rows, ours, never, 5), INT_MAX);
	cr_assert_eq(kernels_tune_crossover(rows, ours, unsteady, 5), 128);
	cr_assert_eq(kernels_tune_crossover(rows, ours, hardly, 5), INT_MAX);
	cr_assert_eq(kernels_tune_crossover(rows, ours, late, 1), INT_MAX);
}
