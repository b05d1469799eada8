#include "bf_out.h"

#include <stdio.h>
#include <string.h>

#include "bloom_types.h"

#define ERROR_MAX 1024

void bf_out_text(const struct bf_out *out, const char *text)
{
    out->ops->bytes(out->ctx, text, strlen(text));
}

void bf_out_verrorf(const struct bf_out *out, const char *format, va_list args)
{
    char text[ERROR_MAX];
    vsnprintf(text, sizeof(text), format, args);
    for (char *at = text; (at = strpbrk(at, "\r\n")) != NULL;)
        *at = ' ';
    out->ops->error(out->ctx, text);
}

bool bf_out_errorf(const struct bf_out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bf_out_verrorf(out, format, args);
    va_end(args);
    return false;
}

void bf_reply_not_made(const struct bf_out *out, int status, const struct errbuf *err)
{
    if (status < 0)
        out->ops->error(out->ctx, BF_NO_MEMORY);
    else if (status == BLOOM_LIMIT)
        bf_out_errorf(out, "OOM %s (%s)", err->text, out->limits);
    else
        bf_out_errorf(out, "ERR %s", err->text);
}

void bf_out_count(const struct bf_out *out, uint64_t value)
{
    out->ops->integer(out->ctx, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

void bf_out_named_count(const struct bf_out *out, const char *name, uint64_t value)
{
    out->ops->status(out->ctx, name);
    bf_out_count(out, value);
}

void bf_out_named_real(const struct bf_out *out, const char *name, double value)
{
    out->ops->status(out->ctx, name);
    out->ops->real(out->ctx, value);
}
