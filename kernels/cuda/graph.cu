/* graph.cu - a decoding step as a CUDA graph: all its launches cost the host one.
 *
 * A graph keeps the arguments of its launches.  They are the same for every batch with the same number of
 * rows.  The data that change (tokens, positions, tables, rows of logits) are stored at static addresses by
 * batch_set(), and the device derives from them how attention is split (attn.cu).  No node is ever
 * updated. */
#include "kernels/cuda/cuda.cuh"

#include <assert.h>
#include <stdlib.h>

struct kern_graph {
	struct kern_dev *dev;
	cudaGraphExec_t exec;
	int rows; /* rows of the batches that it runs */
};

int cuda_graph_begin(struct kern_stream *s)
{
	struct cuda_batch *b = &s->dev->batch;
	assert(b->pad_to > 0);
	b->serial++; /* makes attention's work list part of the graph */
	/* other threads of the process may use the device meanwhile */
	return cuda_check(cudaStreamBeginCapture(s->s, cudaStreamCaptureModeThreadLocal),
			  "beginning of a graph");
}

/* Instantiate and upload the graph now, so that its first launch need not. */
static int instantiate(struct kern_graph *g, cudaGraph_t from, struct kern_stream *s)
{
	int e = cuda_check(cudaGraphInstantiateWithFlags(&g->exec, from, 0), "a graph");
	if (!e)
		e = cuda_check(cudaGraphUpload(g->exec, s->s), "upload of a graph");
	return e ? e : cuda_check(cudaStreamSynchronize(s->s), "upload of a graph");
}

int cuda_graph_end(struct kern_stream *s, struct kern_graph **out)
{
	cudaGraph_t kept = NULL;
	int e = cuda_check(cudaStreamEndCapture(s->s, &kept), "end of a graph");
	s->dev->batch.serial++;
	*out = NULL;
	if (e)
		return e;
	struct kern_graph *g = (struct kern_graph *)xcalloc(1, sizeof *g);
	g->dev = s->dev;
	g->rows = s->dev->batch.pad_to;
	e = instantiate(g, kept, s);
	cuda_check(cudaGraphDestroy(kept), "end of a graph");
	if (e) {
		cuda_graph_free(g);
		return e;
	}
	*out = g;
	return 0;
}

int cuda_graph_launch(struct kern_stream *s, struct kern_graph *g)
{
	assert(s->dev == g->dev && g->dev->batch.pad_to == g->rows);
	return cuda_check(cudaGraphLaunch(g->exec, s->s), "launch of a graph");
}

void cuda_graph_free(struct kern_graph *g)
{
	if (!g)
		return;
	if (g->exec)
		cuda_check(cudaGraphExecDestroy(g->exec), "end of a graph");
	free(g);
}
