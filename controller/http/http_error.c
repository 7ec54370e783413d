#include "controller/http/http_error.h"

#include "base/json_write.h"

void http_error_json(struct buf *b, const char *type, const char *param, const char *code,
		     const char *message)
{
	buf_puts(b, "{\"error\":{\"message\":");
	json_write_str(b, message);
	buf_puts(b, ",\"type\":");
	json_write_str(b, type);
	buf_puts(b, ",\"param\":");
	json_write_str(b, param && param[0] ? param : NULL);
	buf_puts(b, ",\"code\":");
	json_write_str(b, code && code[0] ? code : NULL);
	buf_puts(b, "}}");
}

void http_error_openai(struct buf *b, const struct http_failure *f)
{
	http_error_json(b, f->type, f->param, f->code, f->message);
}

struct http_error http_error_of(enum code code)
{
	switch (code) {
	case E_BAD_REQUEST:
		return (struct http_error){400, "invalid_request_error", NULL};
	case E_TOO_LONG:
		return (struct http_error){400, "invalid_request_error", "context_length_exceeded"};
	case E_OVERLOADED:
		return (struct http_error){429, "rate_limit_error", "overloaded"};
	case E_NO_SUCH_JOB:
		return (struct http_error){404, "invalid_request_error", "not_found"};
	case E_NOT_READY:
		return (struct http_error){503, "server_error", "not_ready"};
	case E_AUTH:
		return (struct http_error){401, "invalid_request_error", "invalid_api_key"};
	case E_DEADLINE:
		return (struct http_error){504, "server_error", "deadline_exceeded"};
	case E_WORKER_LOST:
		return (struct http_error){503, "server_error", "worker_lost"};
	case CODE_OK:
	case E_INTERNAL:
		break;
	}
	return (struct http_error){500, "server_error", "internal_error"};
}
