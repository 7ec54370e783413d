/* together.c - runs shapes, measure or the linked tests, selected by the name of the program. */
#include "tests/gpu/together.h"

#include "tests/gpu/suites.h"

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
	return suites_main(argc, argv);
}
