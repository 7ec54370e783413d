/* engine.h - the engine thread: receives results, applies them, schedules, sends plans, publishes tokens.
 * Owns: the workers, replicas and schedulers (fleet.h).  Other threads exchange messages with it
 * (message/engine_msg.h). */
#ifndef QUERN_CONTROLLER_FLEET_ENGINE_H
#define QUERN_CONTROLLER_FLEET_ENGINE_H

#include "base/err.h"
#include "controller/fleet/engine_config.h"

#include <stddef.h>

struct engine;

/* Bind the bus and ENGINE_IN, connect to ENGINE_OUT (already bound), and start the thread. */
int engine_start(void *zmq_context, const struct engine_config *cfg, struct engine **out, struct why *why);
/* Return the endpoint of the worker bus, with the port that replaced a wildcard. */
const char *engine_bus(const struct engine *e);
/* Wait for the thread, after ENGINE_QUIT was sent, and free everything. */
void engine_join(struct engine *e);

#endif
