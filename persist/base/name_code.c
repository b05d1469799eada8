#include "name_code.h"

static const char hex_digits[] = "0123456789ABCDEF";

static bool stands_for_itself(unsigned char byte, size_t at)
{
    return (unsigned char)((byte | 0x20) - 'a') < 26 || (unsigned char)(byte - '0') < 10 || byte == '_' ||
           byte == '-' || (byte == '.' && at > 0);
}

size_t name_encoded_len(const char *name, size_t len)
{
    size_t encoded = 0;

    for (size_t i = 0; i < len; i++)
        encoded += stands_for_itself((unsigned char)name[i], i) ? 1 : 3;
    return encoded;
}

void name_encode(const char *name, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)name[i];

        if (stands_for_itself(byte, i)) {
            *out++ = (char)byte;
        } else {
            *out++ = '%';
            *out++ = hex_digits[byte >> 4];
            *out++ = hex_digits[byte & 15];
        }
    }
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool name_decode(const char *text, size_t len, char *out, size_t *len_out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; n++) {
        if (stands_for_itself((unsigned char)text[i], n)) {
            out[n] = text[i++];
            continue;
        }
        if (text[i] != '%' || len - i < 3 || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0)
            return false;
        unsigned char byte = (unsigned char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
        if (stands_for_itself(byte, n))
            return false;
        out[n] = (char)byte;
        i += 3;
    }
    *len_out = n;
    return true;
}
