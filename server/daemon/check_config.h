/* check_config: bloomeryd --check-config. Thread: the main one. */
#ifndef BLOOMERY_CHECK_CONFIG_H
#define BLOOMERY_CHECK_CONFIG_H

#include "errbuf.h"

struct config;

/* Whether a start would accept all that these settings name: certificates, users, keys, the log, the Unix socket,
 * addresses, processors, the data directory with its MANIFEST. Writes nothing, listens on no port, and takes no lock,
 * so a daemon with the same settings may run. 0, or another status with the reason, which names the setting. */
int check_config(const struct config *config, struct errbuf *err);

#endif
