/* check_keys: whether a data directory has the keys of its KEYED filters. Thread: one. */
#ifndef BLOOMERY_TOOL_CHECK_KEYS_H
#define BLOOMERY_TOOL_CHECK_KEYS_H

#include <stdbool.h>

#include "errbuf.h"

/* Reads KEYS, if it is there. `print`: a line with the number of filters of the MANIFEST whose key it lacks, if there
 * are any; the key may be in another file, which bf-key-file names. 0; -errno with the reason when the daemon would not
 * start with this KEYS. */
int check_keys(const char *datadir, bool print, struct errbuf *err);

#endif
