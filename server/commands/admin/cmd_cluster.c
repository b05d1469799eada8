/* CLUSTER and its kin. Without cluster-emulation they answer as a Redis without cluster support, which shows clients
 * that this is a single server. With it they describe a cluster of one node that has all slots, as Redis 7.0 would: a
 * client made for clusters finds that node and sends it everything. Keys of several slots in one command are served: a
 * client that has one node for all slots never needs them refused. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "handlers.h"
#include "server.h"

#define SLOTS      16384
#define BUS_OFFSET 10000 /* from a node's port to that of its bus, which does not exist here */

/* Whether there is a cluster; false after an error reply. */
static bool has_cluster(struct command_ctx *ctx)
{
    if (server_config(ctx->server)->cluster.emulation)
        return true;
    return reply_error(ctx->reply, "ERR This instance has cluster support disabled");
}

/* ---- the node's address ---- */

/* The address at which a client finds this node: that of the settings, else the one to which it has connected. */
struct endpoint {
    char ip[64];
    int port;
    bool tls;
    const char *hostname; /* "" for none */
    enum endpoint_type preferred;
};

static void split_address(const char *laddr, struct endpoint *endpoint)
{
    const char *colon = strrchr(laddr, ':'), *begin = laddr;
    if (laddr[0] == '/' || !colon) /* a Unix socket: this machine */
        return;
    endpoint->port = atoi(colon + 1);
    size_t len = (size_t)(colon - laddr);
    if (len >= 2 && laddr[0] == '[') {
        begin++;
        len -= 2;
    }
    if (len < sizeof(endpoint->ip)) {
        memcpy(endpoint->ip, begin, len);
        endpoint->ip[len] = '\0';
    }
}

static struct endpoint endpoint_of(const struct command_ctx *ctx)
{
    const struct config *config = server_config(ctx->server);
    const struct process_facts *process = &ctx->server->process;
    struct endpoint endpoint = {.ip = "127.0.0.1",
                                .port = process->port ? process->port : process->tls_port,
                                .hostname = config->cluster.announce_hostname,
                                .preferred = (enum endpoint_type)config->cluster.preferred_endpoint_type};
    split_address(ctx->session->origin.laddr, &endpoint);
    endpoint.tls = process->tls_port != 0 && endpoint.port == process->tls_port;
    int announced = (int)(endpoint.tls ? config->cluster.announce_tls_port : config->cluster.announce_port);
    if (announced)
        endpoint.port = announced;
    if (config->cluster.announce_ip[0])
        snprintf(endpoint.ip, sizeof(endpoint.ip), "%s", config->cluster.announce_ip);
    return endpoint;
}

static void reply_endpoint(struct reply *reply, const struct endpoint *endpoint)
{
    if (endpoint->preferred == ENDPOINT_IP)
        reply_bulk_str(reply, endpoint->ip);
    else if (endpoint->preferred == ENDPOINT_HOSTNAME)
        reply_bulk_str(reply, endpoint->hostname[0] ? endpoint->hostname : "?");
    else
        reply_null(reply);
}

/* ---- the description of the cluster ---- */

void cmd_cluster_slots(struct command_ctx *ctx)
{
    struct reply *reply = ctx->reply;
    if (!has_cluster(ctx))
        return;
    struct endpoint endpoint = endpoint_of(ctx);
    bool ip = endpoint.preferred != ENDPOINT_IP;
    bool hostname = endpoint.preferred != ENDPOINT_HOSTNAME && endpoint.hostname[0];
    reply_array(reply, 1);
    reply_array(reply, 3);
    reply_integer(reply, 0);
    reply_integer(reply, SLOTS - 1);
    reply_array(reply, 4);
    reply_endpoint(reply, &endpoint);
    reply_integer(reply, endpoint.port);
    reply_bulk_str(reply, ctx->server->process.run_id);
    reply_map(reply, (size_t)ip + hostname); /* the other forms of its address */
    if (ip)
        reply_pair(reply, "ip", endpoint.ip);
    if (hostname)
        reply_pair(reply, "hostname", endpoint.hostname);
}

void cmd_cluster_shards(struct command_ctx *ctx)
{
    struct reply *reply = ctx->reply;
    if (!has_cluster(ctx))
        return;
    struct endpoint endpoint = endpoint_of(ctx);
    reply_array(reply, 1);
    reply_map(reply, 2);
    reply_bulk_str(reply, "slots");
    reply_array(reply, 2);
    reply_integer(reply, 0);
    reply_integer(reply, SLOTS - 1);
    reply_bulk_str(reply, "nodes");
    reply_array(reply, 1);
    reply_map(reply, endpoint.hostname[0] ? 8 : 7);
    reply_pair(reply, "id", ctx->server->process.run_id);
    reply_bulk_str(reply, endpoint.tls ? "tls-port" : "port");
    reply_integer(reply, endpoint.port);
    reply_pair(reply, "ip", endpoint.ip);
    reply_bulk_str(reply, "endpoint");
    reply_endpoint(reply, &endpoint);
    if (endpoint.hostname[0])
        reply_pair(reply, "hostname", endpoint.hostname);
    reply_pair(reply, "role", "master");
    reply_number_pair(reply, "replication-offset", 0);
    reply_pair(reply, "health", "online");
}

void cmd_cluster_nodes(struct command_ctx *ctx)
{
    char text[160 + CONFIG_MAX_HOST];
    if (!has_cluster(ctx))
        return;
    struct endpoint endpoint = endpoint_of(ctx);
    int len = snprintf(text, sizeof(text), "%s %s:%d@%d%s%s myself,master - 0 0 0 connected 0-%d\n",
                       ctx->server->process.run_id, endpoint.ip, endpoint.port, endpoint.port + BUS_OFFSET,
                       endpoint.hostname[0] ? "," : "", endpoint.hostname, SLOTS - 1);
    reply_verbatim(ctx->reply, "txt", text, (size_t)len);
}

void cmd_cluster_info(struct command_ctx *ctx)
{
    static const char text[] = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n"
                               "cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\n"
                               "cluster_size:1\r\ncluster_current_epoch:0\r\ncluster_my_epoch:0\r\n"
                               "cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
                               "total_cluster_links_buffer_limit_exceeded:0\r\n";
    if (has_cluster(ctx))
        reply_verbatim(ctx->reply, "txt", text, sizeof(text) - 1);
}

void cmd_cluster_myid(struct command_ctx *ctx)
{
    if (has_cluster(ctx))
        reply_bulk_str(ctx->reply, ctx->server->process.run_id);
}

/* To other nodes. */
void cmd_cluster_links(struct command_ctx *ctx)
{
    if (has_cluster(ctx))
        reply_array(ctx->reply, 0);
}

void cmd_cluster_replicas(struct command_ctx *ctx)
{
    struct slice id = command_arg(ctx, 2);
    const char *mine = ctx->server->process.run_id;
    if (!has_cluster(ctx))
        return;
    if (id.len == strlen(mine) && memcmp(id.ptr, mine, id.len) == 0)
        reply_array(ctx->reply, 0);
    else
        reply_errorf(ctx->reply, "ERR Unknown node %.*s", slice_shown(id), id.ptr);
}

/* READONLY, READWRITE, ASKING: about replicas and moving slots, which do not exist here. */
void cmd_cluster_mode(struct command_ctx *ctx)
{
    if (has_cluster(ctx))
        reply_status(ctx->reply, "OK");
}

/* ---- slots ---- */

static uint16_t crc16(const char *bytes, size_t len)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc = (uint16_t)(crc ^ (unsigned char)bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0));
    }
    return crc;
}

/* The slot of a name: CRC-16/XMODEM modulo 16384 of the name, or of the bytes between its first '{' and the next '}'
 * unless they are empty (Redis cluster specification). */
static unsigned slot_of(const char *name, size_t len)
{
    const char *open = len ? memchr(name, '{', len) : NULL;
    const char *close = open ? memchr(open + 1, '}', (size_t)(name + len - open - 1)) : NULL;
    if (close && close > open + 1) {
        name = open + 1;
        len = (size_t)(close - name);
    }
    return crc16(name, len) % SLOTS;
}

void cmd_cluster_keyslot(struct command_ctx *ctx)
{
    struct slice key = command_arg(ctx, 2);
    if (has_cluster(ctx))
        reply_integer(ctx->reply, slot_of(key.ptr, key.len));
}

void cmd_cluster_help(struct command_ctx *ctx)
{
    if (has_cluster(ctx))
        cmd_help(ctx);
}
