/* LOLWUT: a picture of a Bloom filter that is made for the occasion. Items are added until about half of the bits are set,
 * which is where a filter is at its best; a darker cell was set by more of them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "command.h"
#include "handlers.h"
#include "murmur3.h"
#include "server.h"
#include "version.h"

#define MAX_COLUMNS 200
#define MAX_ROWS    60
#define HASHES      4

struct picture {
    unsigned columns, rows, items;
    unsigned char cells[MAX_COLUMNS * MAX_ROWS]; /* how often each bit was set */
};

static void draw(struct picture *picture, uint64_t seed)
{
    uint64_t ncells = (uint64_t)picture->columns * picture->rows, set = 0;

    while (set * 2 < ncells) {
        uint64_t item[2] = {seed, picture->items++};
        struct bloom_hash hash = murmur3_hash(item, sizeof(item));
        for (uint64_t k = 0; k < HASHES; k++) {
            unsigned char *cell = &picture->cells[(hash.h1 + k * hash.h2) % ncells];
            set += *cell == 0;
            *cell = (unsigned char)(*cell + (*cell < 255));
        }
    }
}

static void write_picture(const struct picture *picture, struct buf *out)
{
    static const char shades[] = " .:+*%@#";
    char text[256];
    uint64_t ncells = (uint64_t)picture->columns * picture->rows;

    for (unsigned y = 0; y < picture->rows; y++) {
        for (unsigned x = 0; x < picture->columns; x++) {
            unsigned n = picture->cells[y * picture->columns + x];
            buf_append(out, &shades[n < sizeof(shades) - 2 ? n : sizeof(shades) - 2], 1);
        }
        buf_append(out, "\n", 1);
    }
    int len = snprintf(text, sizeof(text),
                       "\n%" PRIu64 " bits, %d hash functions, %u items, one half full: of 16 strangers about one is "
                       "mistaken for a friend.\nRedis ver. " REDIS_COMPAT_VERSION ", Bloomery ver. " BLOOMERY_VERSION "\n",
                       ncells, HASHES, picture->items);
    buf_append(out, text, (size_t)len);
}

/* LOLWUT [VERSION <any>] [columns [rows]] */
void cmd_lolwut(struct command_ctx *ctx)
{
    struct picture picture = {.columns = 66, .rows = 20};
    int64_t size[2] = {picture.columns, picture.rows}, version;
    size_t first = 1;
    uint64_t seed;
    struct buf text;

    if (command_argc(ctx) >= 3 && slice_is(command_arg(ctx, 1), "VERSION")) {
        if (!slice_to_int64(command_arg(ctx, 2), &version)) {
            reply_error(ctx->reply, "ERR value is not an integer or out of range");
            return;
        }
        first = 3;
    }
    for (size_t i = first; i < command_argc(ctx) && i < first + 2; i++)
        (void)slice_to_int64(command_arg(ctx, i), &size[i - first]); /* other words, as Redis: no effect */
    picture.columns = (unsigned)(size[0] < 8 ? 8 : size[0] > MAX_COLUMNS ? MAX_COLUMNS : size[0]);
    picture.rows = (unsigned)(size[1] < 4 ? 4 : size[1] > MAX_ROWS ? MAX_ROWS : size[1]);
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = (uint64_t)server_unix_ms();
    draw(&picture, seed);
    buf_init(&text, SIZE_MAX);
    write_picture(&picture, &text);
    if (buf_failed(&text))
        reply_error(ctx->reply, "ERR out of memory");
    else
        reply_verbatim(ctx->reply, "txt", buf_head(&text), buf_len(&text));
    buf_deinit(&text);
}
