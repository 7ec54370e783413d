/* The place of a row's token.  A row whose usual place is in the history of other rows of the same call has a
 * shift (kern_sample_row), and writes elsewhere. */
#include "tests/kernels/kern_test.h"
#include "tests/kernels/sample_test.h"

Test(sample_place, a_shifted_row_leaves_the_place_after_its_history)
{
	const float x[] = {0, 1, 5, 2};
	for (int way = 0; way < KT_WAYS; way++) {
		int32_t tokens[] = {3, 1, -7, -8, -9};
		struct kern_sample_row r = row_default();
		struct kt t;
		if (!kt_open(&t, 0, way, (struct kt_size){0}))
			continue;
		void *logits = kt_put(&t, x, sizeof x), *dev = kt_put(&t, tokens, sizeof tokens);
		r.n_hist = 2;
		r.shift = 2;
		const struct draw d = draw_on(&t, logits, 4, dev, r);
		kt_get(&t, tokens, dev, sizeof tokens);
		cr_expect_eq(d.token, 2, "%s", t.isa);
		cr_expect(tokens[2] == -7 && tokens[3] == -8 && tokens[4] == 2, "%s", t.isa);
		kt_del(&t, logits);
		kt_del(&t, dev);
		kt_close(&t);
	}
}
