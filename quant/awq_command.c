#include "quant/awq_command.h"

#include "base/err.h"
#include "quant/awq_run.h"

enum { TOKENS_MAX = 1 << 24 };

int awq_command(const struct quantize_options *q, const struct opts *o, char *why, size_t why_n)
{
	const struct awq_options a = {.all = q,
				      .text = opts_text(o, "calibrate"),
				      .n_tokens = (int)opts_int(o, "tokens"),
				      .group = (int)opts_int(o, "group")};
	if (!a.text)
		return err_why(
			why, why_n, -EINVAL,
			"awq4 is calibrated on a text: name one with --calibrate FILE, of at least %d tokens "
			"and like those that the model will see",
			a.n_tokens);
	if (a.group != 32 && a.group != 64 && a.group != 128)
		return err_why(why, why_n, -EINVAL, "--group %d must be 32, 64 or 128", a.group);
	if (q->n_eval == 1)
		return err_why(why, why_n, -EINVAL, "--eval-tokens 1: it must be 0, or 2 and more");
	return awq_run(&a, why, why_n);
}
