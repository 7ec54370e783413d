/* model_file.h - the kinds of files and directories that can be a model.  model_config_load() and
 * weights_open() use this table; the content of a path decides, never its name alone. */
#ifndef QUERN_FORMATS_MODEL_FILE_H
#define QUERN_FORMATS_MODEL_FILE_H

#include "base/err.h"
#include "formats/config.h"
#include "formats/weights.h"

#include <stdbool.h>

struct model_file {
	const char *name;             /* "GGUF", for messages */
	bool (*is)(const char *path); /* tests the content; a file that passes may still be refused when it
				       * is read */
	int (*config)(const char *path, struct model_config *out, struct why *why);
	int (*weights)(const char *path, const struct model_config *c, struct weights **out, struct why *why);
};

/* Return the kind of a path; NULL: none in the table. */
const struct model_file *model_file_of(const char *path);

/* Return the kind of a path; if it has none, the kind for directories: its error names the missing files. */
const struct model_file *model_file_or_dir(const char *path);

#endif
