/* breakers.h - DRY's sequence breakers: tokens with one of some strings in their text.
 * llama.cpp also lets a breaker begin in one token and end in a later one; here a string that is in no single
 * token is refused.  The tokens of the strings used last are kept (checked.h): to find them, all texts of the
 * vocabulary are looked at. */
#ifndef QUERN_CONTROLLER_REQUEST_BREAKERS_H
#define QUERN_CONTROLLER_REQUEST_BREAKERS_H

#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "proto/params.h"

#include <jansson.h>

/* Fills in p->breakers, if DRY is on.  list: of `dry_sequence_breakers`; NULL: newline, colon, quotation mark
 * and asterisk.  -EINVAL with *problem filled. */
int breakers_read(const json_t *list, const struct service *svc, struct params *p,
		  struct api_problem *problem);

#endif
