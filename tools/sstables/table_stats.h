/* table_stats: how often tables were read, from the text of `nodetool tablestats` (Cassandra's or ScyllaDB's; cfstats
 * before), or from ScyllaDB's metrics in Prometheus's text format. Thread: one. */
#ifndef BLOOMERY_TOOL_TABLE_STATS_H
#define BLOOMERY_TOOL_TABLE_STATS_H

#include "advice.h"
#include "errbuf.h"

/* Sets `counted` and the numbers of the tables in the file. 0, or -errno or -EINVAL with the reason: the file has no
 * table. */
int table_stats_read(struct advice *advice, const char *path, struct errbuf *err);

#endif
