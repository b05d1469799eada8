/* web: metrics and the status page over HTTP (`metrics-port`), in one thread of its own.
 *
 * It reads its data as INFO does: counters are summed, filters are read under RCU, a pass over all names is made in
 * slices. It changes nothing, waits for no worker, and holds locks that a worker may want for some microseconds only.
 * Its connections, the time of a request and the bytes of pending replies are bounded (web.c); they are not clients of
 * the server and do not count as such.
 *
 * Lifetime: started when the server's parts and workers exist, stopped before any of them goes. Thread: main. */
#pragma once

#include "errbuf.h"

struct server;
struct web;

/* Listens and starts the thread. 0, with NULL if the settings want none; -1 with the reason. */
int web_start(struct web **web_out, struct server *server, struct errbuf *err);

/* Ends the thread and closes its connections. NULL is fine. */
void web_stop(struct web *web);
