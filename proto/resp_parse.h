/* resp_parse: a push parser for requests: RESP arrays of bulk strings (the same in RESP2 and RESP3) and inline
 * commands.
 *
 * It knows no socket and no command. It copies no argument: arguments are offsets into the caller's bytes. It reads no
 * byte twice, however the input is cut, because it remembers its position (an inline command is searched once for its
 * end, then split once). It allocates nothing per command: the caller lends the list of arguments (one per thread is
 * enough). Only a parser with an incomplete command keeps its own list, which grows with the arguments that have
 * arrived, not with the number announced.
 *
 * The caller keeps the bytes of an incomplete command contiguous, from its first byte on, and passes them again with
 * more bytes after them. They may move between calls but not change.
 *
 * The parser follows Redis rather than the specification in these points. "*0" and negative counts are empty requests.
 * It skips the byte after the \r of a header line and the two bytes after an argument, with any value. Only \r ends a
 * header line; an inline command ends with \n or \r\n; empty lines are skipped. Unlike Redis, the parser immediately
 * refuses a NUL byte in an inline command, and a wrong byte instead of '$'. Redis waits without limit in the first
 * case, and until the end of the line in the second. A command is at most UINT32_MAX bytes long.
 *
 * Reference: the Redis serialization protocol specification; error texts as Redis 8 words them.
 *
 * Lifetime: caller's storage, resp_parser_init() to resp_parser_deinit(). Thread: any, on distinct objects. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* Limits of a request. A request that passes one is RESP_MALFORMED. All at most UINT32_MAX. */
struct resp_limits {
    size_t max_args;   /* arguments of a command, the name included */
    size_t max_bulk;   /* bytes of one argument */
    size_t max_inline; /* bytes of an inline command, or of a header line (at least 32 there), without the line end */
};

#define RESP_MAX_ARGS_DEFAULT   (1024 * 1024)       /* a batch of a million items is one command; more is a mistake */
#define RESP_MAX_BULK_DEFAULT   (512 * 1024 * 1024) /* Redis's proto-max-bulk-len */
#define RESP_MAX_INLINE_DEFAULT (64 * 1024)         /* Redis's PROTO_INLINE_MAX_SIZE */
#define RESP_MAX_ARGS_NOAUTH    10                  /* strangers must not make the server keep much */
#define RESP_MAX_BULK_NOAUTH    16384

/* Where an argument is, relative to the first byte of its command. */
struct resp_span {
    uint32_t off;
    uint32_t len;
};

/* The list of arguments of one command at a time, reused for all commands of a thread. Zero-initialise. */
struct resp_args {
    struct resp_span *spans;
    size_t count;
    size_t size;
};
void resp_args_deinit(struct resp_args *args); /* idempotent */

struct resp_command {
    const char *base;              /* first byte of the command; spans are relative to it */
    const struct resp_span *spans; /* valid until the next call of the parser with the same resp_args */
    size_t argc;                   /* >= 1 */
};

static inline struct slice resp_arg(const struct resp_command *cmd, size_t i)
{
    return (struct slice){cmd->base + cmd->spans[i].off, cmd->spans[i].len};
}

/* The bytes of the request between argument i and the one before it: of its own length, except in inline commands. */
static inline size_t resp_gap(const struct resp_command *cmd, size_t i)
{
    const struct resp_span *before = &cmd->spans[i - 1];
    return cmd->spans[i].off - (before->off + before->len);
}

enum resp_status {
    RESP_COMMAND = 0,   /* a whole command; command_out is filled */
    RESP_NEED_MORE = 1, /* no whole command is left in the input */
    RESP_MALFORMED = 2, /* not RESP, or over a limit; sticky until re-init; resp_parser_error() has the reason */
    RESP_NO_MEMORY = 3, /* the list of arguments cannot grow; sticky until re-init */
};

struct resp_parser {
    /* internal */
    struct resp_args held; /* the arguments so far of an incomplete command */
    size_t pos;            /* bytes of the current command checked so far */
    size_t line;           /* where its current header line began */
    uint64_t value;        /* number in that line so far; then the length of the argument whose body is due */
    uint32_t argc;         /* arguments announced */
    uint8_t state;
    uint8_t number; /* enum number of resp_parse.c: state of that number */
    uint8_t negative;
    uint8_t noauth; /* the client is unauthenticated (for the error text) */
    uint8_t error;
    uint8_t bad_byte;
};

void resp_parser_init(struct resp_parser *parser);
void resp_parser_deinit(struct resp_parser *parser); /* idempotent */

/* Looks for one command in buf[0..len). `buf` begins with the first byte that earlier calls did not report consumed;
 * `args` is scratch. Limits may change between calls, and apply to the bytes of this call. `buf` is written to only
 * inside an inline command (quoted arguments are unescaped in place).
 *
 * RESP_COMMAND: consumed_out bytes, at least 1, make up this command and the empty requests before it; call again with
 * the rest. command_out->base is behind the empty requests. RESP_NEED_MORE: consumed_out bytes were empty requests, the
 * others (none, or an incomplete request) must be passed again with more after them. Otherwise consumed_out is 0.
 * command_out is written only with RESP_COMMAND. `noauth` chooses the wording "unauthenticated ..." of limit errors. */
enum resp_status resp_parser_next(struct resp_parser *parser, struct resp_args *args, const struct resp_limits *limits,
                                  int noauth, char *buf, size_t len, size_t *consumed_out,
                                  struct resp_command *command_out);

/* After RESP_NEED_MORE: the number of bytes that the next call needs to make progress, counted from the first
 * unconsumed byte of the incomplete request. So one read can fetch a large argument. Always more than were passed;
 * never beyond the current argument, so at most max_bulk + 2 more. */
size_t resp_parser_needs(const struct resp_parser *parser);

/* Bytes of memory that the parser keeps for an incomplete command, at most 16 per argument that has arrived (128 at
 * least); 0 between commands. */
static inline size_t resp_parser_memory(const struct resp_parser *parser)
{
    return parser->held.size * sizeof(struct resp_span);
}

/* After RESP_MALFORMED: the text to send, without "-ERR " and line end ("Protocol error: ..."). Printable ASCII, cut to
 * size - 1 bytes; RESP_ERROR_TEXT_SIZE is enough for any. Empty after any other status. */
#define RESP_ERROR_TEXT_SIZE 64
void resp_parser_error(const struct resp_parser *parser, char *text_out, size_t size);
