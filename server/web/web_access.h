/* web_access: who may see the pages. Thread: the status page's, an online RCU reader. */
#ifndef BLOOMERY_WEB_ACCESS_H
#define BLOOMERY_WEB_ACCESS_H

#include "web_request.h"

enum web_access { WEB_ALLOWED, WEB_NO_PASSWORD, WEB_NOT_LOCAL };

/* A user who may run INFO may see the pages: HTTP basic with his name and password. A name that no user has stands for
 * the user "default", as any name did before there were others. Where that one has no password none is asked for; then,
 * in protected mode, only for clients on this machine, whose Host is an address or localhost. A page from elsewhere
 * that a browser on this machine has loaded would come with its own name, which its owner has made to mean this
 * machine. */
enum web_access web_access(const struct web_request *request);

#endif
