#include "controller/message/submit.h"

#include <stdlib.h>

void submit_free(struct submit *s)
{
	if (!s)
		return;
	free(s->tokens);
	params_fini(&s->params);
	for (uint32_t i = 0; i < s->n_stop; i++)
		free(s->stop[i]);
	free(s->stop);
	free(s->late_stop_ids);
	free(s->user);
	free(s->key);
	free(s->owner);
	free(s->cache_salt);
	trace_context_fini(&s->trace);
	free(s);
}
