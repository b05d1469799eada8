/* ACL: there is one user, "default", who may do everything; its password is the setting requirepass. What tools ask to
 * show users is answered, what would change them is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "command.h"
#include "handlers.h"
#include "server.h"
#include "sha256.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static const char user_name[] = "default";

static bool is_default(struct slice name)
{
    return name.len == strlen(user_name) && memcmp(name.ptr, user_name, name.len) == 0;
}

/* The hash of the password as Redis shows it; "" while there is none. */
static void password_text(const struct command_ctx *ctx, char hex_out[SHA256_HEX_SIZE])
{
    const char *password = server_config(ctx->server)->requirepass;

    hex_out[0] = '\0';
    if (password[0] != '\0')
        sha256_hex(password, strlen(password), hex_out);
}

void cmd_acl_whoami(struct command_ctx *ctx)
{
    reply_bulk_str(ctx->reply, user_name);
}

void cmd_acl_users(struct command_ctx *ctx)
{
    reply_array(ctx->reply, 1);
    reply_bulk_str(ctx->reply, user_name);
}

void cmd_acl_list(struct command_ctx *ctx)
{
    char hex[SHA256_HEX_SIZE], text[SHA256_HEX_SIZE + 64];

    password_text(ctx, hex);
    snprintf(text, sizeof(text), "user %s on %s%s sanitize-payload ~* &* +@all", user_name, hex[0] ? "#" : "nopass",
             hex);
    reply_array(ctx->reply, 1);
    reply_bulk_str(ctx->reply, text);
}

void cmd_acl_getuser(struct command_ctx *ctx)
{
    struct reply *reply = ctx->reply;
    char hex[SHA256_HEX_SIZE];

    if (!is_default(command_arg(ctx, 2))) {
        reply_null(reply);
        return;
    }
    password_text(ctx, hex);
    reply_map(reply, 6);
    reply_bulk_str(reply, "flags");
    reply_set(reply, hex[0] ? 2 : 3);
    reply_bulk_str(reply, "on");
    if (!hex[0])
        reply_bulk_str(reply, "nopass");
    reply_bulk_str(reply, "sanitize-payload");
    reply_bulk_str(reply, "passwords");
    reply_array(reply, hex[0] ? 1 : 0);
    if (hex[0])
        reply_bulk_str(reply, hex);
    reply_bulk_str(reply, "commands");
    reply_bulk_str(reply, "+@all");
    reply_bulk_str(reply, "keys");
    reply_bulk_str(reply, "~*");
    reply_bulk_str(reply, "channels");
    reply_bulk_str(reply, "&*");
    reply_bulk_str(reply, "selectors");
    reply_array(reply, 0);
}

/* ---- ACL CAT ---- */

/* All that Redis has, whether a command of ours is in it or not, and RedisBloom's. */
static const char *const categories[] = {
    "keyspace", "read",        "write",      "set",         "sortedset", "list",  "hash", "string",
    "bitmap",   "hyperloglog", "geo",        "stream",      "pubsub",    "admin", "fast", "slow",
    "blocking", "dangerous",   "connection", "transaction", "scripting", "bloom",
};

void cmd_acl_cat(struct command_ctx *ctx)
{
    const struct command *row;
    size_t n = 0, i = 0;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
        return;
    }
    if (command_argc(ctx) == 2) {
        reply_array(ctx->reply, LEN(categories));
        for (i = 0; i < LEN(categories); i++)
            reply_bulk_str(ctx->reply, categories[i]);
        return;
    }
    struct slice category = command_arg(ctx, 2);
    while (i < LEN(categories) && !slice_is(category, categories[i]))
        i++;
    if (i == LEN(categories)) {
        reply_errorf(ctx->reply, "ERR Unknown category '%.*s'", category.len > 128 ? 128 : (int)category.len,
                     category.len > 0 ? category.ptr : "");
        return;
    }
    size_t token = reply_array_begin(ctx->reply);
    for (i = 0; (row = command_row(i)) != NULL; i++) {
        if (!command_has_category(row, category))
            continue;
        reply_bulk_str(ctx->reply, row->full_name);
        n++;
    }
    reply_array_end(ctx->reply, token, n);
}

/* ---- others ---- */

void cmd_acl_dryrun(struct command_ctx *ctx)
{
    struct slice user = command_arg(ctx, 2), name = command_arg(ctx, 3);
    const struct command *row = command_find_called(ctx->args, 3);

    if (!is_default(user))
        reply_errorf(ctx->reply, "ERR User '%.*s' not found", user.len > 128 ? 128 : (int)user.len,
                     user.len ? user.ptr : "");
    else if (!row)
        reply_errorf(ctx->reply, "ERR Command '%.*s' not found", name.len > 128 ? 128 : (int)name.len,
                     name.len ? name.ptr : "");
    else if (!command_arity_fits(row, command_argc(ctx) - 3))
        reply_errorf(ctx->reply, "ERR wrong number of arguments for '%s' command", row->full_name);
    else
        reply_status(ctx->reply, "OK");
}

#define GENPASS_MAX_BITS 4096

void cmd_acl_genpass(struct command_ctx *ctx)
{
    unsigned char random[GENPASS_MAX_BITS / 8];
    char hex[GENPASS_MAX_BITS / 4 + 3];
    int64_t bits = 256;

    if (command_argc(ctx) > 3) {
        reply_wrong_subcommand(ctx);
        return;
    }
    if (command_argc(ctx) == 3 && !slice_to_int64(command_arg(ctx, 2), &bits)) {
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
        return;
    }
    if (bits < 1 || bits > GENPASS_MAX_BITS) {
        reply_errorf(ctx->reply,
                     "ERR ACL GENPASS argument must be the number of bits for the output password, a positive "
                     "number up to %d",
                     GENPASS_MAX_BITS);
        return;
    }
    size_t digits = (size_t)(bits + 3) / 4, nbytes = (digits + 1) / 2;
    for (size_t got = 0; got < nbytes;) { /* more than 256 bytes may come in pieces */
        ssize_t n = getrandom(random + got, nbytes - got, 0);
        if (n > 0)
            got += (size_t)n;
    }
    for (size_t i = 0; i < nbytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", random[i]);
    reply_bulk(ctx->reply, hex, digits);
}

void cmd_acl_log(struct command_ctx *ctx)
{
    int64_t count;

    if (command_argc(ctx) > 3)
        reply_wrong_subcommand(ctx);
    else if (command_argc(ctx) == 3 && slice_is(command_arg(ctx, 2), "RESET"))
        reply_status(ctx->reply, "OK");
    else if (command_argc(ctx) == 3 && !slice_to_int64(command_arg(ctx, 2), &count))
        reply_error(ctx->reply, "ERR value is not an integer or out of range");
    else
        reply_array(ctx->reply, 0);
}

void cmd_acl_refused(struct command_ctx *ctx)
{
    reply_error(ctx->reply, "ERR there is one user, 'default', who may run every command; its password is the setting "
                            "'requirepass'");
}

void cmd_acl_help(struct command_ctx *ctx)
{
    static const char *const lines[] = {
        "CAT [<category>]",
        "    List the categories, or the commands of one.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Say whether the user may run the command.",
        "GENPASS [<bits>]",
        "    Return random hexadecimal digits, 256 bits if not said otherwise.",
        "GETUSER <username>",
        "    Describe the user.",
        "LIST",
        "    Describe all users: there is one, default, whose password is the setting requirepass.",
        "LOG [<count>|RESET]",
        "    Return nothing: refused access is counted (INFO errorstats), not kept.",
        "USERS",
        "    List the names of all users.",
        "WHOAMI",
        "    Return the name of this connection's user.",
    };

    reply_help(ctx, lines, LEN(lines));
}
