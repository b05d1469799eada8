/* keyed: a command with keys (registry_key.h) instead of the names of filters, for a client whose database is not the
 * first one. Handlers see keys only.
 *
 * The six bytes of a key before its name overwrite the name's length in the request, "\r\n$5\r\n", which is no longer
 * needed. So no argument of any size is copied. Only an inline command may have less room; its words are copied. For a
 * client in the first database nothing is done at all.
 *
 * Thread: the loop's. */
#pragma once

#include "command.h"

/* A loop's memory for it. Zero-initialise. */
struct keyed {
    struct resp_args args;
    char *copy; /* of an inline command */
    size_t copy_size;
};
void keyed_deinit(struct keyed *keyed);

/* Returns the command with keys, `cmd` itself if the names are keys; `space` is for the result, which is valid until
 * the next call. NULL: no memory. May be called again for the same command. */
const struct resp_command *keyed_command(struct keyed *keyed, const struct command *row, const struct resp_command *cmd,
                                         unsigned database, struct resp_command *space);
