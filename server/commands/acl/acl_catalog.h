/* acl_catalog: the facts of the table of commands on which the rights of users depend, as bits: categories, the
 * permission that each key needs, and the arguments that are channels.
 *
 * A command is known by its number (command_index()). The rights for keys follow Redis's key specifications: "access"
 * needs reading; "insert", "update" and "delete" need writing. Keys without these flags (EXISTS, TYPE) need a match
 * with any pattern. The specifications of BF.* are RedisBloom's, which do not say: reading for commands that read,
 * writing for commands that write. BF.MERGE reads its sources and reads and writes its destination.
 *
 * Constant after the start of the process. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

#define ACL_WORDS        4                /* of a set of commands */
#define ACL_MAX_COMMANDS (ACL_WORDS * 64) /* rows, those of subcommands included */

enum { ACL_READ = 1, ACL_WRITE = 2 };

enum acl_channels {
    ACL_NO_CHANNELS,
    ACL_CHANNEL,  /* argument 1 */
    ACL_CHANNELS, /* all arguments */
    ACL_PATTERNS, /* all arguments, which are patterns of channels */
};

/* Commands with names of filters in other places than those of their rows, or in another database. */
enum acl_special { ACL_BY_ROW, ACL_FIND, ACL_COPY };

struct acl_command {
    const struct command *row;
    uint32_t categories;       /* bits: 1 << acl_category() */
    uint16_t first_sub, nsubs; /* numbers of its subcommands */
    uint8_t need_first;        /* of its first key: ACL_READ, ACL_WRITE, ored */
    uint8_t need_rest;         /* of the others */
    enum acl_channels channels;
    enum acl_special special;
    bool always; /* all users may call it: AUTH, HELLO, QUIT, RESET */
};

/* The command with this number, or NULL past the last one. */
const struct acl_command *acl_command(size_t index);

/* The names of the categories, in the order in which ACL CAT lists them; NULL past the last one. */
const char *acl_category_name(size_t category);

/* The number of a category, or -1; ASCII case is ignored. */
int acl_category(struct slice name);
