/* parts.c - the tests of the CUDA table's own parts (tests/cudasim/test_*.c) in one process. */
#include "tests/gpu/suites.h"

int main(int argc, char **argv)
{
	return suites_main(argc, argv);
}
