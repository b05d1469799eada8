/* delivery: sends the replies of an iteration together, with one write per connection, from buffers that only
 * connections with replies hold.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_DELIVERY_H
#define BLOOMERY_DELIVERY_H

#include <stddef.h>

#include "config.h"
#include "conn_list.h"

struct worker;

#define DELIVERY_BUF_SIZE   (16 * 1024)
#define DELIVERY_SPARE_BUFS 64 /* reply buffers kept for reuse */

struct delivery {
    struct conn_link conns; /* connections whose replies leave at the end of the iteration */
    size_t high_water;      /* the settings, copied once per iteration */
    size_t limits[CONFIG_CLIENT_CLASSES];
    char *spare_bufs[DELIVERY_SPARE_BUFS];
    unsigned nspare;
};

void delivery_init(struct delivery *delivery);
void delivery_deinit(struct delivery *delivery);

/* Copies the settings. */
void delivery_refresh(struct delivery *delivery, const struct config *config);

/* Sends the replies of the iteration, as far as they may leave and the kernel accepts them. */
void delivery_send(struct delivery *delivery);

/* Returns a reply buffer of DELIVERY_BUF_SIZE bytes, a spare one if possible; NULL without memory. */
char *delivery_buf_get(struct worker *worker);
void delivery_buf_put(struct delivery *delivery, char *mem);

#endif
