/* delivery: the connections whose replies leave together at the end of an iteration, with one write for each, and the
 * reply buffers, which only connections with replies hold.
 *
 * Thread: the loop's. */
#ifndef BLOOMERY_DELIVERY_H
#define BLOOMERY_DELIVERY_H

#include <stddef.h>

#include "config.h"
#include "conn_list.h"

struct server;

#define DELIVERY_BUF_SIZE   (16 * 1024)
#define DELIVERY_SPARE_BUFS 64 /* reply buffers kept for reuse */

struct delivery {
    struct server *server;
    struct conn_link conns; /* connections whose replies leave at the end of the iteration */
    size_t high_water;      /* the settings, copied once per iteration */
    size_t limits[CONFIG_CLIENT_CLASSES];
    char *spare_bufs[DELIVERY_SPARE_BUFS];
    unsigned nspare;
};

void delivery_init(struct delivery *delivery, struct server *server);
void delivery_deinit(struct delivery *delivery);

/* Copies the settings. */
void delivery_refresh(struct delivery *delivery, const struct config *config);

/* Returns a reply buffer of DELIVERY_BUF_SIZE bytes, a spare one if possible; NULL without memory. */
char *delivery_buf_get(struct delivery *delivery);
void delivery_buf_put(struct delivery *delivery, char *mem);

#endif
