#include "advice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_size.h"
#include "filterdb.h"
#include "grow.h"

#define MUCH_RATE  2.0 /* times the rate or size asked for */
#define MUCH_BYTES 1.5
#define LEAST      0.01 /* of a score */
#define FOR_NONE   0.1  /* the rate of a filter where the table asks for none */
#define READS      1000 /* of a table, from which on they show how it is read */
#define FEW        0.01 /* useless reads for each of these */
#define MANY       0.05

/* ---- tables ---- */

struct advice_table *advice_table(struct advice *advice, const char *directory, size_t directory_len,
                                  const char *keyspace, size_t keyspace_len, const char *name, size_t name_len)
{
    for (size_t i = advice->n; i-- > 0;) { /* a walk comes by directories: it is nearly always the last one */
        struct advice_table *table = &advice->tables[i];
        if (strlen(table->directory) == directory_len && memcmp(table->directory, directory, directory_len) == 0 &&
            strlen(table->name) == name_len && memcmp(table->name, name, name_len) == 0)
            return table;
    }
    if (GROW(advice->tables, advice->n, advice->size) != 0)
        return NULL;
    struct advice_table *table = &advice->tables[advice->n++];
    *table = (struct advice_table){.directory = strndup(directory, directory_len),
                                   .keyspace = strndup(keyspace, keyspace_len),
                                   .name = strndup(name, name_len)};
    return table->directory && table->keyspace && table->name ? table : NULL;
}

bool advice_add(struct advice_table *table, const struct advice_sstable *sstable)
{
    if (GROW(table->sstables, table->n, table->size) != 0)
        return false;
    table->sstables[table->n++] = *sstable;
    return true;
}

void advice_deinit(struct advice *advice)
{
    for (size_t i = 0; i < advice->n; i++) {
        free(advice->tables[i].directory);
        free(advice->tables[i].keyspace);
        free(advice->tables[i].name);
        free(advice->tables[i].sstables);
    }
    free(advice->tables);
    *advice = (struct advice){NULL};
}

/* ---- ranges ---- */

double advice_overlap(const struct advice_table *table, size_t *n_out)
{
    double overlap = 0;
    for (size_t i = 0; i < table->n; i++)
        overlap += table->sstables[i].share;
    *n_out = table->n;
    return overlap;
}

double advice_overlap_of_level(const struct advice_table *table, int level, size_t *n_out)
{
    double overlap = 0;
    *n_out = 0;
    for (size_t i = 0; i < table->n; i++) {
        if (table->sstables[i].level != level)
            continue;
        overlap += table->sstables[i].share;
        ++*n_out;
    }
    return overlap;
}

/* ---- costs ---- */

/* The cost of a filter made for this rate. */
static double rate_at(const struct advice_sstable *sstable, double rate, double *bytes_out)
{
    struct bloom_size size;
    *bytes_out = 0;
    if (rate >= 1 || bloom_size_cassandra(sstable->keys, rate, &size) != BLOOM_SIZE_OK)
        return 1;
    *bytes_out = (double)filterdb_bytes(size.nwords);
    return bloom_size_rate(sstable->keys, size.k, 64 * size.nwords);
}

static struct advice_cost cost_at(const struct advice_sstable *sstable, double rate)
{
    double bytes, then = rate_at(sstable, rate, &bytes);
    return (struct advice_cost){bytes, sstable->share * then};
}

static struct advice_cost cost_now(const struct advice_sstable *sstable)
{
    return (struct advice_cost){(double)sstable->bytes, sstable->share * sstable->rate};
}

static void add(struct advice_cost *to, struct advice_cost cost)
{
    to->bytes += cost.bytes;
    to->reads += cost.reads;
}

struct advice_cost advice_now(const struct advice_table *table)
{
    struct advice_cost sum = {0, 0};
    for (size_t i = 0; i < table->n; i++)
        add(&sum, cost_now(&table->sstables[i]));
    return sum;
}

struct advice_cost advice_at(const struct advice_table *table, double rate)
{
    struct advice_cost sum = {0, 0};
    for (size_t i = 0; i < table->n; i++)
        add(&sum, cost_at(&table->sstables[i], rate));
    return sum;
}

/* ---- changes ---- */

/* The rate that a filter is made for. */
static double wanted(const struct advice_table *table)
{
    return table->requested > 0 && table->requested < 1 ? table->requested : FOR_NONE;
}

enum fault { NONE, MISSING, OVERFULL, OVERSIZED };

static enum fault fault_of(const struct advice_table *table, const struct advice_sstable *sstable)
{
    if (!sstable->filter)
        return MISSING;
    if (table->requested <= 0 || table->requested >= 1)
        return NONE;
    double bytes, right = rate_at(sstable, table->requested, &bytes);
    if (sstable->rate > MUCH_RATE * table->requested && sstable->rate > MUCH_RATE * right)
        return OVERFULL;
    return (double)sstable->bytes > MUCH_BYTES * bytes ? OVERSIZED : NONE;
}

struct advice_faults advice_faults(const struct advice_table *table)
{
    struct advice_faults faults = {0, 0, 0};
    for (size_t i = 0; i < table->n; i++) {
        enum fault fault = fault_of(table, &table->sstables[i]);
        faults.missing += fault == MISSING;
        faults.overfull += fault == OVERFULL;
        faults.oversized += fault == OVERSIZED;
    }
    return faults;
}

/* The share of useless reads that the change removes: of the counted ones, or else of those of an absent key. */
static double share_of_reads(const struct advice_change *change, double all, double counted)
{
    double now = advice_now(change->table).reads;
    double share = now > 0 ? change->saved.reads / now : 0;
    if (counted > 0)
        return share * (double)change->table->false_positives / counted;
    return all > 0 ? change->saved.reads / all : 0;
}

/* If bytes are added, their share of the new total. */
static double share_of_bytes(const struct advice_change *change, double all)
{
    double most = change->saved.bytes < 0 ? all - change->saved.bytes : all;
    return most > 0 ? change->saved.bytes / most : 0;
}

static struct advice_change change_of(const struct advice_table *table, enum advice_kind kind, double rate)
{
    struct advice_change change = {.table = table, .kind = kind, .rate = rate};
    for (size_t i = 0; i < table->n; i++) {
        const struct advice_sstable *sstable = &table->sstables[i];
        if (kind == ADVICE_REPAIR && fault_of(table, sstable) == NONE)
            continue;
        struct advice_cost now = cost_now(sstable), then = cost_at(sstable, rate);
        change.filters++;
        add(&change.saved, (struct advice_cost){now.bytes - then.bytes, now.reads - then.reads});
    }
    double now = advice_now(table).reads;
    if (table->counted && now > 0)
        change.disk_reads = (double)table->false_positives * change.saved.reads / now;
    return change;
}

/* Keeps the best. */
static size_t keep(struct advice_change *best, size_t n, const struct advice_change *change)
{
    size_t at = n < ADVICE_CHANGES ? n : ADVICE_CHANGES;
    for (; at > 0 && best[at - 1].score < change->score; at--) {
        if (at < ADVICE_CHANGES)
            best[at] = best[at - 1];
    }
    if (at < ADVICE_CHANGES)
        best[at] = *change;
    return n < ADVICE_CHANGES ? n + 1 : n;
}

/* Another rate depends on the reads of the table: it is only proposed if these have been counted. */
static struct advice_change best_rate(const struct advice_table *table, struct advice_cost all, double counted)
{
    static const double rates[] = {0.1, 0.01, 0.001};
    double reads = (double)table->reads, useless = (double)table->false_positives, now = advice_now(table).reads;
    struct advice_change best = {.score = 0};
    for (int i = 0; i < 3 && table->counted && reads >= READS && now > 0; i++) {
        struct advice_change change = change_of(table, ADVICE_RATE, rates[i]);
        double then = useless * (now - change.saved.reads) / now;
        if (change.saved.bytes > 0 && then <= FEW * reads)
            change.score = share_of_bytes(&change, all.bytes);
        else if (change.saved.bytes < 0 && useless > MANY * reads)
            change.score = share_of_reads(&change, all.reads, counted);
        if (change.score > best.score)
            best = change;
    }
    return best;
}

size_t advice_changes(const struct advice *advice, struct advice_change out[ADVICE_CHANGES])
{
    struct advice_cost all = {0, 0};
    double counted = 0;
    size_t n = 0;
    for (size_t i = 0; i < advice->n; i++) {
        add(&all, advice_now(&advice->tables[i]));
        counted += (double)advice->tables[i].false_positives;
    }
    for (size_t i = 0; i < advice->n; i++) {
        const struct advice_table *table = &advice->tables[i];
        struct advice_change repair = change_of(table, ADVICE_REPAIR, wanted(table)),
                             rate = best_rate(table, all, counted);
        repair.score = fmax(share_of_reads(&repair, all.reads, counted), share_of_bytes(&repair, all.bytes));
        const struct advice_change *best = rate.score > repair.score ? &rate : &repair;
        if (best->score >= LEAST)
            n = keep(out, n, best);
    }
    return n;
}
