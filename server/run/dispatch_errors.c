#include "dispatch_errors.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "command.h"
#include "conn.h"
#include "handlers.h"
#include "log.h"
#include "nearest.h"
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

/* A browser or other HTTP client that was tricked into talking to this port must not run commands through the body of
 * its request. */
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

/* Clients compare the beginning of the error only. */
#define ABSENT \
    "(Bloomery has filters only: BF.ADD adds an item, BF.EXISTS queries one; it has no GET, no SET and no Lua)"

/* Whether the name is one of Redis's commands for other types or for scripts. */
static bool is_of_other_type(struct slice name)
{
    static const char names[] =
        " append bitcount bitfield bitfield_ro bitop bitpos blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax"
        " bzpopmin decr decrby eval eval_ro evalsha evalsha_ro fcall fcall_ro function geoadd geodist geohash"
        " geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit"
        " getdel getex getrange getset hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex"
        " hincrby hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat hpexpiretime hpttl hrandfield"
        " hscan hset hsetex hsetnx hstrlen httl hvals incr incrby incrbyfloat lcs lindex linsert llen lmove lmpop"
        " lpop lpos lpush lpushx lrange lrem lset ltrim mget mset msetnx pfadd pfcount pfmerge psetex rpop"
        " rpoplpush rpush rpushx sadd scard script sdiff sdiffstore set setbit setex setnx setrange sinter"
        " sintercard sinterstore sismember smembers smismember smove sort sort_ro spop srandmember srem sscan"
        " strlen substr sunion sunionstore xack xadd xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread"
        " xreadgroup xrevrange xsetid xtrim zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard"
        " zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore"
        " zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex"
        " zrevrangebyscore zrevrank zscan zscore zunion zunionstore ";
    char word[32];
    if (!name.len || name.len > sizeof(word) - 3)
        return false;
    int len = snprintf(word, sizeof(word), " %.*s ", (int)name.len, name.len ? name.ptr : "");
    for (char *c = word; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return (size_t)len == name.len + 2 && !memchr(name.ptr, ' ', name.len) && strstr(names, word);
}

/* A BF.* command that may have been meant; NULL: none. There are some thirty, so that this takes microseconds. */
static const char *nearest_of_ours(struct slice name)
{
    const struct command *row;
    const char *found = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; (row = command_row(i)); i++) {
        if (strncasecmp(row->full_name, name.ptr, 3) != 0)
            continue;
        size_t distance = nearest_distance((struct slice){name.ptr + 3, name.len - 3}, slice_of(row->full_name + 3));
        if (nearest_is_slip((struct slice){name.ptr + 3, name.len - 3}, distance) && distance < least) {
            least = distance;
            found = row->full_name;
        }
    }
    return found;
}

#define HINT_SIZE 128

/* The advice for a name that is none of ours. Empty: there is none. */
static void hint(struct slice name, char out[HINT_SIZE])
{
    const char *nearest = NULL;
    out[0] = '\0';
    if (is_of_other_type(name))
        strcpy(out, ABSENT);
    else if (slice_is(name, "bf.del"))
        strcpy(out, "(items of a Bloom filter cannot be deleted; CF.DEL deletes an item of a cuckoo filter, DEL "
                    "deletes a filter)");
    else if (slice_is(name, "bf.help"))
        strcpy(out, "(ACL CAT bloom lists the commands, COMMAND DOCS bf.add explains one)");
    else if (slice_is(name, "cf.help"))
        strcpy(out, "(ACL CAT cuckoo lists the commands, COMMAND DOCS cf.add explains one)");
    else if (name.len > 3 && (strncasecmp(name.ptr, "bf.", 3) == 0 || strncasecmp(name.ptr, "cf.", 3) == 0) &&
             (nearest = nearest_of_ours(name)))
        snprintf(out, HINT_SIZE, "(did you mean '%s'?)", nearest);
}

void dispatch_reject_unknown(struct conn *conn, const struct resp_command *cmd)
{
    struct slice name = resp_arg(cmd, 0);
    if (is_http(conn, name))
        return;
    char text[ECHO_LIMIT * 2 + 192];
    char words[ECHO_LIMIT + 8], why[HINT_SIZE];
    hint(name, why);
    size_t used = 0;
    words[0] = '\0';
    for (size_t i = 1; i < cmd->argc && used < ECHO_LIMIT; i++) {
        struct slice arg = resp_arg(cmd, i);
        int len = printable_len(arg, ECHO_LIMIT - used);
        used += (size_t)snprintf(words + used, sizeof(words) - used, "'%.*s' ", len, len ? arg.ptr : "");
    }
    int len = printable_len(name, ECHO_LIMIT);
    snprintf(text, sizeof(text), "ERR unknown command '%.*s', with args beginning with: %s%s", len, len ? name.ptr : "",
             words, why);
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
