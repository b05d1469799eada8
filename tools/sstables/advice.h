/* advice: the costs of the filters of tables today, in memory and in useless disk reads, their costs at other rates,
 * and the changes that save most. Numbers only; cmd_advise.c fills them in and prints them.
 *
 * A read of a key asks the filter of each SSTable of the table in whose range the key is. `reads` is the expected
 * number of filters that answer "maybe" for an absent key, and so of useless disk reads: the sum of the rates, each
 * times the share of the keys in this range.
 *
 * Thread: one. */
#ifndef BLOOMERY_TOOL_ADVICE_H
#define BLOOMERY_TOOL_ADVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct advice_sstable {
    uint64_t keys, bytes; /* keys: estimated from the bits, or counted where there is no filter */
    double rate;          /* 1 without a filter */
    bool filter;
    double share; /* of the table's keys: those between its first and last one; 1 where these are not known */
    int level;    /* of leveled compaction; -1: unknown */
};

struct advice_table {
    char *directory, *keyspace, *name; /* owned */
    struct advice_sstable *sstables;
    size_t n, size;
    uint64_t unread;  /* further SSTables, which could not be read */
    double requested; /* bloom_filter_fp_chance of the newest SSTable; 0: unknown */
    int64_t requested_at;
    double copies; /* SSTables that a key is in, on average; 0: unknown */

    bool counted; /* by the node since its start: */
    uint64_t reads, false_positives;
    bool estimated; /* false_positives, by the rates */
};

struct advice {
    struct advice_table *tables;
    size_t n, size;
};

/* The table of this directory, added if it is new. NULL: out of memory. */
struct advice_table *advice_table(struct advice *advice, const char *directory, size_t directory_len,
                                  const char *keyspace, size_t keyspace_len, const char *name, size_t name_len);
bool advice_add(struct advice_table *table, const struct advice_sstable *sstable); /* false: out of memory */
void advice_deinit(struct advice *advice);

/* SSTables in whose range a key is, on average: all of them, or those of a level. *n_out: their number. */
double advice_overlap(const struct advice_table *table, size_t *n_out);
double advice_overlap_of_level(const struct advice_table *table, int level, size_t *n_out);
#define ADVICE_LEVELS 16

struct advice_cost {
    double bytes, reads;
};

/* As the filters are; and as Cassandra would make them for this rate (1: none). */
struct advice_cost advice_now(const struct advice_table *table);
struct advice_cost advice_at(const struct advice_table *table, double rate);

/* SSTables without a filter; filters with more than twice the rate asked for, and with more than 1.5 times the bytes
 * that it needs. */
struct advice_faults {
    uint64_t missing, overfull, oversized;
};
struct advice_faults advice_faults(const struct advice_table *table);

enum advice_kind {
    ADVICE_REPAIR, /* rebuilds filters that have faults, for the rate asked for */
    ADVICE_RATE,   /* rebuilds all filters of the table, for another rate */
};

struct advice_change {
    const struct advice_table *table;
    enum advice_kind kind;
    double rate;
    uint64_t filters;         /* rebuilt ones */
    struct advice_cost saved; /* negative: costs more */
    double disk_reads;        /* of those that tablestats counted; 0: unknown */
    double score;             /* the share of all useless reads or of all bytes that it saves, the larger */
};

#define ADVICE_CHANGES 3

/* Those that save most first, one for a table, none that saves less than a hundredth. */
size_t advice_changes(const struct advice *advice, struct advice_change out[ADVICE_CHANGES]);

#endif
