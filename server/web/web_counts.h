/* web_counts: what the thread of the status page counts of itself; it is their only reader. */
#ifndef BLOOMERY_WEB_COUNTS_H
#define BLOOMERY_WEB_COUNTS_H

#include <stdint.h>

struct web_counts {
    uint64_t requests;
    uint64_t refused; /* without the password, or not from this machine */
    uint64_t closed;  /* connections closed over a limit of time or number */
};

#endif
