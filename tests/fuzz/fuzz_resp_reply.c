/* Replies of a hostile server: for any cut of the bytes, the same replies are read, and no byte outside of them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "resp_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A digest of all replies, and of the end. */
static uint64_t read_all(const char *data, size_t size, size_t step)
{
    struct resp_reply_reader reader = {0};
    size_t at = 0, have = 0;
    uint64_t sum = 0;
    while (have <= size) {
        size_t consumed, needs;
        struct resp_reply reply;
        enum resp_reply_status status = have > at
                                            ? resp_reply_next(&reader, data + at, have - at, &consumed, &needs, &reply)
                                            : RESP_REPLY_NEED_MORE;
        if (status == RESP_REPLY_MALFORMED) {
            sum = sum * 31 + 7;
            break;
        }
        CHECK(status == RESP_REPLY_WHOLE || status == RESP_REPLY_NEED_MORE);
        if (status == RESP_REPLY_NEED_MORE) {
            if (have == size)
                break;
            have = size - have < step ? size : have + step;
            continue;
        }
        CHECK(consumed > 0 && consumed <= have - at);
        for (size_t i = 0; i < reply.count; i++) {
            struct slice text = resp_reply_text(&reply, i);
            CHECK(reply.nodes[i].off + text.len <= consumed);
            sum = sum * 31 + (uint64_t)reply.nodes[i].kind + (uint64_t)reply.nodes[i].number;
            for (size_t c = 0; c < text.len; c++)
                sum = sum * 31 + (unsigned char)text.ptr[c];
        }
        at += consumed;
    }
    resp_reply_reader_deinit(&reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    uint64_t whole = read_all(text, size, size ? size : 1);
    CHECK(read_all(text, size, 1) == whole);
    CHECK(read_all(text, size, size / 2 + 1) == whole);
    free(text);
    return 0;
}
