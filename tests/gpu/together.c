/* together.c - by the name that the program was started with: shapes, measure, or the tests that are linked
 * with it. */
#include "tests/gpu/together.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

const struct layers_model together_small = {"small",
					    2,
					    4,
					    2,
					    64,
					    {{"qkv", 128, 512, 1, false},
					     {"o", 256, 128, 1, false},
					     {"gate+up", 128, 512, 2, false},
					     {"down", 256, 128, 1, false},
					     {"head", 128, 640, 1, true}}};

const struct layers_model *together_find(const char *name)
{
	for (int i = 0; i < LAYERS_MODELS; i++)
		if (!strcmp(name, layers_models[i].name))
			return &layers_models[i];
	return strcmp(name, together_small.name) ? NULL : &together_small;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	if (!strcmp(name, "shapes"))
		return shapes_main(argc, argv);
	if (!strcmp(name, "measure"))
		return measure_main(argc, argv);
	struct criterion_test_set *tests = criterion_initialize();
	bool passed = !criterion_handle_args(argc, argv, true) || criterion_run_all_tests(tests);
	criterion_finalize(tests);
	return !passed;
}
