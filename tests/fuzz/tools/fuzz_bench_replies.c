/* What `bloomery bench` reads: however the bytes are cut, the same replies are counted. */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "traffic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reply_reader whole = {0}, bytes = {0}, halves = {0};
    const char *text = (const char *)data;
    bool good = true;

    for (size_t i = 0; i < size && good; i++)
        good = replies_take(&bytes, text + i, 1);
    CHECK(replies_take(&whole, text, size) == good);
    CHECK((replies_take(&halves, text, size / 2) && replies_take(&halves, text + size / 2, size - size / 2)) == good);
    if (good) {
        CHECK(whole.replies == bytes.replies && whole.errors == bytes.errors);
        CHECK(whole.ones == bytes.ones && whole.zeros == bytes.zeros);
        CHECK(whole.remaining == bytes.remaining && whole.skip == bytes.skip);
        CHECK(halves.replies == bytes.replies && halves.remaining == bytes.remaining && halves.skip == bytes.skip);
    }
    return 0;
}
