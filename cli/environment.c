#include "cli/environment.h"

#include <stdlib.h>
#include <string.h>

struct environment environment_read(void)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR"), *dir = getenv("XDG_RUNTIME_DIR");
	return (struct environment){
		.runtime_dir = dir && *dir == '/' ? dir : NULL,
		.no_color = (no && *no) || (term && strcmp(term, "dumb") == 0),
	};
}
