#include "bf_out.h"

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
