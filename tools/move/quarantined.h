/* quarantined: the filters of a server that could not be loaded, with the reasons.
 *
 * SCAN and BF.CARD find them: these read no bits from the server's disk, unlike BF.FIND, and after CLIENT NO-TOUCH they
 * do not count as a use of a filter. So the query does not change the contents of the server's memory.
 *
 * Thread: one for each connection. */
#ifndef BLOOMERY_TOOL_QUARANTINED_H
#define BLOOMERY_TOOL_QUARANTINED_H

#include "errbuf.h"
#include "peer.h"
#include "slice.h"

/* `name` is encoded (name_code.h); both are borrowed for the call. */
typedef void quarantined_sink(void *ctx, const char *name, struct slice why);

/* Passes filters of the connection's database to the sink, `most` >= 1 at most, and counts them in *named_out, also if
 * it fails. 0, or -errno with the reason in `err`: those of peer_reply(), and -EACCES if the server refuses a command.
 * Replies may be left unread: the connection is of no further use. */
int quarantined_find(struct peer *peer, unsigned most, quarantined_sink *sink, void *ctx, unsigned *named_out,
                     struct errbuf *err);

#endif
