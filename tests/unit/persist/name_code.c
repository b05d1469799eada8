#include <criterion/criterion.h>
#include <string.h>

#include "name_code.h"

static void assert_code(const char *name, size_t len, const char *code)
{
    char out[1024], back[1024];
    size_t back_len;

    cr_assert_eq(name_encoded_len(name, len), strlen(code), "%s", code);
    name_encode(name, len, out);
    cr_assert_eq(memcmp(out, code, strlen(code)), 0, "%.*s is not %s", (int)strlen(code), out, code);
    cr_assert(name_decode(out, strlen(code), back, &back_len));
    cr_assert(back_len == len && memcmp(back, name, len) == 0, "%s", code);
}

Test(name_code, plain_bytes_stand_for_themselves_and_all_others_are_escaped)
{
    assert_code("", 0, "");
    assert_code("urls", 4, "urls");
    assert_code("A-z_0.9", 7, "A-z_0.9");
    assert_code(".", 1, "%2E");
    assert_code("..", 2, "%2E.");
    assert_code("a/b", 3, "a%2Fb");
    assert_code("%2F", 3, "%252F");
    assert_code("\0\n\x7f\xff", 4, "%00%0A%7F%FF");
    assert_code("a b~", 4, "a%20b%7E");
}

Test(name_code, only_the_one_encoding_of_a_name_is_decoded)
{
    static const char *const wrong[] = {"%",   "%2",  "%2f", "%41", "%G0", ".",    ".a",
                                        "a b", "a/b", "~",   "%~0", "a%",  "%%25", "\xc3"};
    char out[16];
    size_t len;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        cr_assert(!name_decode(wrong[i], strlen(wrong[i]), out, &len), "%s", wrong[i]);
    cr_assert(!name_decode("a\0b", 3, out, &len));
}

Test(name_code, every_byte_value_survives_in_every_place)
{
    char name[3], code[9], back[9];
    size_t len;

    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            memcpy(name, (char[]){(char)a, (char)b, (char)(a ^ b)}, 3);
            name_encode(name, 3, code);
            cr_assert(name_decode(code, name_encoded_len(name, 3), back, &len) && len == 3 &&
                      memcmp(name, back, 3) == 0);
        }
    }
}
