/* info: the sections of INFO. Internal to INFO (cmd_info.c, info_*.c) and to commands that show the same numbers.
 *
 * Fields have Redis's names and order. Fields of missing features have Redis's value for an unused feature, so programs
 * find them. docs/INFO.md lists the missing fields, and a test compares.
 *
 * Thread: a thread of the pool, an RCU reader. */
#ifndef BLOOMERY_INFO_H
#define BLOOMERY_INFO_H

#include <stdint.h>

#include "errorstats.h"
#include "memory_use.h"
#include "pubsub.h"
#include "server.h"

/* The data of the sections. */
struct info {
    struct server *server;
    const struct config *cfg;
    struct stats stats;
    struct errorstats errors;
    struct sessions_totals clients;
    struct memory_use memory;
    struct pubsub_totals pubsub;
    struct bf_totals totals; /* if section bf is wanted */
    struct buf *out;
};

/* Appends a line. */
void info_line(struct info *info, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A number of bytes, exactly and as people read it: 1536 and 1.50K. */
void info_line_bytes(struct info *info, const char *name, uint64_t bytes);

/* A field that is always 0 here. */
void info_zeros(struct info *info, const char *const *names, size_t n);

void info_server(struct info *info);
void info_clients(struct info *info);
void info_memory(struct info *info);
void info_persistence(struct info *info);
void info_stats(struct info *info);
void info_replication(struct info *info);
void info_cpu(struct info *info);
void info_modules(struct info *info);
void info_commandstats(struct info *info);
void info_errorstats(struct info *info);
void info_latencystats(struct info *info);
void info_cluster(struct info *info);
void info_keyspace(struct info *info);
void info_bf(struct info *info);

/* Bytes of memory that the process occupies now; 0 if the kernel gives no number. */
uint64_t info_resident_bytes(void);

/* Resident bytes / bytes of filters and of the empty process. */
double info_fragmentation(const struct server *server, uint64_t rss, uint64_t used);

#endif
