/* --merge: the source's filter comes under a temporary name, BF.MERGE unites the target's with it, and the temporary
 * one is deleted. The three go in one piece, and run even if this process dies in between. */
#include <string.h>

#include "move_internal.h"

void move_put_merge(struct move_link *link, const struct move_filter *filter, struct slice temporary)
{
    PEER_PUT(&link->to, slice_of("BF.MERGE"), move_name(filter), temporary);
    PEER_PUT(&link->to, slice_of("DEL"), temporary);
}

int move_take_merge(struct move_link *link, struct move_filter *filter)
{
    struct errbuf why = {""};
    struct resp_reply reply;
    int status = move_reply(link, &link->to, &reply);
    if (status != 0)
        return status;
    if (move_is_error(&reply)) {
        struct slice text = resp_reply_text(&reply, 0);
        errbuf_set(&why, "%.*s", (int)(text.len < 300 ? text.len : 300), text.ptr);
    }
    status = move_reply(link, &link->to, &reply); /* to DEL */
    if (status == 0 && why.text[0])
        status = move_refused(link, &link->to, "BF.MERGE", slice_of(why.text));
    if (status != 0)
        return status;
    if (why.text[0])
        move_finish(link->move, filter, MOVE_REFUSED, "%s", why.text);
    else
        move_copied(link->move, filter, MOVE_MOVED);
    return 0;
}
