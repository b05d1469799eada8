/* web_access: the right to see the pages. Thread: the status page's, an online RCU reader. */
#ifndef BLOOMERY_WEB_ACCESS_H
#define BLOOMERY_WEB_ACCESS_H

#include "web_internal.h"

enum web_access { WEB_ALLOWED, WEB_NO_PASSWORD, WEB_NO_RIGHT, WEB_NOT_LOCAL };

/* Whether the request's user, which it sets as request->user, may run all of the commands (`needs`, up to ROUTE_NEEDS
 * of them; none: no user is asked for). *missing_out is the first that he may not run; without a user, the first.
 *
 * A user is named by HTTP basic with his name and password. A name that no user has represents the user "default", as
 * any name did before there were others. Where that one has no password none is asked for; then, in protected mode,
 * only for clients on this machine, whose Host is an address or localhost. A page from elsewhere that a browser on this
 * machine has loaded would come with its own name, which its owner has made to mean this machine.
 *
 * A user without the right to INFO is asked for another name and password (WEB_NO_PASSWORD) if the path needs INFO, or
 * if the request names no user. Other users get an error with the missing right (WEB_NO_RIGHT). */
enum web_access web_access(struct web_request *request, const char *const *needs, const char **missing_out);

#endif
