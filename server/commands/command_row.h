/* command_row: a row of the table of commands (command.h), as commands.def and subcommands.def have them.
 *
 * Rows are constant. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command_arg; /* command_arg.h */
struct command_ctx;

/* Its flags. */
enum {
    CMD_WRITE = 1 << 0, /* changes filters; counted as such, refused where writes are */
    CMD_READONLY = 1 << 1,
    CMD_DENYOOM = 1 << 2, /* refused over maxmemory */
    CMD_MODULE = 1 << 3,  /* reported as a command of module "bf", as RedisBloom's are */
    CMD_ADMIN = 1 << 4,
    CMD_PUBSUB = 1 << 5,
    CMD_NOSCRIPT = 1 << 6,
    CMD_LOADING = 1 << 7, /* allowed while filters are being loaded */
    CMD_STALE = 1 << 8,
    CMD_SKIP_MONITOR = 1 << 9,
    CMD_SKIP_SLOWLOG = 1 << 10,
    CMD_FAST = 1 << 11,
    CMD_NOAUTH = 1 << 12, /* allowed before AUTH */
    CMD_NO_ASYNC_LOADING = 1 << 13,
    CMD_NO_MULTI = 1 << 14,
    CMD_ALLOW_BUSY = 1 << 15,
    CMD_SUBSCRIBED = 1 << 16, /* allowed for a RESP2 client that has subscriptions */
    CMD_LARGE = 1 << 17,      /* arguments of any number and size: works in slices, or defers */
    CMD_DEFERS = 1 << 18,     /* always runs in a thread of the pool; hence not in a transaction */
    CMD_CUCKOO = 1 << 19,     /* of cuckoo filters */
    CMD_ALONE = 1 << 20,      /* in a transaction, even as its only one, it runs while all other workers stand still */
    CMD_BITS = 1 << 21,       /* reads or changes bits of the filters that its keys name: these are brought into memory
                               * first */
    CMD_GROWS = 1 << 22,      /* a name or a time may need a little memory: the command waits during evictions, as with
                                 CMD_DENYOOM; without room its handler refuses it */
    CMD_TURNS = 1 << 23,      /* runs in slices, even if it is short: its work is in the filter */
    /* ACL categories beyond those that follow from the flags above: read, write, admin and dangerous, pubsub, bloom or
     * cuckoo; fast or slow except for commands of a module (acl_catalog.c) */
    CAT_KEYSPACE = 1 << 24,
    CAT_CONNECTION = 1 << 25,
    CAT_TRANSACTION = 1 << 26,
    CAT_DANGEROUS = 1 << 27,
    CAT_ADMIN = 1 << 28,
    CAT_FAST = 1 << 29,
    CAT_SLOW = 1 << 30,
};

/* The words that must stay hidden from others (secrets.h). */
enum command_secrets {
    SECRETS_NONE,
    SECRETS_ALL,      /* all after its name */
    SECRETS_OF_HELLO, /* after the version, but SETNAME with its name */
    SECRETS_OF_SETTINGS,
    SECRETS_OF_SEED,         /* the seed of BF.INSERT, behind SEED: of all commands of filters */
    SECRETS_OF_CALL,         /* as in the command that follows */
    SECRETS_OF_CALL_BY_USER, /* the same, after a user's name */
};

/* The reply of COMMAND follows from the row alone, so a row also holds fields that only clients read. Flags, categories
 * and key specifications equal those of Redis and RedisBloom for commands of this name. */
struct command {
    const char *name;                         /* lower case; a subcommand has its own name only: "getname" */
    const char *full_name;                    /* "client|getname" for a subcommand, otherwise the name */
    void (*handler)(struct command_ctx *ctx); /* NULL when only its subcommands can be called */
    int arity;                                /* words, the command's own name included; negative: at least that many */
    uint32_t flags;
    enum command_secrets secrets;
    int first_key, last_key, key_step; /* 0 0 0: takes no keys; last_key -1: all the rest */
    const char *key_flags; /* space separated, as in a key specification: "RW access update". One set holds for all
                              keys; where each key has its own (RENAME) the sets are separated by '|' */
    const char *tips;      /* NULL, or space separated: "request_policy:all_shards" */
    const char *summary, *since;
    const char *group;      /* NULL for a subcommand: its command's */
    const char *complexity; /* NULL: O(1), or that of the subcommands */
    const struct command_arg *args;
    size_t nargs;
    const struct command *subcommands; /* NULL or nsubcommands rows */
    size_t nsubcommands;
};
