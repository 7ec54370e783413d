#include "worker/swaps.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>

/* State of a device block in a swap in flight: read by a copy out, written by a copy in. */
enum { LEAVES = 1, ARRIVES = 2 };

struct swaps {
	const struct kern_ops *ops;
	struct kern_kv *kv;
	struct kern_stream *stream;
	struct kern_event *computed; /* recorded on the step's stream before the last swaps */
	struct kern_event *moved;    /* recorded after the last swaps */
	uint8_t *state;              /* [n_blocks] LEAVES, ARRIVES */
	int32_t *busy;               /* [n_blocks] the first n_busy are the blocks with a state */
	int n_busy;
};

int swaps_new(struct swaps **out, const struct kern_ops *ops, struct kern_dev *dev, struct kern_kv *kv,
	      int n_blocks)
{
	struct swaps *w = xcalloc(1, sizeof *w);
	*w = (struct swaps){.ops = ops,
			    .kv = kv,
			    .stream = ops->stream_new(dev),
			    .computed = ops->event_new(dev),
			    .moved = ops->event_new(dev),
			    .state = xcalloc((size_t)n_blocks, 1),
			    .busy = xcalloc((size_t)n_blocks, sizeof *w->busy)};
	if (!w->stream || !w->computed || !w->moved) {
		swaps_free(w);
		return -EIO;
	}
	*out = w;
	return 0;
}

void swaps_free(struct swaps *w)
{
	if (!w)
		return;
	if (w->stream) {
		w->ops->stream_sync(w->stream);
		w->ops->stream_free(w->stream);
	}
	if (w->computed)
		w->ops->event_free(w->computed);
	if (w->moved)
		w->ops->event_free(w->moved);
	free(w->busy);
	free(w->state);
	free(w);
}

static void forget(struct swaps *w)
{
	while (w->n_busy)
		w->state[w->busy[--w->n_busy]] = 0;
}

static void mark(struct swaps *w, int32_t block, uint8_t state)
{
	if (!w->state[block])
		w->busy[w->n_busy++] = block;
	w->state[block] |= state;
}

int swaps_queue(struct swaps *w, struct kern_stream *s, const int32_t (*out)[2], int n_out,
		const int32_t (*in)[2], int n_in)
{
	const struct kern_ops *k = w->ops;
	int rc;
	if (n_out == 0 && n_in == 0)
		return 0;
	if ((rc = k->event_record(w->computed, s)) || (rc = k->event_wait(w->computed, w->stream)) ||
	    (n_out && (rc = k->kv_swap_out(w->stream, w->kv, out, n_out))) ||
	    (n_in && (rc = k->kv_swap_in(w->stream, w->kv, in, n_in))) ||
	    (rc = k->event_record(w->moved, w->stream)))
		return rc;
	for (int i = 0; i < n_out; i++)
		mark(w, out[i][0], LEAVES);
	for (int i = 0; i < n_in; i++)
		mark(w, in[i][1], ARRIVES);
	return 0;
}

bool swaps_pending(struct swaps *w)
{
	if (w->n_busy && w->ops->event_done(w->moved))
		forget(w);
	return w->n_busy > 0;
}

/* Make s wait for all swaps: they are done in order, so the last event stands for all. */
static int wait(struct swaps *w, struct kern_stream *s)
{
	int rc = w->ops->event_wait(w->moved, s);
	if (!rc)
		forget(w);
	return rc;
}

int swaps_reads(struct swaps *w, struct kern_stream *s, int block)
{
	return w->state[block] & ARRIVES ? wait(w, s) : 0;
}

int swaps_writes(struct swaps *w, struct kern_stream *s, int block)
{
	return w->state[block] ? wait(w, s) : 0;
}
