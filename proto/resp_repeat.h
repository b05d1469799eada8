/* resp_repeat: recognises requests that differ from an earlier one in their last argument only, as the requests of a
 * pipeline do: "*3 $9 BF.EXISTS $6 filter $" byte for byte the same, then another length and another item. One
 * comparison instead of a parse, a look-up of the command and a look-up of the filter; and as many as there are in a row
 * are taken in one loop.
 *
 * It only ever takes what resp_parser_next() would take in the same way; whatever is unusual it leaves to the parser.
 *
 * Lifetime: caller's storage; what is noted is a copy. Thread: any, on distinct objects. */
#ifndef BLOOMERY_RESP_REPEAT_H
#define BLOOMERY_RESP_REPEAT_H

#include <stdbool.h>
#include <stddef.h>

#include "resp_parse.h"

#define RESP_REPEAT_MAX_HEAD 256 /* a longer one costs more to compare than to parse */
#define RESP_REPEAT_MAX_ITEM 999 /* bytes of a last argument that is recognised */

/* Zero-initialise: nothing is noted. */
struct resp_repeat {
    size_t len;                      /* of `head`; 0: nothing is noted */
    char head[RESP_REPEAT_MAX_HEAD]; /* the request up to and with the '$' of its last argument */
};

/* Notes a command that resp_parser_next() has just returned, in place of what was noted before. False, and nothing has
 * changed: it was sent inline or in an unusual spelling. */
bool resp_repeat_note(struct resp_repeat *repeat, const struct resp_command *cmd);

/* Takes requests of the noted kind off the front of data[0..len), at most `max`: their last arguments go to
 * last_out[0..max), and *consumed_out is how many bytes they are. Returns their number, 0 when the data begins with
 * something else. Between requests only (resp_parser_idle()). `max_bulk` as in the parser's limits. */
size_t resp_repeat_match(const struct resp_repeat *repeat, const char *data, size_t len, size_t max_bulk,
                         struct slice *last_out, size_t max, size_t *consumed_out);

/* Whether the parser is between two requests. */
static inline bool resp_parser_idle(const struct resp_parser *parser)
{
    return parser->pos == 0;
}

#endif
