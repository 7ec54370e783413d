#include "quant/convert/convert.h"

#include "base/file.h"
#include "base/option_table.h"
#include "cli/models/cache.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
#include "formats/gguf.h"
#include "quant/convert/ak48_tensors.h"
#include "quant/convert/to_gguf.h"
#include "quant/convert/to_safetensors.h"
#include "quant/writer/writer.h"

#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
	.name = "convert",
	.words = "SRC DST",
	.about = "Writes the model SRC in another format to DST, which must not exist.  All values stay "
		 "exactly the\n"
		 "same; a tensor that the format cannot hold is an error that names it.  DST is a directory "
		 "(ak48: with\n"
		 "the file model.ak48), or the GGUF file itself.\n"
		 "\n"
		 "  safetensors  from a directory of safetensors, a GGUF file with floats, an ak48 file\n"
		 "  gguf         from a directory of safetensors with floats; from a GGUF file or its "
		 "shards, as "
		 "one file\n"
		 "  ak48         from a directory of safetensors: Qwen3 in AWQ INT4",
	.min_words = 2,
	.max_words = 2,
};

/* Check that src is a directory of safetensors, or for gguf a GGUF file; or print an error. */
static int check_directory(const char *src, enum writer_format to)
{
	if (gguf_is(src) ? to == WRITER_GGUF : file_is_dir(src))
		return COMMAND_GO_ON;
	if (!file_exists(src))
		return term_error("%s does not exist", src);
	return term_error(
		"%s is no directory of safetensors%s, which --to %s needs: convert it --to safetensors "
		"first",
		src, to == WRITER_GGUF ? " and no GGUF file" : "", to == WRITER_GGUF ? "gguf" : "ak48");
}

static int run(struct opts *o)
{
	const char *to = opts_text(o, "to"), *dst = o->words[1];
	char src[PATH_MAX], name[CACHED_NAME];
	const int64_t shard = opts_has(o, "shard-size") ? opts_value(o, "shard-size")->n : WRITER_SHARD_BYTES;
	enum writer_format format;
	struct why why;
	int rc;
	if (!to)
		return term_usage(usage.name, "--to is missing: safetensors, gguf or ak48");
	if (!writer_format_of(to, &format))
		return term_usage(usage.name, "unknown --to %.40s: safetensors, gguf or ak48", to);
	if (shard < 1)
		return term_usage(usage.name, "--shard-size must be at least 1");
	cache_find(o->words[0], src, name);
	if (format != WRITER_SAFETENSORS && (rc = check_directory(src, format)) != COMMAND_GO_ON)
		return rc;
	interrupt_arm();
	rc = format == WRITER_SAFETENSORS ? to_safetensors(src, dst, shard, &why)
	     : format == WRITER_GGUF      ? to_gguf(src, dst, NULL, &why)
					  : to_ak48(src, dst, &why);
	interrupt_disarm();
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_convert(int argc, char **argv)
{
	return command_run(&usage, OPTION_CONVERT, run, argc, argv);
}
