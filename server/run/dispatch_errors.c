#include "dispatch_errors.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "log.h"
#include "transaction.h"

#define ECHO_LIMIT 128 /* bytes of a client's words that an error repeats, as in Redis */

void dispatch_count_command(struct conn *conn)
{
    stats_add(&conn->io->stats.commands_processed, 1);
    stats_add(&conn->session.meters.commands, 1);
}

void dispatch_reject(struct conn *conn, const struct command *command, const char *text)
{
    struct stats *stats = &conn->io->stats;
    (void)turns_clock_ns(&conn->io->turns); /* thousands of refused commands take time, too */
    dispatch_count_command(conn);
    transaction_taint(&conn->session);
    if (command && command->handler == cmd_exec) {
        transaction_end(&conn->session);
        reply_errorf(&conn->output.reply, "EXECABORT Transaction discarded because of: %s",
                     strncmp(text, "ERR ", 4) == 0 ? text + 4 : text);
    } else {
        reply_error(&conn->output.reply, text);
    }
    stats_add(&stats->error_replies, 1);
    errorstats_count(&conn->io->timing.errors, text, strlen(text));
    if (command)
        stats_add(&stats->rejected[command_index(command)], 1);
}

/* A browser that was tricked into talking to this port must not run commands through the body of its request. */
static bool is_http(struct conn *conn, struct slice name)
{
    if (!slice_is(name, "post") && !slice_is(name, "host:"))
        return false;
    struct server *server = conn->io->server;
    log_limited(&server->log, &server->log.limits.attack, conn->io->now_ms, LOG_LEVEL_WARNING,
                "%s sent an HTTP request, as Prometheus or a cross-protocol attack does; this port speaks the Redis "
                "protocol only: the connection is closed (logged once an hour)",
                conn->session.origin.addr);
    conn_drain(conn);
    return true;
}

/* The length of an argument as a C string, which Redis repeats in errors. */
static int printable_len(struct slice arg, size_t limit)
{
    const char *nul = arg.len ? memchr(arg.ptr, '\0', arg.len) : NULL;
    size_t len = nul ? (size_t)(nul - arg.ptr) : arg.len;
    return (int)(len < limit ? len : limit);
}

/* The advice for a name that is none of ours; clients compare the beginning of the error only. */
static const char *advice_for(struct slice name)
{
    if (slice_is(name, "bf.del"))
        return "(items of a Bloom filter cannot be deleted; CF.DEL deletes an item of a cuckoo filter, DEL deletes a "
               "filter)";
    if (slice_is(name, "bf.help"))
        return "(ACL CAT bloom lists the commands, COMMAND DOCS bf.add explains one)";
    return slice_is(name, "cf.help") ? "(ACL CAT cuckoo lists the commands, COMMAND DOCS cf.add explains one)" : "";
}

void dispatch_reject_unknown(struct conn *conn, const struct resp_command *cmd)
{
    struct slice name = resp_arg(cmd, 0);
    if (is_http(conn, name))
        return;
    char text[ECHO_LIMIT * 2 + 192];
    char words[ECHO_LIMIT + 8];
    size_t used = 0;
    words[0] = '\0';
    for (size_t i = 1; i < cmd->argc && used < ECHO_LIMIT; i++) {
        struct slice arg = resp_arg(cmd, i);
        int len = printable_len(arg, ECHO_LIMIT - used);
        used += (size_t)snprintf(words + used, sizeof(words) - used, "'%.*s' ", len, len ? arg.ptr : "");
    }
    int len = printable_len(name, ECHO_LIMIT);
    snprintf(text, sizeof(text), "ERR unknown command '%.*s', with args beginning with: %s%s", len, len ? name.ptr : "",
             words, advice_for(name));
    stats_add(&conn->io->stats.unknown_commands, 1);
    dispatch_reject(conn, NULL, text);
}

void dispatch_reject_subcommand(struct conn *conn, const struct command *container, struct slice word)
{
    char text[ECHO_LIMIT + 128], upper[32];
    size_t n = 0;
    for (; container->name[n] && n < sizeof(upper) - 1; n++)
        upper[n] = (char)toupper((unsigned char)container->name[n]);
    upper[n] = '\0';
    int len = printable_len(word, ECHO_LIMIT);
    snprintf(text, sizeof(text), "ERR unknown subcommand '%.*s'. Try %s HELP.", len, len ? word.ptr : "", upper);
    dispatch_reject(conn, container, text);
}

void dispatch_count_error(struct conn *conn, const struct buf *replies, size_t before, size_t counter)
{
    if (buf_failed(replies) || buf_len(replies) <= before || buf_head(replies)[before] != '-')
        return;
    stats_add(&conn->io->stats.failed[counter], 1);
    stats_add(&conn->io->stats.error_replies, 1);
    errorstats_count(&conn->io->timing.errors, buf_head(replies) + before + 1, buf_len(replies) - before - 1);
}

void deferred_done(struct conn *conn, struct buf *reply, const struct command *command, bool no_reply)
{
    stats_add(&conn->io->stats.calls[command_index(command)], 1);
    if (conn_is_closing(conn)) {
        conn_free_reply(conn, reply);
        conn_ready(conn, CONN_WAITS_JOB);
        return;
    }
    conn_will_reply(conn);
    dispatch_count_error(conn, reply, 0, command_index(command));
    if (no_reply)
        conn_free_reply(conn, reply);
    else
        conn_append_reply(conn, reply);
    conn->output.wrote |= (command->flags & CMD_WRITE) != 0;
    conn_ready(conn, CONN_WAITS_JOB);
}
