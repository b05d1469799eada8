/* table_stats: how often tables were read, from the text of `nodetool tablestats` (Cassandra's or ScyllaDB's; cfstats
 * before), or from ScyllaDB's metrics in Prometheus's text format. Thread: one. */
#ifndef BLOOMERY_TOOL_TABLE_STATS_H
#define BLOOMERY_TOOL_TABLE_STATS_H

#include "advice.h"
#include "errbuf.h"

/* Sets `counted` and the numbers of the tables that the file names. 0, or -errno or -EINVAL with the reason: no table
 * is in it. */
int table_stats_read(struct advice *advice, const char *path, struct errbuf *err);

#endif
