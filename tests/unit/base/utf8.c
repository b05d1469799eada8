/* Every sequence of up to three bytes, and those of four at the borders, against the definition of RFC 3629, section 4.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "slice.h"

/* Encodes the character by RFC 3629, section 3; returns its length. */
static size_t encode(uint32_t code, char out[4])
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(n == 1 ? code : (0xf00 >> n & 0xff) | code);
    return n;
}

Test(utf8, every_character_and_no_surrogate)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        size_t n = encode(code, text);
        bool surrogate = code >= 0xd800 && code < 0xe000;

        cr_assert_eq(utf8_char(text, n), surrogate ? 0 : n, "U+%04X", code);
        cr_assert_eq(utf8_char(text, n - 1), 0, "U+%04X, cut", code);
    }
}

/* Every accepted sequence equals the output of encode(), so nothing else is accepted. */
Test(utf8, what_is_taken_is_a_character)
{
    for (uint32_t bytes = 0; bytes < 1 << 24; bytes++) {
        const char text[4] = {(char)(bytes >> 16), (char)(bytes >> 8), (char)bytes, '\x80'};
        const unsigned char *s = (const unsigned char *)text;
        size_t n = utf8_char(text, sizeof(text));
        char again[4];

        if (n == 0)
            continue;
        uint32_t code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
        for (size_t i = 1; i < n; i++)
            code = code << 6 | (s[i] & 0x3fu);
        cr_assert(encode(code, again) == n && memcmp(again, text, n) == 0 && code < 0x110000, "%06x", bytes);
    }
    cr_assert_eq(utf8_char("", 0), 0);
}
