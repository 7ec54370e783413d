/* model_file.h - the kinds of files and directories that a model can be.  model_config_load() and
 * weights_open() go through this table, by what a path holds and never by its name alone. */
#ifndef QUERN_FORMATS_MODEL_FILE_H
#define QUERN_FORMATS_MODEL_FILE_H

#include "formats/config.h"
#include "formats/weights.h"

#include <stdbool.h>

struct model_file {
	const char *name;             /* "GGUF", for messages */
	bool (*is)(const char *path); /* by content; what is() accepts may still be refused when it is read */
	int (*config)(const char *path, struct model_config *out, char *why, size_t why_n);
	int (*weights)(const char *path, const struct model_config *c, struct weights **out, char *why,
		       size_t why_n);
};

/* NULL: of no kind in the table. */
const struct model_file *model_file_of(const char *path);

/* The same, but that of directories for a path of no kind: its error names what is missing. */
const struct model_file *model_file_or_dir(const char *path);

#endif
