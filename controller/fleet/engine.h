/* engine.h - the engine thread: receive results, apply them, schedule, send plans, publish tokens.
 * It owns the workers, replicas and schedulers (fleet.h).  Other threads exchange messages with it
 * (message/engine_msg.h). */
#ifndef QUERN_CONTROLLER_FLEET_ENGINE_H
#define QUERN_CONTROLLER_FLEET_ENGINE_H

#include "controller/fleet/engine_config.h"

#include <stddef.h>

struct engine;

/* Binds the bus and ENGINE_IN, connects to ENGINE_OUT (bound already), starts the thread. */
int engine_start(void *zmq_context, const struct engine_config *cfg, struct engine **out, char *why,
		 size_t why_n);
/* The endpoint of the worker bus, with the port that replaced a wildcard. */
const char *engine_bus(const struct engine *e);
/* After ENGINE_QUIT was sent: waits for the thread and frees everything. */
void engine_join(struct engine *e);

#endif
