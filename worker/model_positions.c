/* model_positions.c - loads what a decoder knows of positions: rotations, embeddings, the slopes of ALiBi. */
#include "worker/model_impl.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>

int model_rope_load(struct model *m, struct piece *out, bool local, int max_context, struct why *why)
{
	size_t bytes = (size_t)max_context * (size_t)m->c->rope_dim * sizeof(float);
	int rc = model_piece_new(m, out, bytes, "the rotations of all positions", why);
	if (!rc && m->loaded)
		m->loaded(m->observe_arg, out->p, NULL, local);
	if (rc || m->unread)
		return rc;
	float *table = alloc_big(bytes);
	if (!table)
		return err_why(why, -ENOMEM, "out of memory: %zu bytes for the rotations of all positions",
			       bytes);
	if (local)
		model_config_rope_local(m->c, max_context, table);
	else
		model_config_rope(m->c, max_context, max_context, table);
	rc = m->ops->upload(m->stream, out->p, table, bytes);
	if (!rc)
		rc = m->ops->stream_sync(m->stream);
	alloc_big_free(table, bytes);
	return rc ? err_why(why, rc, "uploading the rotations failed") : 0;
}

/* Load the learned positions of the served context. */
int model_positions_load(struct model *m, const struct weights_vec *v, struct why *why)
{
	const int64_t n = (int64_t)m->max_context * m->c->hidden;
	const struct weights_vec some = {v->data, v->dtype, v->n < n ? v->n : (int)n};
	if (v->data && v->n < n)
		return err_why(
			why, -EINVAL,
			"the model has embeddings of %d positions, the context needs %d: lower --context",
			v->n / m->c->hidden, m->max_context);
	return model_vec_load(m, &some, &m->positions, "the embeddings of positions", why);
}

int model_alibi_load(struct model *m, struct layer *l, struct why *why)
{
	const struct model_config *c = m->c;
	if (!(c->alibi_max > 0))
		return 0;
	float *slopes = xcalloc((size_t)c->n_heads, sizeof *slopes);
	model_config_alibi(c, slopes);
	const struct weights_vec own = {slopes + l->plan->head0, CONFIG_F32, l->plan->heads};
	const int rc = model_vec_load(m, &own, &l->alibi, "the slopes of ALiBi", why);
	free(slopes);
	return rc;
}
