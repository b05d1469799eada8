#include "delivery.h"

#include <stdlib.h>

#include "memory_reserve.h"

void delivery_init(struct delivery *delivery, struct server *server)
{
    delivery->server = server;
    conn_list_init(&delivery->conns);
}

void delivery_deinit(struct delivery *delivery)
{
    while (delivery->nspare)
        free(delivery->spare_bufs[--delivery->nspare]);
}

void delivery_refresh(struct delivery *delivery, const struct config *config)
{
    delivery->high_water = (size_t)config->clients.reply_buffer_high_water;
    for (int i = 0; i < CONFIG_CLIENT_CLASSES; i++) {
        uint64_t hard = config->clients.client_output_buffer_limit.classes[i].hard;
        delivery->limits[i] =
            (size_t)(hard && hard < config->clients.reply_buffer_limit ? hard : config->clients.reply_buffer_limit);
    }
}

char *delivery_buf_get(struct delivery *delivery)
{
    if (delivery->nspare)
        return delivery->spare_bufs[--delivery->nspare];
    char *mem = malloc(DELIVERY_BUF_SIZE);
    return mem || !memory_reserve_spend(delivery->server) ? mem : malloc(DELIVERY_BUF_SIZE);
}

void delivery_buf_put(struct delivery *delivery, char *mem)
{
    if (delivery->nspare < DELIVERY_SPARE_BUFS)
        delivery->spare_bufs[delivery->nspare++] = mem;
    else
        free(mem);
}
