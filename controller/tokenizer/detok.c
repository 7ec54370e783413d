#include "controller/tokenizer/detok.h"

#include "base/alloc.h"
#include "controller/tokenizer/tokenizer_impl.h"

#include <stdlib.h>

struct detok {
	struct decode_state state;
	bool skip_special;
};

struct detok *detok_new(const struct tokenizer *t, bool skip_special, bool continues)
{
	struct detok *d = xmalloc(sizeof(*d));
	decode_begin(&d->state, t, continues);
	d->skip_special = skip_special;
	return d;
}

void detok_free(struct detok *d)
{
	if (!d)
		return;
	decode_fini(&d->state);
	free(d);
}

void detok_push(struct detok *d, uint32_t id, struct buf *out)
{
	decode_push(&d->state, id, d->skip_special, out);
}

void detok_flush(struct detok *d, struct buf *out)
{
	decode_end(&d->state, out);
}
