#include "quant/awq_command.h"

#include "base/err.h"
#include "quant/awq_run.h"

enum { TOKENS_MAX = 1 << 24 };

const struct opt awq_command_options[] = {
	OPT("calibrate", OPT_TEXT, "FILE", "awq4: a text like those that the model will see"),
	OPT("tokens", OPT_INT, "N", "awq4: tokens of it that are used (32768)", .lo = 16, .hi = TOKENS_MAX),
	OPT("group", OPT_INT, "N", "awq4: inputs that share a scale: 32, 64 or 128 (128)", .lo = 32,
	    .hi = 128),
};
const size_t awq_command_n_options = sizeof awq_command_options / sizeof *awq_command_options;

int awq_command(const struct quantize_options *q, const struct opts *o, char *why, size_t why_n)
{
	const struct awq_options a = {.all = q,
				      .text = opts_text(o, "calibrate", NULL),
				      .n_tokens = (int)opts_int(o, "tokens", AWQ_TOKENS),
				      .group = (int)opts_int(o, "group", 128)};
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
