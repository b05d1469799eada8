/* Eviction. A round of the evictor's thread sweeps over the registry, some hundred filters at a time, and evicts the
 * least recently used ones. A filter that was used in the current minute (the unit of entry_stamp()) gets a second
 * chance: its stamp becomes a minute older, and it is evicted if it is not used again before the sweep returns. If that
 * frees too little, a last pass spares nothing.
 *
 * Filters that have changed since the last save cannot leave. If the others free too little, the round saves and sweeps
 * again. If that does not help either, the evictor is stuck for a moment, and commands that need memory are refused. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bloom_filter.h"
#include "clock.h"
#include "config.h"
#include "memory_use.h"
#include "persistence.h"
#include "rcu.h"
#include "registry.h"
#include "residency_internal.h"
#include "saver.h"
#include "store.h"
#include "thread.h"
#include "lock.h"

#define LOOK_AT_ONCE     512   /* names of a step of the sweep */
#define LEAVE_AT_ONCE    256   /* filters for which one grace period is waited */
#define PATIENCE_MS      1000  /* after this time, and */
#define LONG_PATIENCE_MS 10000 /* of a reader, if its bits will fit; two commands may keep each other's filters */
#define MISSES           3     /* this many rounds in a row, nothing more can leave */
#define FEW              16    /* of more than four times as many the oldest quarter leaves at most */
#define PAUSE_MS         10    /* between two of them */
#define RETRY_MS         1000  /* after a round that was stuck */
#define SAVE_RETRY_MS    5000  /* after a save that has failed */

uint64_t residency_high_water(const struct config *config)
{
    return config->memory.maxmemory_policy == MEMORY_NOEVICTION
               ? 0
               : config->memory.maxmemory - config->memory.maxmemory / 16;
}

/* Passes over the registry, in their order. */
enum mercy {
    GENTLE,        /* filters used in the last minute stay */
    SECOND_CHANCE, /* they stay again; the next time only if they were used again */
    ONLY_CHANCE,   /* the next time */
    NONE,          /* all filters leave */
};

/* ---- candidates ---- */

struct candidate {
    struct entry *entry;
    char *name;
    size_t name_len;
    uint64_t bytes;
    uint16_t age; /* in units of entry_stamp() */
};

struct sweep {
    struct residency *res;
    uint16_t now;                          /* entry_stamp() */
    uint64_t dirty;                        /* bytes of filters that have changed since the last save */
    struct candidate of[2 * LOOK_AT_ONCE]; /* a step meets at most this many */
    size_t n;
};

static void consider(void *ctx, struct slice name, struct entry *entry)
{
    struct sweep *sweep = ctx;
    struct bloom_filter *filter = entry_shape(entry);
    uint64_t bytes = filter && !entry_is_evicted(entry) ? bloom_filter_droppable(filter) : 0;
    if (bytes == 0 || sweep->n == sizeof(sweep->of) / sizeof(sweep->of[0]))
        return;
    struct store *store = sweep->res->server->persistence->store;
    if (entry_is_dirty(entry) || !store_has_bits(store, entry->id)) { /* asked again in leaves() */
        sweep->dirty += bytes;
        return;
    }
    char *copy = slice_copy(name);
    if (!copy)
        return;
    uint16_t age = (uint16_t)(sweep->now - atomic_load_explicit(&entry->used, memory_order_relaxed));
    sweep->of[sweep->n++] = (struct candidate){entry, copy, name.len, bytes, age};
}

static int compare_age(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;
    return (left->age < right->age) - (left->age > right->age);
}

/* Pins candidates of at least `need` bytes in all and marks them as leaving. Returns their number; they are the first
 * ones of the sweep then. */
static size_t choose(struct sweep *sweep, uint64_t need, enum mercy mercy)
{
    struct registry *registry = sweep->res->server->registry;
    size_t evicting = 0, most = mercy == NONE || sweep->n / 4 < FEW ? LEAVE_AT_ONCE : sweep->n / 4;
    qsort(sweep->of, sweep->n, sizeof(sweep->of[0]), compare_age);
    for (size_t i = 0; i < sweep->n && need > 0 && evicting < most; i++) {
        struct candidate one = sweep->of[i];
        if (one.age == 0 && mercy != NONE) {
            if (mercy == SECOND_CHANCE) /* it looks a unit older, and as young as before when it is used again */
                atomic_store_explicit(&one.entry->used, (uint16_t)(sweep->now - 1), memory_order_relaxed);
            continue;
        }
        struct entry *entry = registry_pin(registry, (struct slice){one.name, one.name_len});
        if (!entry)
            continue;
        if (entry != one.entry || !entry_leave(entry)) {
            entry_unpin(entry);
            continue;
        }
        sweep->of[i] = sweep->of[evicting];
        sweep->of[evicting++] = one;
        need -= one.bytes < need ? one.bytes : need;
    }
    return evicting;
}

/* The store is checked when the entry can no longer change. A save between the first check and entry_leave() has
 * cleared the mark of a change, and its bits do not count before its commit. */
static bool leaves(struct residency *res, struct entry *entry)
{
    bool left = entry_evict(entry);
    if (left && !store_has_bits(res->server->persistence->store, entry->id)) {
        entry_come_back(entry);
        return false;
    }
    if (left)
        bloom_filter_drop(entry_shape(entry));
    return left;
}

/* ---- a sweep ---- */

/* Looks at the next names. */
static void step(struct sweep *sweep, uint64_t need, enum mercy mercy)
{
    struct residency *res = sweep->res;
    struct server *server = res->server;
    sweep->n = 0;
    sweep->now = atomic_load_explicit(&server->memory.use_stamp, memory_order_relaxed);
    rcu_reader_online();
    atomic_fetch_add(&server->persistence->evicting, 1);
    res->evictor.cursor = registry_scan(server->registry, res->evictor.cursor, LOOK_AT_ONCE, consider, sweep);
    size_t evicting = choose(sweep, need, mercy);
    rcu_reader_offline();
    if (evicting)
        rcu_wait_for_readers();
    for (size_t i = 0; i < evicting; i++) {
        lock_take(&res->words);
        if (leaves(res, sweep->of[i].entry))
            atomic_fetch_add_explicit(&res->evictions, 1, memory_order_relaxed);
        lock_give(&res->words);
        entry_unpin(sweep->of[i].entry);
    }
    atomic_fetch_sub(&server->persistence->evicting, 1);
    for (size_t i = 0; i < sweep->n; i++)
        free(sweep->of[i].name);
}

/* Bytes that must leave, for the limit and for the readers that wait. */
static uint64_t bytes_over(struct residency *res, bool gently, bool *over_out)
{
    struct server *server = res->server;
    rcu_reader_online();
    const struct config *config = server_config(server);
    uint64_t high = residency_high_water(config), max = config->memory.maxmemory;
    rcu_reader_offline();
    uint64_t used = memory_limited(server), wanted = atomic_load(&res->evictor.wanted);
    *over_out = high && (used >= max || used + wanted > max);
    wanted += gently ? atomic_load(&res->evictor.wanted_gently) : 0;
    if (!high || used + wanted < high)
        return 0;
    return used + wanted - (max - max / 8);
}

/* Once over all names, from where the last sweep ended. True: enough has left. */
static bool pass_over(struct sweep *sweep, enum mercy mercy)
{
    uint64_t names = registry_count(sweep->res->server->registry), looked = 0;
    bool over, stop;
    sweep->dirty = 0;
    do {
        uint64_t need = bytes_over(sweep->res, mercy == GENTLE, &over);
        lock_take(&sweep->res->lock);
        stop = sweep->res->stop;
        lock_give(&sweep->res->lock);
        if (need == 0 || stop)
            return true;
        step(sweep, need, mercy);
        looked += LOOK_AT_ONCE;
    } while (looked < names + LOOK_AT_ONCE);
    return false;
}

/* True: enough has left. */
static bool sweep_until_kept(struct residency *res, enum mercy from, uint64_t *dirty_out)
{
    struct sweep *sweep = malloc(sizeof(*sweep));
    bool kept = false;
    if (!sweep)
        return false;
    sweep->res = res;
    for (int mercy = (int)from; mercy <= (int)NONE && !kept; mercy++) {
        kept = pass_over(sweep, (enum mercy)mercy);
        *dirty_out = sweep->dirty;
    }
    free(sweep);
    return kept;
}

/* ---- a round ---- */

/* Changed filters can leave once they are saved. */
static bool save(struct residency *res)
{
    struct errbuf err = {""};
    if (res->evictor.save_failed_ms && clock_ms() - res->evictor.save_failed_ms < SAVE_RETRY_MS)
        return false;
    log_notice(&res->server->log, "saving, so filters can be evicted (maxmemory-policy)");
    int status = saver_run_next(res->server->persistence->saver, &err);
    res->evictor.save_failed_ms = status ? clock_ms() : 0;
    return status == 0;
}

/* `over`: the limit is not kept. `hopeless`: the next round will not do better. Filters in use now may leave in the
 * next round, and changed ones after its save. */
static void note_round(struct residency *res, bool over, bool hopeless)
{
    int64_t now = clock_ms();
    if (over && res->evictor.missed++ == 0)
        res->evictor.missed_since_ms = now;
    if (!over)
        res->evictor.missed = 0;
    bool stuck =
        over && (hopeless || (res->evictor.missed >= MISSES && now - res->evictor.missed_since_ms >= PATIENCE_MS));
    if (stuck && !atomic_exchange(&res->evictor.stuck, true))
        log_warning(&res->server->log,
                    "no more filters can be evicted, and maxmemory is reached: commands that need memory are refused");
    else if (!over)
        atomic_store(&res->evictor.stuck, false);
}

static void run_round(struct residency *res)
{
    uint64_t dirty = 0;
    bool over, hopeless = false;
    bool kept = sweep_until_kept(res, GENTLE, &dirty);
    bytes_over(res, false, &over);
    if (!kept && over && dirty > 0) {
        hopeless = !save(res);
        if (!hopeless)
            (void)sweep_until_kept(res, GENTLE, &dirty);
    }
    atomic_store(&res->evictor.rest_until_ms, bytes_over(res, false, &over) ? clock_ms() + RETRY_MS : 0);
    note_round(res, over, hopeless);
}

/* Waits until there is something to do. False: the end. Under the lock. */
static bool wait_for_press(struct residency *res)
{
    int64_t until_ms = clock_ms() + RETRY_MS;
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    bool retry = false;
    while (!res->stop && !retry && res->evictor.rounds == res->evictor.done) {
        if (!atomic_load(&res->evictor.stuck))
            lock_wait(&res->evictor.press, &res->lock);
        else
            retry = !lock_wait_until(&res->evictor.press, &res->lock, CLOCK_MONOTONIC, &until);
    }
    return !res->stop;
}

static void *evict_main(void *arg)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    struct residency *res = arg;
    thread_begin("evictor");
    rcu_reader_begin();
    rcu_reader_offline();
    lock_take(&res->lock);
    while (wait_for_press(res)) {
        uint64_t round = res->evictor.rounds;
        atomic_store(&res->evictor.pressed, false);
        lock_give(&res->lock);
        run_round(res);
        res->server->calls.memory_changed(res->server);
        if (res->evictor.missed)
            nanosleep(&pause, NULL);
        lock_take(&res->lock);
        res->evictor.done = round;
        pthread_cond_broadcast(&res->ended);
    }
    lock_give(&res->lock);
    rcu_reader_end();
    return NULL;
}

/* ---- asking for it ---- */

/* Under the lock: requests another round. Returns its number, 0 if there is no thread for it. */
static uint64_t ask_for_round(struct residency *res)
{
    if (!res->evictor.runs && !res->stop)
        res->evictor.runs = pthread_create(&res->evictor.thread, NULL, evict_main, res) == 0;
    if (!res->evictor.runs || res->stop)
        return 0;
    pthread_cond_signal(&res->evictor.press);
    return ++res->evictor.rounds;
}

void residency_press(struct server *server)
{
    struct residency *res = server->persistence->residency;
    if (atomic_load_explicit(&res->evictor.pressed, memory_order_relaxed) ||
        atomic_load_explicit(&res->evictor.stuck, memory_order_relaxed) || atomic_exchange(&res->evictor.pressed, true))
        return;
    lock_take(&res->lock);
    if (ask_for_round(res) == 0)
        atomic_store(&res->evictor.stuck, !res->stop);
    lock_give(&res->lock);
}

void residency_tick(struct server *server)
{
    uint64_t high = residency_high_water(server_config(server));
    if (high && memory_limited(server) >= high &&
        clock_ms() >= atomic_load(&server->persistence->residency->evictor.rest_until_ms))
        residency_press(server);
}

bool residency_is_stuck(const struct server *server)
{
    return atomic_load_explicit(&server->persistence->residency->evictor.stuck, memory_order_relaxed);
}

static bool reserve(struct residency *res, uint64_t bytes)
{
    rcu_reader_online();
    const struct config *config = server_config(res->server);
    uint64_t max = config->memory.maxmemory;
    bool evicts = residency_high_water(config) != 0;
    rcu_reader_offline();
    lock_take(&res->lock);
    uint64_t used = memory_limited(res->server) + res->evictor.reserved;
    /* If there is nothing left to evict, overhead that has come since may have taken a part of the filter's room. */
    bool alone = res->evictor.reserved == 0 && bloom_pool_staying(res->server->pool) >= used;
    bool fits = max == 0 || !evicts || used + bytes <= (alone ? max + max / 8 : max);
    if (fits)
        res->evictor.reserved += bytes;
    lock_give(&res->lock);
    return fits;
}

void evict_release(struct residency *res, uint64_t bytes)
{
    lock_take(&res->lock);
    res->evictor.reserved -= bytes;
    lock_give(&res->lock);
}

/* Has a round run, and waits for its end. False: there are no more. */
static bool wait_for_round(struct residency *res)
{
    lock_take(&res->lock);
    uint64_t round = ask_for_round(res);
    while (round && res->evictor.done < round && !res->stop)
        lock_wait(&res->ended, &res->lock);
    bool more = round && !res->stop;
    lock_give(&res->lock);
    return more;
}

bool evict_for(struct residency *res, uint64_t bytes, bool gently)
{
    _Atomic uint64_t *wanted = gently ? &res->evictor.wanted_gently : &res->evictor.wanted;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    if (reserve(res, bytes))
        return true;
    if (gently && clock_ms() < atomic_load(&res->evictor.gentle_until_ms))
        return false;
    atomic_fetch_add(wanted, bytes);
    int64_t begun_ms = clock_ms();
    unsigned rounds = 1; /* one with a save may take longer than all patience */
    bool more = wait_for_round(res), reserved;
    while (!(reserved = reserve(res, bytes)) && more && !gently) { /* others take memory meanwhile */
        rcu_reader_online();
        uint64_t max = server_config(res->server)->memory.maxmemory;
        rcu_reader_offline();
        /* What prevents that the bytes fit, as filters of other commands and changes that are being saved, may pass. */
        bool will_fit = bloom_pool_staying(res->server->pool) + bytes <= max;
        if (rounds >= MISSES && clock_ms() - begun_ms >= (will_fit ? LONG_PATIENCE_MS : PATIENCE_MS))
            break;
        if (residency_is_stuck(res->server))
            nanosleep(&pause, NULL);
        more = wait_for_round(res);
        rounds++;
    }
    atomic_fetch_sub(wanted, bytes);
    if (gently && !reserved)
        atomic_store(&res->evictor.gentle_until_ms, clock_ms() + RETRY_MS);
    return reserved;
}
