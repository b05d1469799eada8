/* MIGRATE: filters into another server, as Redis does it: DUMP here, RESTORE there, and, without COPY, DEL here.
 *
 * Redis stands still meanwhile; this daemon does not. A pool thread talks to the target while clients continue. An add
 * after the dump must not be lost with the filter. So a filter is deleted only while all workers are stopped, and if
 * its version equals the version before the dump. Otherwise it stays, and the reply reports that: the target has a copy
 * then.
 *
 * One timeout covers the whole exchange with the target (peer_set_deadline()): a target that answers a byte at a time
 * cannot hold it. The command also ends when its client goes, as all clients do at the end of the daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "content.h"
#include "handlers.h"
#include "host.h"
#include "peer.h"
#include "rcu.h"
#include "registry_key.h"
#include "registry_version.h"
#include "server_tls.h"
#include "tls_context.h"

#define TIMEOUT_PRESET_MS 1000
#define TIMEOUT_MAX_MS    INT32_MAX
#define MIGRATIONS_MAX    4 /* at a time: the pool has other jobs, too */

struct key {
    struct slice name;               /* its key in the registry */
    struct registry_version version; /* before its dump */
    bool sent;                       /* the target has it */
    bool removed;
};

struct migration {
    struct command_job *job;
    struct peer_address address;
    struct tls_context *tls; /* NULL: without TLS */
    char port[8];
    int64_t database, timeout_ms;
    bool copy, replace;
    struct key *keys;
    size_t nkeys;
    char *space; /* for the keys */
    struct peer peer;
};

/* ---- arguments ---- */

/* The words of an option, as strings that end with NUL: the copies of the arguments do not. */
static char *keep_word(struct slice word)
{
    char *text = malloc(word.len + 1);
    if (text) {
        if (word.len)
            memcpy(text, word.ptr, word.len);
        text[word.len] = '\0';
    }
    return text;
}

/* Reads the options from 6 on. False after an error reply. */
static bool read_options(struct migration *m, const struct job_args *args, size_t *first_key, size_t *nkeys)
{
    *first_key = 3;
    *nkeys = 1;
    for (size_t i = 6; i < args->argc; i++) {
        struct slice word = args->argv[i];
        size_t left = args->argc - i - 1;
        if (slice_is(word, "COPY")) {
            m->copy = true;
        } else if (slice_is(word, "REPLACE")) {
            m->replace = true;
        } else if (slice_is(word, "AUTH") && left >= 1) {
            free((char *)(uintptr_t)m->address.password);
            m->address.password = keep_word(args->argv[++i]);
        } else if (slice_is(word, "AUTH2") && left >= 2) {
            free((char *)(uintptr_t)m->address.user);
            free((char *)(uintptr_t)m->address.password);
            m->address.user = keep_word(args->argv[i + 1]);
            m->address.password = keep_word(args->argv[i + 2]);
            i += 2;
        } else if (slice_is(word, "KEYS")) {
            if (args->argv[3].len != 0) {
                reply_error(&m->job->reply,
                            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string");
                return false;
            }
            *first_key = i + 1;
            *nkeys = left;
            return true;
        } else {
            reply_error(&m->job->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* Chooses the keys that exist; the others are skipped, as in Redis. False after an error reply. */
static bool choose_keys(struct migration *m, const struct job_args *args, size_t first, size_t n)
{
    size_t bytes = 1;
    for (size_t i = 0; i < n; i++)
        bytes += args->argv[first + i].len + DATABASE_PREFIX;
    char *at = m->space = malloc(bytes);
    if (!at) {
        reply_error(&m->job->reply, "ERR out of memory");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct slice key = key_write(at, m->job->database, args->argv[first + i]);
        at += key.len;
        if (registry_lookup(m->job->server->registry, key))
            m->keys[m->nkeys++].name = key;
    }
    return true;
}

static bool read_arguments(struct migration *m, const struct job_args *args)
{
    struct slice port = args->argv[2];
    size_t first, n;
    if (!read_options(m, args, &first, &n))
        return false;
    if (!slice_to_int64(args->argv[5], &m->timeout_ms) || !slice_to_int64(args->argv[4], &m->database)) {
        reply_error(&m->job->reply, "ERR value is not an integer or out of range");
        return false;
    }
    if (m->timeout_ms <= 0)
        m->timeout_ms = TIMEOUT_PRESET_MS;
    if (m->timeout_ms > TIMEOUT_MAX_MS)
        m->timeout_ms = TIMEOUT_MAX_MS;
    if (port.len < sizeof(m->port))
        memcpy(m->port, port.ptr, port.len);
    m->address.port = m->port;
    m->address.host = keep_word(args->argv[1]);
    m->keys = calloc(n ? n : 1, sizeof(*m->keys));
    if (!m->address.host || !m->keys) {
        reply_error(&m->job->reply, "ERR out of memory");
        return false;
    }
    return choose_keys(m, args, first, n);
}

/* ---- the target ---- */

/* Redis's words; with TLS the reason, too, since there are many. */
static int fail_io(struct migration *m, const char *doing, const struct errbuf *why)
{
    if (m->tls)
        reply_errorf(&m->job->reply, "IOERR error or timeout %s: %s", doing, why->text);
    else
        reply_errorf(&m->job->reply, "IOERR error or timeout %s", doing);
    return -EIO;
}

/* Sends the queued request and takes the reply. 0, or negative after an error reply. */
static int ask(struct migration *m)
{
    struct resp_reply reply;
    struct errbuf err = {""};
    rcu_reader_offline(); /* removed filters can be freed meanwhile */
    int status = peer_reply(&m->peer, &reply, &err);
    rcu_reader_online();
    if (status != 0)
        return fail_io(m, "reading to target instance", &err);
    if (reply.nodes[0].kind != RESP_REPLY_ERROR)
        return 0;
    struct slice text = resp_reply_text(&reply, 0);
    reply_errorf(&m->job->reply, "ERR Target instance replied with error: %.*s", (int)(text.len < 512 ? text.len : 512),
                 text.ptr);
    return -EREMOTEIO;
}

/* With tls-cluster: reads the certificates again, as other servers may have new ones. 0, or negative after an error
 * reply. */
static int prepare_tls(struct migration *m)
{
    struct errbuf err = {""};
    if (!server_config(m->job->server)->tls.cluster)
        return 0;
    rcu_reader_offline();
    int status = server_tls_outgoing(m->job->server, &m->tls, &err);
    rcu_reader_online();
    if (status != 0)
        reply_errorf(&m->job->reply, "ERR tls-cluster: MIGRATE cannot connect with TLS: %s", err.text);
    m->address.tls = m->tls;
    return status;
}

static int meet_target(struct migration *m)
{
    struct errbuf err = {""};
    char number[PEER_NUMBER_SIZE];
    int status;
    peer_set_deadline(&m->peer, m->timeout_ms);
    rcu_reader_offline();
    status = peer_connect(&m->peer, &m->address, &err);
    rcu_reader_online();
    if (status != 0)
        return fail_io(m, "connecting to the client", &err);
    if (m->address.password) {
        struct slice words[] = {slice_of("AUTH"), {NULL, 0}, {NULL, 0}};
        size_t n = 1;
        if (m->address.user)
            words[n++] = slice_of(m->address.user);
        words[n++] = slice_of(m->address.password);
        peer_put(&m->peer, words, n);
        status = ask(m);
    }
    if (status == 0) {
        PEER_PUT(&m->peer, slice_of("SELECT"), peer_number(m->database, number));
        status = ask(m);
    }
    return status;
}

/* ---- a filter ---- */

/* Queues RESTORE of the pinned filter. False after an error reply. */
static bool put_restore(struct migration *m, struct key *key, struct entry *entry)
{
    unsigned char *bytes;
    char number[PEER_NUMBER_SIZE];
    size_t len;
    if (!content_dump(m->job, entry, &bytes, &len))
        return false;
    int64_t ttl = key->version.expires_ms == 0 ? 0 : key->version.expires_ms - clock_unix_ms();
    if (key->version.expires_ms != 0 && ttl < 1)
        ttl = 1;
    struct slice words[] = {slice_of("RESTORE"),
                            key_name(key->name),
                            peer_number(ttl, number),
                            {(const char *)bytes, len},
                            slice_of("REPLACE")};
    peer_put(&m->peer, words, m->replace ? 5 : 4);
    free(bytes);
    return true;
}

/* 0 also when the filter has gone meanwhile; negative after an error reply. */
static int send_key(struct migration *m, struct key *key)
{
    struct registry *registry = m->job->server->registry;
    bool replied;
    key->version = registry_version_settled(registry, registry_hash(registry, key->name), key->name);
    struct entry *entry = content_pin(m->job, key->name, &replied);
    if (!entry)
        return replied ? -EINVAL : 0;
    bool put = entry->id == key->version.id && put_restore(m, key, entry);
    bool changed = entry->id != key->version.id;
    entry_unpin(entry);
    if (changed) {
        reply_error(&m->job->reply, "ERR the filter was replaced by another one a moment ago");
        return -EINVAL;
    }
    if (!put)
        return -EINVAL;
    int status = ask(m);
    key->sent = status == 0;
    return status;
}

/* ---- the end ---- */

/* Called while no thread adds. */
static void remove_unchanged(void *ctx)
{
    struct migration *m = ctx;
    struct registry *registry = m->job->server->registry;
    for (size_t i = 0; i < m->nkeys; i++) {
        struct key *key = &m->keys[i];
        struct registry_version now = registry_version(registry, registry_hash(registry, key->name), key->name);
        if (key->sent && registry_version_same(&now, &key->version))
            key->removed = registry_delete(registry, key->name) == REGISTRY_OK;
    }
}

/* Deletes the filters that were sent, also when a later one was refused. `replied`: an error is the reply already. */
static void finish(struct migration *m, bool replied)
{
    size_t left = 0;
    if (!m->copy) {
        rcu_reader_offline();
        (void)host_alone(m->job->server, remove_unchanged, m);
        rcu_reader_online();
        for (size_t i = 0; i < m->nkeys; i++)
            left += m->keys[i].sent && !m->keys[i].removed;
    }
    if (replied)
        return;
    if (left > 0)
        reply_errorf(&m->job->reply,
                     "ERR %zu of the filters changed while being sent and are in both servers now, here with all adds",
                     left);
    else
        reply_status(&m->job->reply, "OK");
}

static void migrate(struct migration *m, const struct job_args *args)
{
    if (!read_arguments(m, args))
        return;
    if (m->nkeys == 0) {
        reply_status(&m->job->reply, "NOKEY");
        return;
    }
    peer_init(&m->peer, m->timeout_ms, &m->job->client_gone);
    int status = prepare_tls(m);
    if (status == 0)
        status = meet_target(m);
    bool some = false;
    for (size_t i = 0; i < m->nkeys && status == 0; i++) {
        status = send_key(m, &m->keys[i]);
        some |= m->keys[i].sent;
    }
    peer_close(&m->peer);
    tls_context_destroy(m->tls);
    if (status == 0 || some)
        finish(m, status != 0);
}

static void migrate_job(struct command_job *job)
{
    struct migration m = {.job = job};
    if (atomic_fetch_add(&job->server->clients.migrations, 1) < MIGRATIONS_MAX)
        migrate(&m, job->data);
    else
        reply_errorf(&job->reply, "TRYAGAIN %d MIGRATE commands are under way already", MIGRATIONS_MAX);
    atomic_fetch_sub(&job->server->clients.migrations, 1);
    free((char *)(uintptr_t)m.address.host);
    free((char *)(uintptr_t)m.address.user);
    free((char *)(uintptr_t)m.address.password);
    free(m.keys);
    free(m.space);
}

void cmd_migrate(struct command_ctx *ctx)
{
    content_defer(ctx, REGISTRY_MAX_NAME, migrate_job);
}
