/* breakers.h - find DRY's sequence breakers: the tokens with one of some strings in their text.  In llama.cpp
 * a breaker may begin in one token and end in a later one; here a string that no single token contains is
 * refused.  The search reads the texts of the whole vocabulary, so the tokens of the last strings used are
 * cached (checked.h). */
#ifndef QUERN_CONTROLLER_REQUEST_BREAKERS_H
#define QUERN_CONTROLLER_REQUEST_BREAKERS_H

#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "proto/params.h"

#include <jansson.h>

/* Fill in p->breakers if DRY is on.  list: the request's `dry_sequence_breakers`; NULL: newline, colon,
 * quotation mark and asterisk.  -EINVAL with *problem filled. */
int breakers_read(const json_t *list, const struct service *svc, struct params *p,
		  struct api_problem *problem);

#endif
