/* resp_repeat: recognises a request that differs from the one before it in its last argument only, as the requests of a
 * pipeline do: "*3 $9 BF.EXISTS $6 filter $" byte for byte the same, then another length and another item. One
 * comparison instead of a parse, a look-up of the command and a look-up of the filter.
 *
 * It only ever takes what resp_parser_next() would take in the same way; whatever is unusual it leaves to the parser.
 *
 * Lifetime: caller's storage; it points into the bytes of the request that was noted. Thread: any, on distinct objects.
 */
#ifndef BLOOMERY_RESP_REPEAT_H
#define BLOOMERY_RESP_REPEAT_H

#include <stdbool.h>
#include <stddef.h>

#include "resp_parse.h"

/* Zero-initialise: nothing is noted. */
struct resp_repeat {
    const char *head; /* NULL: nothing is noted */
    size_t len;       /* up to and with the '$' of the last argument */
};

#define RESP_REPEAT_MAX_ITEM 999 /* bytes of a last argument that is recognised */

static inline void resp_repeat_forget(struct resp_repeat *repeat)
{
    repeat->head = NULL;
}

/* Notes a command that resp_parser_next() has just returned and whose bytes will stay where they are. A command that
 * was sent inline or in an unusual spelling is not noted. */
void resp_repeat_note(struct resp_repeat *repeat, const struct resp_command *cmd);

/* Whether data[0..len) begins with a whole request of this kind: its bytes, and its last argument; 0 otherwise. Between
 * requests only (resp_parser_idle()). `max_bulk` as in the parser's limits. */
size_t resp_repeat_match(const struct resp_repeat *repeat, const char *data, size_t len, size_t max_bulk,
                         struct slice *last_out);

/* Whether the parser is between two requests. */
static inline bool resp_parser_idle(const struct resp_parser *parser)
{
    return parser->pos == 0;
}

#endif
