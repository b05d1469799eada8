/* The replies that `bloomery bench` reads: for any cut of the bytes, the same replies are counted. */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "traffic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reply_reader whole, bytes, halves;
    const char *text = (const char *)data;
    bool good = true;

    replies_init(&whole);
    replies_init(&bytes);
    replies_init(&halves);
    for (size_t i = 0; i < size && good; i++)
        good = replies_take(&bytes, text + i, 1);
    CHECK(replies_take(&whole, text, size) == good);
    CHECK((replies_take(&halves, text, size / 2) && replies_take(&halves, text + size / 2, size - size / 2)) == good);
    if (good) {
        CHECK(whole.replies == bytes.replies && whole.errors == bytes.errors);
        CHECK(whole.ones == bytes.ones && whole.zeros == bytes.zeros);
        CHECK(buf_len(&whole.kept) == buf_len(&bytes.kept));
        CHECK(halves.replies == bytes.replies && buf_len(&halves.kept) == buf_len(&bytes.kept));
    }
    replies_deinit(&whole);
    replies_deinit(&bytes);
    replies_deinit(&halves);
    return 0;
}
