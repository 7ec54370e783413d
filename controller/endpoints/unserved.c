#include "controller/endpoints/unserved.h"

#include "controller/http/http.h"

#include <string.h>

/* The status is 501, llama.cpp's status for unsupported requests; but not for Anthropic's clients, which
 * would retry after a 501. */
static const struct {
	const char *path; /* path of the route */
	unsigned status;
	const char *instead;
} all[] = {
	{"/v1/messages/batches", MHD_HTTP_NOT_FOUND, "/v1/batches takes batches of chats"},
	{"/v1/messages/batches/", MHD_HTTP_NOT_FOUND, "/v1/batches takes batches of chats"},
	{"/v1/complete", MHD_HTTP_NOT_FOUND, "use /v1/messages"},
	{"/v1/responses/input_tokens", MHD_HTTP_NOT_FOUND,
	 "/v1/chat/completions/input_tokens counts a chat's"},
	{"/v1/responses/compact", MHD_HTTP_NOT_FOUND, "send a shorter input"},
	{"/lora-adapters", MHD_HTTP_NOT_IMPLEMENTED, "merge the adapter into its base model"},
	{"/slots/", MHD_HTTP_NOT_IMPLEMENTED, "prefixes are cached and kept without it"},
	{"/models/load", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/models/unload", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/models/sse", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/v1/chat/completions/control", MHD_HTTP_NOT_IMPLEMENTED,
	 "bound a thought with thinking_token_budget"},
	{"/v1/systemone", MHD_HTTP_NOT_IMPLEMENTED, "this service has no decision models"},
};

void unserved_call(struct exchange *x, const char *rest)
{
	(void)rest;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].path, x->route->path) == 0)
			exchange_error(x, all[i].status, "invalid_request_error", NULL, "not_served",
				       "%s is not served: %s", x->path, all[i].instead);
}
