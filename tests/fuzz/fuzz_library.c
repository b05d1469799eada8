/* bloomery_read() and bloomery_open() of any bytes. They agree; an accepted filter is written again unchanged, gives
 * the same answers by every function, takes items, and unites with itself. The first byte chooses the layout, the
 * second the layers. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bloomery.h"
#include "bytes.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ITEMS = 40 };

static unsigned char *written(const bloomery_filter *filter, size_t *len_out)
{
    char text[BLOOMERY_TEXT];
    *len_out = bloomery_bytes(filter);
    unsigned char *bytes = malloc(*len_out + 1);
    CHECK(bytes != NULL);
    CHECK(*len_out == 0 || bloomery_write(filter, bytes, *len_out - 1, text, sizeof(text)) == BLOOMERY_REFUSED);
    CHECK(bloomery_write(filter, bytes, *len_out, text, sizeof(text)) == BLOOMERY_OK);
    return bytes;
}

static void check_numbers(const bloomery_filter *filter)
{
    unsigned layers = bloomery_layers(filter);
    uint64_t bits = 0;
    for (unsigned i = 0; i < layers; i++) {
        CHECK(bloomery_layer_hashes(filter, i) > 0);
        bits += bloomery_layer_bits(filter, i);
    }
    CHECK(bloomery_layer_bits(filter, layers) == 0 && bloomery_layer_hashes(filter, layers) == 0);
    CHECK(bloomery_bits_set(filter) <= bits);
    CHECK(bloomery_rate(filter) >= 0 && bloomery_rate(filter) <= 1);
    CHECK(bloomery_estimate(filter) >= 0);
}

/* Whether one more item may bring a new layer of many megabytes: RedisBloom's filters grow by capacity times
 * expansion, and where these are in bits (an option), by their logarithms. */
static bool grows_far(const bloomery_filter *filter, const uint8_t *data)
{
    return strncmp(bloomery_layout(filter), "redisbloom", 10) == 0 && bloomery_layers(filter) > 0 &&
           (le32_get(data + 12) & 2 || le64_get(data + 16) > 64);
}

/* Each item gets the same answer as alone; added items are there. */
static void ask_and_add(bloomery_filter *filter, const uint8_t *data, size_t size)
{
    struct bloomery_item items[ITEMS];
    unsigned char answers[ITEMS];
    char text[BLOOMERY_TEXT] = "";
    uint64_t added = 0;
    size_t done = ITEMS + 1, absent = 0;

    for (size_t i = 0; i < ITEMS; i++)
        items[i] = (struct bloomery_item){data, i < size ? i : size};
    bloomery_has_many(filter, items, ITEMS, answers);
    for (size_t i = 0; i < ITEMS; i++) {
        CHECK(answers[i] == bloomery_has(filter, items[i].data, items[i].size));
        absent += !answers[i];
    }
    int status = bloomery_add_many(filter, items, ITEMS, &done, &added, text, sizeof(text));
    CHECK(done <= ITEMS && added <= absent);
    CHECK((status == BLOOMERY_OK) == (done == ITEMS) && (status == BLOOMERY_OK) == (text[0] == '\0'));
    CHECK(status != BLOOMERY_REFUSED || bloomery_layers(filter) == 0);
    for (size_t i = 0; i < done; i++)
        CHECK(bloomery_has(filter, items[i].data, items[i].size) == 1);
}

static void unite(bloomery_filter *filter, const char *layout)
{
    bloomery_filter *other = NULL;
    char text[BLOOMERY_TEXT];
    size_t len, united_len;
    unsigned char *bytes = written(filter, &len);

    CHECK(bloomery_read(bytes, len, layout, (int)bloomery_layers(filter), &other, text, sizeof(text)) == BLOOMERY_OK);
    CHECK(bloomery_merge(other, filter, text, sizeof(text)) == BLOOMERY_OK);
    check_numbers(other);
    unsigned char *united = written(other, &united_len);
    CHECK(united_len == len);
    free(united);
    free(bytes);
    bloomery_free(other);
}

/* The same bytes as a file: the same result. */
static void open_file(const uint8_t *data, size_t size, const char *layout, int expected)
{
    bloomery_filter *filter = NULL;
    char path[40], text[BLOOMERY_TEXT] = "";
    int fd = memfd_create("filter", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int status = bloomery_open(path, layout, &filter, text, sizeof(text));
    CHECK(status == expected && (status == BLOOMERY_OK) == (text[0] == '\0'));
    bloomery_free(filter);
    CHECK(close(fd) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const layouts[] = {"na", "me", "ka", "redisbloom", "redisbloom32"};
    bloomery_filter *filter = NULL;
    char text[BLOOMERY_TEXT] = "";

    if (size < 2)
        return 0;
    const char *layout = layouts[data[0] % 5];
    int layers = data[1] % 5 - 1;
    data += 2;
    size -= 2;
    int status = bloomery_read(data, size, layout, layers, &filter, text, sizeof(text));
    CHECK(status == BLOOMERY_OK || status == BLOOMERY_MALFORMED);
    CHECK((status == BLOOMERY_OK) == (text[0] == '\0'));
    if (layers < 0)
        open_file(data, size, layout, status);
    if (status != BLOOMERY_OK)
        return 0;
    size_t len;
    unsigned char *again = written(filter, &len);
    CHECK(len == size && memcmp(again, data, size) == 0);
    free(again);
    CHECK(layers < 0 ? bloomery_layers(filter) > 0 : bloomery_layers(filter) == (unsigned)layers);
    check_numbers(filter);
    if (!grows_far(filter, data))
        ask_and_add(filter, data, size);
    unite(filter, layout);
    bloomery_free(filter);
    return 0;
}
