/* to_gguf_check.c - checks of a GGUF file before its weights are written, for conversions and copies. */
#include "base/err.h"
#include "formats/gguf.h"
#include "quant/convert/config_match.h"
#include "quant/convert/to_gguf.h"

#include <errno.h>
#include <stdlib.h>

int to_gguf_chosen(struct writer *w, const struct gguf_choice *choice, bool quantized, struct why *why)
{
	if (!choice)
		return 0;
	if (!quantized)
		return err_why(
			why, -ENOTSUP,
			"no linear layer of the model has rows of whole blocks, which the type needs, or "
			"--keep names them all");
	writer_meta_u32(w, "general.quantization_version", 2);
	writer_meta_u32(w, "general.file_type", (uint32_t)choice->file_type);
	return choice->keys ? choice->keys(choice->ctx, w) : 0;
}

/* Return whether every end token of the source is one of the result, which may have more. */
static bool has_ends(const struct model_config *a, const struct model_config *b)
{
	for (int i = 0; b->n_eos && i < a->n_eos; i++) {
		int j = 0;
		while (j < b->n_eos && b->eos[j] != a->eos[i])
			j++;
		if (j == b->n_eos)
			return false;
	}
	return true;
}

int to_gguf_check_keys(struct writer *w, const struct model_config *c, struct why *why)
{
	struct model_config back;
	char *path;
	int rc = writer_preview(w, &path, why);
	if (rc)
		return rc;
	if (!(rc = gguf_config_load(path, &back, why))) {
		rc = config_match(c, &back, "a GGUF file", why);
		if (!rc && !has_ends(c, &back))
			rc = err_why(
				why, -ENOTSUP,
				"the model has %d ends in eos_token_id, and a GGUF file has keys for three",
				c->n_eos);
		model_config_fini(&back);
	}
	free(path);
	return rc;
}
