/* Keys as text: an accepted key has 1..65535 bytes, and the same bytes by way of blob; a refusal has a reason. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cql_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char key[CQL_KEY_MAX], again[CQL_KEY_MAX];
static char blob[2 * CQL_KEY_MAX + 16];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    struct errbuf err = {{0}};
    size_t len = 0, again_len = 0, at = 7;
    int rc = cql_key_parse((const char *)data, size, key, &len, &err);

    CHECK((rc == CQL_KEY_OK) == (err.text[0] == '\0'));
    if (rc != CQL_KEY_OK)
        return 0;
    CHECK(len >= 1 && len <= CQL_KEY_MAX);
    memcpy(blob, "blob:0x", at);
    for (size_t i = 0; i < len; i++) {
        blob[at++] = digits[key[i] >> 4];
        blob[at++] = digits[key[i] & 15];
    }
    CHECK(cql_key_parse(blob, at, again, &again_len, &err) == CQL_KEY_OK);
    CHECK(again_len == len && memcmp(key, again, len) == 0);
    return 0;
}
