#include "admission.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "acl.h"
#include "bf_host.h"
#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "journal_ring.h"
#include "log_waits.h"
#include "memory_use.h"
#include "persistence.h"
#include "residency.h"
#include "transaction.h"

/* ---- the mask ---- */

/* The reasons that concern commands of the row. */
static unsigned concern_of(const struct command *command, uint32_t flags)
{
    unsigned concern = 0;
    if (command->handler != cmd_client_unpause) /* a command that can end the pause runs */
        concern |= ADMISSION_PAUSED;
    if (!(command->flags & CMD_LOADING))
        concern |= ADMISSION_LOADING;
    if (flags & CMD_WRITE)
        concern |= ADMISSION_READ_ONLY | ADMISSION_PAUSED_WRITES | ADMISSION_LOG_FULL;
    if (flags & CMD_DENYOOM)
        concern |= ADMISSION_NO_MEMORY;
    if (flags & (CMD_DENYOOM | CMD_GROWS))
        concern |= ADMISSION_MAKES_ROOM;
    return concern;
}

void admission_init(struct admission *admission, struct io *io, const struct log_waits *log,
                    const size_t counters[PIPELINE_KINDS])
{
    admission->io = io;
    admission->log = log;
    conn_list_init(&admission->paused);
    conn_list_init(&admission->for_memory);
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) {
        const struct command *row = command_row(counters[kind]);
        admission->concern[kind] = concern_of(row, row->flags) | ADMISSION_ONE_BY_ONE;
    }
}

static void set(struct admission *admission, unsigned reason, bool on)
{
    unsigned others = admission->reasons & ~reason;
    admission->reasons = on ? others | reason : others;
}

/* Commands that need memory wait while bits are evicted. Without a policy filters about to be freed do not count. */
static void look_at_memory(struct admission *admission, const struct config *config)
{
    struct server *server = admission->io->server;
    bool evicts = config->memory.maxmemory_policy != MEMORY_NOEVICTION && !server_loading(server);
    uint64_t used = evicts ? memory_limited(server) : memory_staying(server);
    bool over = config->memory.maxmemory && used >= config->memory.maxmemory;
    bool waits = false;
    if (over && evicts) {
        residency_press(server);
        waits = !residency_is_stuck(server);
    }
    set(admission, ADMISSION_NO_MEMORY, over && !waits);
    set(admission, ADMISSION_MAKES_ROOM, waits);
    if (!waits)
        conn_all_ready(&admission->for_memory, CONN_WAITS_MEMORY);
}

static void look_at_refusals(struct admission *admission)
{
    struct server *server = admission->io->server;
    set(admission, ADMISSION_READ_ONLY, server_config(server)->data.read_only || persistence_refuses(server));
}

void admission_look_at_settings(struct admission *admission)
{
    const struct config *config = server_config(admission->io->server);
    timing_refresh(&admission->io->timing, config);
    set(admission, ADMISSION_ONE_BY_ONE, admission->io->timing.exact);
    look_at_memory(admission, config);
    look_at_refusals(admission);
}

/* A paused write is refused after the pause if read-only has been set meanwhile. The end of the pause was stored after
 * that setting, so the refusals are read after `pause`. */
void admission_look_at_pause(struct admission *admission)
{
    struct server *server = admission->io->server;
    enum pause pause = (enum pause)atomic_load_explicit(&server->clients.pause.what, memory_order_acquire);
    if (pause && admission->io->now_ms >= atomic_load_explicit(&server->clients.pause.until_ms, memory_order_relaxed))
        pause = PAUSE_NOTHING;
    set(admission, ADMISSION_PAUSED, pause == PAUSE_ALL);
    set(admission, ADMISSION_PAUSED_WRITES, pause == PAUSE_WRITES);
    look_at_refusals(admission);
    if (!pause)
        conn_all_ready(&admission->paused, CONN_WAITS_PAUSE);
}

void admission_look(struct admission *admission, bool loading, bool log_full)
{
    admission_look_at_settings(admission);
    set(admission, ADMISSION_LOADING, loading);
    set(admission, ADMISSION_LOG_FULL, log_full);
    admission_look_at_pause(admission);
}

/* ---- the pipeline ---- */

/* The log needs room for all adds that the pipeline may hold and for those of the new run; with a twin each add is
 * recorded twice. The rights of the client's user are checked where the name of the filter is known. */
bool admission_by_pipeline(const struct admission *admission, const struct conn *conn, enum pipeline_kind kind)
{
    if ((admission->reasons & admission->concern[kind]) || (conn->session.modes & ~(unsigned)MODE_RESTRICTED) ||
        !atomic_load_explicit(&conn->session.acl.authenticated, memory_order_relaxed))
        return false;
    return !pipeline_kind_writes(kind) || !admission->log->ring ||
           ring_reserve(admission->log->ring, 2 * (PIPELINE_ITEMS + PIPELINE_RUN)) == 0;
}

/* ---- one command ---- */

/* An EXEC writes, and needs memory, if its queued commands do. */
static uint32_t effective_flags(const struct conn *conn, const struct command *command)
{
    return command->handler == cmd_exec ? command->flags | transaction_flags(&conn->session) : command->flags;
}

static enum admission_answer refuse_with(char *text_out, const char *text)
{
    snprintf(text_out, DISPATCH_ERROR_SIZE, "%s", text);
    return ADMISSION_REFUSE;
}

/* Whether arguments and transaction allow the command. */
static enum admission_answer check_size(const struct conn *conn, const struct command *command,
                                        const struct resp_command *cmd, char *text_out)
{
    bool multi = conn->session.modes & MODE_IN_MULTI;
    if (!(command->flags & CMD_LARGE) && cmd->argc > COMMAND_MAX_WORDS)
        snprintf(text_out, DISPATCH_ERROR_SIZE, "ERR too many arguments for '%s' command: at most %d",
                 command->full_name, COMMAND_MAX_WORDS);
    else if (!(command->flags & CMD_LARGE) && command_bytes(cmd) > COMMAND_MAX_BYTES)
        snprintf(text_out, DISPATCH_ERROR_SIZE, "ERR the arguments of '%s' command have more than %zu bytes",
                 command->full_name, COMMAND_MAX_BYTES);
    else if (multi && (command->flags & CMD_DEFERS))
        snprintf(text_out, DISPATCH_ERROR_SIZE,
                 "ERR '%s' may take long, and all clients wait while a transaction runs: send it outside of MULTI",
                 command->full_name);
    else if (multi && transaction_takes(&conn->session, command) && !transaction_has_room(&conn->session, command, cmd))
        snprintf(text_out, DISPATCH_ERROR_SIZE,
                 "ERR the transaction is too long, and all clients wait while it runs: split it, or send its commands "
                 "without MULTI");
    else
        return ADMISSION_RUN;
    return ADMISSION_REFUSE;
}

/* Whether the client's user may run the command. */
static bool has_rights(struct conn *conn, const struct command *command, const struct resp_command *cmd,
                       enum admission_of of, char *text_out)
{
    const struct acl_user *user = conn->session.acl.user;
    size_t at = 0;
    if (!(conn->session.modes & MODE_RESTRICTED))
        return true;
    enum acl_verdict verdict = acl_check(user, command, cmd, 0, &at);
    if (verdict == ACL_ALLOWED)
        return true;
    struct slice name = slice_of(command->full_name);
    if (verdict != ACL_DENIED_WORK)
        acl_note_denied(conn->io->server, &conn->session, verdict,
                        verdict == ACL_DENIED_COMMAND ? name : resp_arg(cmd, at), slice_of(user->name));
    if (of == ADMISSION_OF_EXEC)
        refuse_with(text_out, acl_denial_of_exec(verdict));
    else
        acl_denial(verdict, command, text_out, DISPATCH_ERROR_SIZE);
    return false;
}

static bool is_valkey(const struct conn *conn, const struct command *command)
{
    return (command->flags & (CMD_MODULE | CMD_CUCKOO)) == CMD_MODULE && bf_is_valkey(conn->io->server);
}

/* valkey-bloom's BF.INSERT needs no items. */
static bool valkey_fits(const struct conn *conn, const struct command *command, const struct resp_command *cmd)
{
    return command->handler == cmd_bf_insert && cmd->argc >= 2 && is_valkey(conn, command);
}

/* Whether the command fits its row and the rights of its client. */
static enum admission_answer check_call(struct conn *conn, const struct command *command,
                                        const struct resp_command *cmd, char *text_out)
{
    if (!command->handler || !(command_arity_fits(command, cmd->argc) || valkey_fits(conn, command, cmd))) {
        snprintf(text_out, DISPATCH_ERROR_SIZE, "ERR wrong number of arguments for '%s' command", command->full_name);
        for (char *at = strchr(text_out, '\''); is_valkey(conn, command) && *++at != '\'';)
            *at = (char)toupper((unsigned char)*at);
        return ADMISSION_REFUSE;
    }
    const char *why_not = command->handler == cmd_debug ? debug_refusal(conn->io->server, &conn->session) : NULL;
    if (why_not)
        return refuse_with(text_out, why_not);
    if (!conn->session.acl.authenticated && !(command->flags & CMD_NOAUTH))
        return refuse_with(text_out, "NOAUTH Authentication required.");
    /* CLIENT REPLY would leave EXEC's array with fewer elements than it announces. */
    if ((conn->session.modes & MODE_IN_MULTI) &&
        ((command->flags & CMD_NO_MULTI) || command->handler == cmd_client_reply))
        return refuse_with(text_out, "ERR Command not allowed inside a transaction");
    if (!has_rights(conn, command, cmd, ADMISSION_OF_NEW, text_out))
        return ADMISSION_REFUSE;
    return check_size(conn, command, cmd, text_out);
}

/* Whether the state of the server or of the connection forbids the command. */
static enum admission_answer check_state(const struct conn *conn, const struct command *command, unsigned reasons,
                                         char *text_out)
{
    if (reasons & ADMISSION_LOADING)
        return refuse_with(text_out, "LOADING Bloomery is loading the filters, INFO persistence shows the progress");
    if (reasons & ADMISSION_READ_ONLY) {
        if (server_config(conn->io->server)->data.read_only)
            return refuse_with(text_out,
                               "READONLY You can't write against a read only server: its setting read-only is yes");
        /* Writes may just have become possible again: then this refusal is one too many. */
        if (!persistence_refusal(conn->io->server, text_out, DISPATCH_ERROR_SIZE))
            refuse_with(text_out, "MISCONF Errors writing to the AOF file: it could not be written a moment ago");
        return ADMISSION_REFUSE;
    }
    if (reasons & ADMISSION_NO_MEMORY)
        return refuse_with(text_out, COMMAND_OOM);
    /* RESP2 cannot distinguish a message from a reply, so a subscribed RESP2 client gets no other replies. */
    if (conn->session.pubsub.subscribed && !(command->flags & CMD_SUBSCRIBED) &&
        atomic_load_explicit(&conn->session.resp, memory_order_relaxed) == 2) {
        snprintf(text_out, DISPATCH_ERROR_SIZE,
                 "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
                 "allowed in this context",
                 command->full_name);
        return ADMISSION_REFUSE;
    }
    return ADMISSION_RUN;
}

/* Whether the command waits or is queued. */
static enum admission_answer check_time(const struct conn *conn, const struct command *command, unsigned reasons)
{
    if (reasons & (ADMISSION_PAUSED | ADMISSION_PAUSED_WRITES))
        return ADMISSION_WAIT_PAUSE;
    if (reasons & ADMISSION_LOG_FULL)
        return ADMISSION_WAIT_ROOM;
    if (reasons & ADMISSION_MAKES_ROOM)
        return ADMISSION_WAIT_MEMORY;
    if (transaction_takes(&conn->session, command))
        return ADMISSION_QUEUE;
    return ADMISSION_RUN;
}

/* Reserves room in the log for the command's adds, twice: an add during a replacement is recorded for both filters. */
static bool reserve_room(struct journal_ring *ring, const struct session *session, const struct command *command,
                         const struct resp_command *cmd)
{
    size_t n = cmd->argc > COMMAND_SLICE && !session->multi.in_exec ? COMMAND_SLICE : cmd->argc; /* the most items of
                                                                                                  * one slice */
    return !ring || !(command->flags & CMD_WRITE) || ring_reserve(ring, 2 * n) == 0;
}

#define NO_ROOM "MISCONF Errors writing to the AOF file: no room for more records in memory or on the disk"

enum admission_answer admission_check(const struct admission *admission, struct conn *conn,
                                      const struct command *command, const struct resp_command *cmd,
                                      enum admission_of of, char text_out[DISPATCH_ERROR_SIZE])
{
    unsigned reasons = admission->reasons;
    if (reasons) /* usually none */
        reasons &= concern_of(command, effective_flags(conn, command));
    enum admission_answer answer;
    if (of == ADMISSION_OF_NEW && ((answer = check_call(conn, command, cmd, text_out)) != ADMISSION_RUN ||
                                   (answer = check_state(conn, command, reasons, text_out)) != ADMISSION_RUN))
        return answer;
    /* Rights may have changed since a command was queued, or between its slices: no item is added without them. */
    bool again = of == ADMISSION_OF_EXEC || (of == ADMISSION_OF_BEGUN && conn->session.acl.changed);
    if (again && !has_rights(conn, command, cmd, of, text_out))
        return ADMISSION_REFUSE;
    conn->session.acl.changed = false;
    if (of != ADMISSION_OF_EXEC && (answer = check_time(conn, command, reasons)) != ADMISSION_RUN)
        return answer;
    if (!reserve_room(admission->log->ring, &conn->session, command, cmd))
        return refuse_with(text_out, NO_ROOM);
    return ADMISSION_RUN;
}
