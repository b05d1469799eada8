/* Requests of the status page's port: the first byte gives the place where the bytes are cut in two. The resulting
 * head does not depend on the cut, and its texts are within its bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, const char *bytes, size_t len)
{
    CHECK(text >= bytes && text < bytes + len && memchr(text, '\0', (size_t)(bytes + len - text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head head;
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 1;
    size_t cut = data[0] % size, len = http_head_length(text, size - 1, 0);
    if (http_head_length(text, cut, 0) == 0)
        CHECK(http_head_length(text, size - 1, cut) == len);
    if (len == 0)
        return 0;
    char *bytes = malloc(len);
    CHECK(bytes && len < size);
    memcpy(bytes, text, len);
    if (http_head_parse(bytes, len, &head) == NULL) {
        check_text(head.method, bytes, len);
        check_text(head.path, bytes, len);
        for (size_t i = 0; i < head.nfields; i++) {
            check_text(head.fields[i].name, bytes, len);
            check_text(head.fields[i].value, bytes, len);
        }
        for (size_t i = 0; i < head.narguments; i++) {
            struct slice value = head.arguments[i].value;
            CHECK(value.ptr >= bytes && value.ptr + value.len <= bytes + len);
        }
    }
    free(bytes);
    return 0;
}
