#include "sim_world.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schedule.h"
#include "sim_client.h"
#include "sim_commands.h"
#include "sim_daemon.h"
#include "sim_disk.h"
#include "sim_sstables.h"

#define MS           UINT64_C(1000000)
#define MAX_POINTS   20000000
#define SHARED_PAGES (4 * 65536) /* small filters share them */
#define PATIENCE     600         /* looks for a reply, with a tenth of a second between them */

static const char *const memory_policies[] = {"noeviction", "noeviction", "reload", "maybe"};

static struct {
    struct sim_life *life;
    struct model *model;
    struct sim_client clients[MODEL_CLIENTS];
} world;

static uint64_t below(uint64_t n)
{
    return schedule_client_random() % n;
}

/* ---- the end ---- */

static void take_replies(unsigned index)
{
    struct sim_client *client = &world.clients[index];
    struct resp_reply reply;
    enum resp_reply_status status;
    while (sim_client_reply(client, &reply, &status)) {
        if (world.life->shown)
            printf("%14.6f  %u < %d %.*s %lld\n", (double)schedule_now_ns() / 1e9, index, (int)reply.nodes[0].kind,
                   (int)reply.nodes[0].len, reply.base + reply.nodes[0].off, (long long)reply.nodes[0].number);
        schedule_note((uint64_t)reply.nodes[0].number ^ reply.nodes[0].len << 32 ^ (uint64_t)index << 56);
        model_replied(world.model, index, &reply, schedule_now_ns(), schedule_day_ms());
    }
    if (status != RESP_REPLY_NEED_MORE)
        model_fail(world.model, "client %u: a malformed reply", index);
}

static void keep_bounds(enum model_kept kept)
{
    struct sim_life *life = world.life;
    uint64_t now = schedule_now_ns();
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        for (unsigned j = 0; j < MODEL_NAMES; j++)
            life->names[i][j] = model_bounds_of(world.model, i, j, kept, now);
    for (unsigned i = 0; i < MODEL_SHARED; i++)
        life->shared[i] = model_bounds_of_shared(world.model, i, kept, now);
}

/* A reply that the daemon has sent counts, even if nobody has read it. In any thread, at a point of the schedule. */
static __attribute__((noreturn)) void end_life(void)
{
    struct sim_life *life = world.life;
    enum model_kept kept = life->policy == POLICY_NO_LOG                                 ? KEPT_SAVES
                           : life->end != END_POWER || life->policy == POLICY_ALWAYS     ? KEPT_ACKNOWLEDGED
                           : life->policy == POLICY_EVERYSEC && life->disk_fails_in == 0 ? KEPT_SECONDS
                                                                                         : KEPT_SAVES;
    life->kept = kept;
    sim_memory_fail(0);
    sim_memory_fail_in("", 0);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        if (world.clients[i].fd >= 0) {
            (void)sim_client_receive(&world.clients[i]);
            take_replies(i);
        }
    keep_bounds(kept);
    world.model->counts_may_exceed |= kept == KEPT_SAVES && life->policy == POLICY_NO_LOG;
    life->now_ns = schedule_now_ns();
    life->trace = schedule_trace();
    life->points = schedule_points();
    life->faults = sim_disk_failures() + sim_memory_failures();
    life->over = true;
    fflush(stdout);
    _exit(0);
}

/* The daemon has changed nothing for a client: the bounds of this life hold for the next one. */
static __attribute__((noreturn)) void end_start(void)
{
    struct sim_life *life = world.life;
    life->now_ns = schedule_now_ns();
    life->trace = schedule_trace();
    life->points = schedule_points();
    life->over = true;
    fflush(stdout);
    _exit(0);
}

static void lose_connection(unsigned index)
{
    if (!world.model->faults)
        model_fail(world.model, "client %u: the daemon has closed its connection", index);
    end_life(); /* nobody knows which of its commands have run */
}

static void receive(unsigned index)
{
    bool open = sim_client_receive(&world.clients[index]);
    take_replies(index);
    if (world.model->failure[0])
        end_life();
    if (!open)
        lose_connection(index);
}

static void connect_all(void)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        int fd;
        while ((fd = sim_connect()) < 0)
            schedule_sleep(MS);
        sim_client_open(&world.clients[i], fd);
    }
    if (world.life->sstables)
        sim_sstables_connect();
}

static void send_now(unsigned index, size_t n, const char *const *words)
{
    sim_client_words(&world.clients[index], n, words);
    (void)sim_client_send(&world.clients[index], SIZE_MAX);
}

/* ---- checks after the start ---- */

/* The next reply to the first client. */
static void await_reply(struct resp_reply *reply_out)
{
    struct sim_client *client = &world.clients[0];
    enum resp_reply_status status;
    for (int i = 0; i < PATIENCE; i++) {
        if (sim_client_reply(client, reply_out, &status))
            return;
        schedule_sleep(i < 300 ? MS : 100 * MS);
        if (!sim_client_send(client, SIZE_MAX) || !sim_client_receive(client))
            break;
    }
    model_fail(world.model, "there is no reply to a client that looks");
    end_life();
}

/* A number of INFO. */
static uint64_t info_of(const char *section, const char *field)
{
    struct resp_reply reply;
    size_t len = strlen(field);
    send_now(0, 2, (const char *[]){"INFO", section});
    await_reply(&reply);
    const char *text = reply.base + reply.nodes[0].off, *end = text + reply.nodes[0].len;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), field, len)); at += len)
        if (at[len] == ':' && at[-1] == '\n')
            return strtoull(at + len + 1, NULL, 10);
    model_fail(world.model, "INFO has no %s", field);
    end_life();
}

/* Checks wait for bits that are on the disk, and need room for them. */
static void set_limits(bool on)
{
    const struct sim_life *life = world.life;
    struct resp_reply reply;
    char bytes[24];
    if (life->memory == MEMORY_FREE)
        return;
    snprintf(bytes, sizeof(bytes), "%llu", on ? (unsigned long long)life->memory_bytes : 0);
    send_now(0, 6,
             (const char *[]){"CONFIG", "SET", "maxmemory", bytes, "maxmemory-policy",
                              memory_policies[on ? life->memory : MEMORY_RELOADS]});
    await_reply(&reply);
}

/* To be sent with others. */
static void queue(size_t n, const char *const *words)
{
    sim_client_words(&world.clients[0], n, words);
}

static void ask_for(enum family family, bool shared, unsigned client, unsigned number)
{
    char items[MODEL_ITEMS][NAME_SIZE], name[NAME_SIZE], database[8];
    const char *words[2 + MODEL_ITEMS] = {"BF.MEXISTS", command_name(name, shared, client, number)};
    bool cuckoo = family_is_cuckoo(family);
    for (unsigned i = 0; i < MODEL_ITEMS; i++)
        words[2 + i] = command_item(items[i], family, i);
    snprintf(database, sizeof(database), "%u", command_database(shared, client, number));
    queue(2, (const char *[]){"SELECT", database});
    queue(2, (const char *[]){"PEXPIRETIME", name});
    queue(2, (const char *[]){cuckoo ? "CF.INFO" : "BF.CARD", name});
    for (unsigned i = 0; cuckoo && i < MODEL_ITEMS; i++)
        queue(3, (const char *[]){"CF.COUNT", name, items[i]});
    if (!cuckoo)
        queue(2 + MODEL_ITEMS, words);
    queue(2, (const char *[]){"SELECT", "0"});
}

/* The number in BF.CARD's reply, or of the items in CF.INFO's. */
static int64_t count_in(const struct resp_reply *reply)
{
    static const char field[] = "Number of items inserted";
    if (reply->nodes[0].kind == RESP_REPLY_INTEGER)
        return reply->nodes[0].number;
    for (size_t i = 1; i + 1 < reply->count; i++)
        if (reply->nodes[i].len == strlen(field) &&
            memcmp(reply->base + reply->nodes[i].off, field, strlen(field)) == 0)
            return reply->nodes[i + 1].number;
    return 0;
}

static void see_items(enum family family, struct model_seen *seen)
{
    struct resp_reply reply;
    for (unsigned i = 0; i < MODEL_ITEMS; i++) {
        bool whole = family_is_cuckoo(family);
        if (whole || i == 0)
            await_reply(&reply);
        int64_t number = whole ? reply.nodes[0].number : i + 1 < reply.count ? reply.nodes[1 + i].number : 0;
        seen->copies[i] = (uint8_t)(number < UINT8_MAX ? number : UINT8_MAX);
        seen->items |= (uint64_t)(number > 0) << i;
    }
}

/* A filter that expires between two of the queries is absent. */
static struct model_seen seen_of(enum family family, struct moment *when)
{
    struct model_seen seen = {.expire_ms = NEVER_MS};
    struct resp_reply reply;
    await_reply(&reply);
    await_reply(&reply);
    seen.present = reply.nodes[0].number != -2;
    if (reply.nodes[0].number >= 0)
        seen.expire_ms = (uint64_t)reply.nodes[0].number;
    await_reply(&reply);
    seen.count = count_in(&reply);
    see_items(family, &seen);
    await_reply(&reply);
    when->replied_ns = schedule_now_ns();
    when->replied_ms = schedule_day_ms();
    if (seen.present && seen.expire_ms <= when->replied_ms)
        seen = (struct model_seen){.expire_ms = NEVER_MS};
    return seen;
}

/* The marks of the clients in the filter of claims. */
static void see_marks(uint64_t marks[MODEL_CLIENTS])
{
    char name[NAME_SIZE], items[MODEL_ITEMS][NAME_SIZE + 16];
    const char *words[2 + MODEL_ITEMS] = {"BF.MEXISTS", command_name(name, true, 0, MODEL_CLAIMS)};
    for (unsigned client = 0; client < MODEL_CLIENTS; client++) {
        struct model_seen seen = {.items = 0};
        for (unsigned i = 0; i < MODEL_ITEMS; i++) {
            snprintf(items[i], sizeof(items[i]), "\001OWNER\001\002o%ui%u", client, i);
            words[2 + i] = items[i];
        }
        send_now(0, 2 + MODEL_ITEMS, words);
        see_items(FAMILY_PLAIN, &seen);
        marks[client] = seen.items;
    }
}

static void check_name(enum family family, const char *name, struct model_filter *bounds, struct moment *when,
                       const uint64_t *marks)
{
    struct model_seen seen = seen_of(family, when);
    for (unsigned i = 0; marks && i < MODEL_CLIENTS; i++) /* a claim counts twice */
        seen.count -= __builtin_popcountll(marks[i]);
    filter_age(family, bounds, when);
    model_check(world.model, family, name, bounds, &seen);
}

static void check_all(bool restarted)
{
    struct sim_life *life = world.life;
    struct moment when = {.sent_ns = schedule_now_ns(), .sent_ms = schedule_day_ms()};
    char name[NAME_SIZE];
    uint64_t marks[MODEL_CLIENTS];
    set_limits(false);
    see_marks(marks);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        for (unsigned j = 0; j < MODEL_NAMES; j++)
            ask_for(model_family_of(world.model->clients[i].family, j), false, i, j);
    for (unsigned i = 0; i < MODEL_SHARED; i++)
        ask_for(FAMILY_PLAIN, true, 0, i);
    (void)sim_client_send(&world.clients[0], SIZE_MAX);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        for (unsigned j = 0; j < MODEL_NAMES; j++)
            check_name(model_family_of(world.model->clients[i].family, j), command_name(name, false, i, j),
                       &life->names[i][j], &when, NULL);
    for (unsigned i = 0; i < MODEL_SHARED; i++)
        check_name(FAMILY_PLAIN, command_name(name, true, 0, i), &life->shared[i], &when,
                   i == MODEL_CLAIMS ? marks : NULL);
    set_limits(true);
    if (world.model->failure[0])
        end_life();
    if (restarted)
        model_restart(world.model, (const struct model_filter(*)[MODEL_NAMES])life->names, life->shared,
                      schedule_now_ns());
    if (restarted)
        model_check_claims(world.model, marks, life->policy != POLICY_NO_LOG, life->kept == KEPT_ACKNOWLEDGED);
}

/* Some clients speak RESP3. */
static void greet(void)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (below(2))
            continue;
        send_now(i, 2, (const char *[]){"HELLO", "3"});
        model_sent(world.model, i, &(struct op){.kind = OP_HELLO});
    }
}

/* The state at the start outlasts a loss of power only after it has reached the disk. */
static void settle(void)
{
    struct resp_reply reply;
    if (world.life->policy == POLICY_EVERYSEC && below(2)) {
        schedule_sleep(2500 * MS);
    } else if (world.life->policy != POLICY_ALWAYS) {
        send_now(0, 1, (const char *[]){"SAVE"});
        await_reply(&reply);
    }
}

/* ---- commands ---- */

static void send_op(unsigned index, struct op *op)
{
    command_send(&world.clients[index], world.model, index, op, world.life->shown);
    model_sent(world.model, index, op);
}

/* All clients add the same item at the same moment. */
static void race(void)
{
    struct op op = {.kind = OP_ADD, .shared = true, .n = 1, .name = (unsigned)below(MODEL_SHARED)};
    op.items[0] = (unsigned)below(MODEL_ITEMS);
    op.to = op.name;
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (world.model->clients[i].npipe < MODEL_PIPE)
            send_op(i, &op);
        if (!sim_client_send(&world.clients[i], SIZE_MAX))
            lose_connection(i);
    }
}

/* Takes an answer about SSTables, and whether there is none yet. */
static bool sstables_wait(void)
{
    bool waits = false;
    if (world.life->sstables && !sim_sstables_take(&waits))
        lose_connection(MODEL_CLIENTS);
    if (world.model->failure[0])
        end_life();
    return waits;
}

static bool take_all(void)
{
    bool waits = false;
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (buf_len(&world.clients[i].out) && !sim_client_send(&world.clients[i], SIZE_MAX))
            lose_connection(i);
        receive(i);
        waits |= world.model->clients[i].npipe > 0;
    }
    return !waits && !sstables_wait();
}

static void await_all(void)
{
    for (int round = 0; round < PATIENCE; round++) {
        if (take_all())
            return;
        schedule_sleep(100 * MS);
    }
    model_fail(world.model, "a command has no reply");
    end_life();
}

/* The time of day is set, while no command is under way. */
static void set_day(void)
{
    static const int64_t most_ms[] = {10, 2000, 100000};
    struct sim_life *life = world.life;
    await_all();
    uint64_t was_ms = schedule_day_ms();
    int64_t most = most_ms[below(3)], step_ms = (int64_t)below(2 * (uint64_t)most) - most;
    life->day_ms += step_ms;
    life->forward |= step_ms > 0;
    life->back |= step_ms < 0;
    world.model->jumps++;
    schedule_set_day(life->day_ms);
    if (step_ms < 0)
        model_set_back(world.model, was_ms);
    if (life->shown)
        printf("%14.6f  the time of day: %+lld ms\n", (double)schedule_now_ns() / 1e9, (long long)step_ms);
}

/* FLUSHALL concerns the names of all clients, so it comes alone. */
static void flush(void)
{
    struct op op = {.kind = OP_FLUSHALL};
    await_all();
    send_op(0, &op);
    await_all();
}

static void step(void)
{
    unsigned index = (unsigned)below(MODEL_CLIENTS);
    struct sim_client *client = &world.clients[index];
    struct op op;
    if (below(10) == 0)
        race();
    if (below(100) == 0)
        set_day();
    if (below(200) == 0)
        flush();
    if (world.life->sleeps && below(16) == 0)
        schedule_sleep(below(filter_window.ns));
    for (uint64_t n = below(4); n > 0 && world.model->clients[index].npipe < MODEL_PIPE; n--) {
        command_choose(world.model, index, &op);
        send_op(index, &op);
    }
    if (buf_len(&client->out) && !sim_client_send(client, below(3) ? SIZE_MAX : 1 + below(40)))
        lose_connection(index);
    if (below(2))
        receive(index);
    if (world.life->sstables && !sstables_wait())
        sim_sstables_step();
    if (below(4) == 0)
        schedule_yield();
    else if (below(8) == 0)
        schedule_sleep(below(below(20) == 0 ? 1500 * MS : MS));
    else
        schedule_point();
}

/* ---- after all faults ---- */

/* A save ends, and succeeds. */
static void expect_save(void)
{
    struct resp_reply reply;
    for (int round = 0; round < PATIENCE; round++) {
        send_now(0, 1, (const char *[]){"SAVE"});
        await_reply(&reply);
        if (reply.nodes[0].kind == RESP_REPLY_STATUS)
            return;
        schedule_sleep(100 * MS);
    }
    model_fail(world.model, "no save succeeds: %.*s", (int)reply.nodes[0].len, reply.base + reply.nodes[0].off);
    end_life();
}

/* Without filters, and after the time that a load of chunks may take, nothing has memory of filters but SSTables. */
static void expect_no_memory(void)
{
    struct resp_reply reply;
    size_t left = 0, of_sstables = 0, most = 0;
    send_now(0, 1, (const char *[]){"FLUSHALL"});
    await_reply(&reply);
    for (int round = 0; round < 100; round++) {
        of_sstables = sim_daemon_sstable_bytes(&most);
        left = info_of("memory", "used_memory_dataset") - of_sstables;
        if (left <= SHARED_PAGES && of_sstables <= most)
            return;
        schedule_sleep(1000 * MS);
    }
    model_fail(world.model, "%zu bytes of filters are left, and %zu of SSTables", left, of_sstables);
    end_life();
}

static void come_to_rest(void)
{
    struct sim_life *life = world.life;
    life->evictions = info_of("bf", "bf_evictions");
    expect_save();
    if (life->sstables)
        sim_sstables_come_to_rest();
    if (world.model->failure[0])
        end_life();
    if (life->last)
        expect_no_memory();
}

/* ---- the life ---- */

static void start(const struct sim_life *life)
{
    static const char *const policies[] = {"always", "everysec", "no", "no"};
    static const char *settings[] = {
        "appendonly",       "yes",        "appendfsync", "no", "save",        "", "lazy-load", "no",
        "maxmemory-policy", "noeviction", "maxmemory",   "0",  "sstable-dir", "", NULL};
    static char bytes[24];
    if (life->memory != MEMORY_FREE)
        snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)life->memory_bytes);
    settings[9] = memory_policies[life->memory];
    settings[11] = bytes[0] ? bytes : "0";
    settings[1] = life->policy == POLICY_NO_LOG ? "no" : "yes";
    settings[3] = policies[life->policy];
    settings[5] = life->rules ? "1 5" : "";
    settings[7] = life->lazy ? "yes" : "no";
    settings[13] = life->sstables ? SIM_SSTABLE_DIRS : "";
    if (life->end_at_start)
        schedule_end_at(life->end_at_start, end_start);
    sim_disk_fail(life->fails_at_start ? life->disk_fails_in : 0);
    sim_daemon_start(life->workers, settings);
    while (sim_daemon_state() != SIM_SERVES && sim_daemon_state() != SIM_ENDED)
        schedule_sleep(MS);
    schedule_end_at(0, end_start);
    sim_disk_fail(0);
    if (sim_daemon_state() == SIM_SERVES)
        return;
    if (life->fails_at_start)
        end_start();
    model_fail(world.model, "the start is refused: %s", sim_daemon_reason());
    end_life();
}

static void stop(void)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        sim_client_close(&world.clients[i]);
    sim_daemon_stop();
    if (sim_daemon_status() != 0)
        model_fail(world.model, "the end has lost something");
}

/* Memory that is given back to the system must be zeroed again, and a life is short. Of threads that run one at a time
 * none needs an arena of its own. Untouched pages of large objects cost nothing. */
static void keep_memory(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
}

int malloc_trim(size_t pad)
{
    (void)pad;
    return 0;
}

void sim_live(struct sim_life *life)
{
    keep_memory();
    world.life = life;
    world.model = life->model;
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        world.clients[i].fd = -1;
    schedule_begin(&(struct schedule_options){life->seed, life->switch_in, life->branch_in, life->point_ns,
                                              life->now_ns, MAX_POINTS});
    schedule_set_day(life->day_ms);
    schedule_set_boot(life->boot_ns);
    filter_window = life->model->window;
    world.model->faults = false;
    world.model->scarce = life->memory != MEMORY_FREE;
    world.model->maybe = life->memory == MEMORY_MAYBE;
    if (life->sstables)
        sim_sstables_begin(world.model, life->shown, !life->last);
    start(life);
    life->booted = false;
    connect_all();
    check_all(true);
    settle();
    greet();
    world.model->faults = life->disk_fails_in || life->memory_fails_in;
    sim_disk_fail(life->disk_fails_in);
    sim_memory_fail(life->memory_fails_in);
    if (life->end_after)
        schedule_end_at(schedule_points() + life->end_after, end_life);
    for (unsigned i = 0; i < life->nsteps; i++)
        step();
    sim_disk_fail(0);
    sim_memory_fail(0);
    await_all();
    if (!world.model->faults)
        model_check_winners(world.model);
    if (life->end_after == 0) {
        keep_bounds(KEPT_ACKNOWLEDGED);
        check_all(false);
        come_to_rest();
    }
    if (life->end == END_STOP)
        stop();
    end_life();
}
