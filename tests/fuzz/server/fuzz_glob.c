/* Patterns of KEYS and SCAN: the first byte gives the case sensitivity and the length of the pattern; the rest is
 * the text. The compiled pattern and the split one match like the plain one. */
#include <stdint.h>

#include "check.h"
#include "glob_match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct glob glob;

    if (size < 1)
        return 0;
    bool ignore_case = data[0] & 1;
    size_t n = data[0] >> 1;
    if (n > size - 1)
        n = size - 1;
    struct slice pattern = {(const char *)data + 1, n}, text = {(const char *)data + 1 + n, size - 1 - n};
    bool matches = glob_match(pattern, text, ignore_case);
    glob_compile(&glob, pattern, ignore_case);
    CHECK(glob_test(&glob, text) == matches);
    return 0;
}
