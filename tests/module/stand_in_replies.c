/* The stand-in's functions that concern clients, replicas and saved values. stand_in_functions.c has the rule. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "stand_in_internal.h"

/* ---- the client, and others ---- */

/* Without a context there are only the flags that concern no client. */
int fake_GetContextFlags(struct engine_ctx *ctx)
{
    MUST(!ctx || ctx == &host.ctx, "GetContextFlags: the context of another call");
    return host.obey ? (ctx ? ENGINE_CTX_REPLICATED : 0) | ENGINE_CTX_REPLICA : 0;
}

int fake_MustObeyClient(struct engine_ctx *ctx)
{
    only_in(PLACE_COMMAND, ctx, "MustObeyClient");
    return host.obey;
}

static bool is_known(const char *command)
{
    for (size_t i = 0; i < host.ncommands; i++)
        if (strcasecmp(host.commands[i].name, command) == 0)
            return true;
    return strcmp(command, "DEL") == 0 || strcmp(command, "PEXPIREAT") == 0;
}

static void append_list(char *text, struct engine_string **list, size_t n)
{
    MUST(list || n == 0, "no strings for 'v'");
    for (size_t i = 0; i < n; i++) {
        MUST(list[i], "no string for 'v'");
        append_text(text, " %s", list[i]->ptr);
    }
}

static void append_bytes(char *text, const char *bytes, size_t len)
{
    MUST(bytes, "no bytes for 'b'");
    append_text(text, " <%zu bytes>", len);
}

static void append_words(char *text, const char *format, va_list args)
{
    for (const char *at = format; *at; at++) {
        MUST(strchr("sclbvRA", *at), "there is no '%c' in formats", *at);
        if (*at == 's') {
            append_list(text, (struct engine_string *[]){va_arg(args, struct engine_string *)}, 1);
        } else if (*at == 'c') {
            append_text(text, " %s", va_arg(args, const char *));
        } else if (*at == 'l') {
            append_text(text, " %lld", va_arg(args, long long));
        } else if (*at == 'b') {
            const char *bytes = va_arg(args, const char *);
            append_bytes(text, bytes, va_arg(args, size_t));
        } else if (*at == 'v') {
            struct engine_string **list = va_arg(args, struct engine_string **);
            append_list(text, list, va_arg(args, size_t));
        }
    }
}

/* The interface says that the two ways to replicate are not to be mixed. */
int fake_Replicate(struct engine_ctx *ctx, const char *command, const char *format, ...)
{
    va_list args;
    only_in(PLACE_COMMAND, ctx, "Replicate");
    MUST(is_known(command), "Replicate: there is no command '%s'", command);
    MUST(!host.verbatim, "Replicate: the command is replicated as it came already");
    host.replicates = true;
    append_text(host.replicated, "%s", command);
    va_start(args, format);
    append_words(host.replicated, format, args);
    va_end(args);
    append_text(host.replicated, "\n");
    return ENGINE_OK;
}

int fake_ReplicateVerbatim(struct engine_ctx *ctx)
{
    only_in(PLACE_COMMAND, ctx, "ReplicateVerbatim");
    MUST(!host.verbatim && !host.replicates, "ReplicateVerbatim: something is replicated already");
    host.verbatim = true;
    append_text(host.replicated, "verbatim\n");
    return ENGINE_OK;
}

/* ---- replies ---- */

/* One reply, which owes so many others. */
static void reply(struct engine_ctx *ctx, long owes, const char *function)
{
    only_in(PLACE_COMMAND, ctx, function);
    MUST(host.owed > 0, "%s: a reply too many", function);
    MUST(owes >= 0, "%s: %ld elements", function, owes);
    host.owed += owes - 1;
}

/* A line of the protocol ends where the text has an end of line. */
static void reply_line(struct engine_ctx *ctx, const char *sign, const char *text, const char *function)
{
    reply(ctx, 0, function);
    MUST(*text && !strpbrk(text, "\r\n"), "%s: '%s' is not one line", function, text);
    append_text(host.reply, "%s%s ", sign, text);
}

int fake_WrongArity(struct engine_ctx *ctx)
{
    reply_line(ctx, "-", "ERR wrong number of arguments", "WrongArity");
    return ENGINE_OK;
}

int fake_ReplyWithError(struct engine_ctx *ctx, const char *text)
{
    reply_line(ctx, "-", text, "ReplyWithError");
    return ENGINE_OK;
}

int fake_ReplyWithSimpleString(struct engine_ctx *ctx, const char *text)
{
    reply_line(ctx, "", text, "ReplyWithSimpleString");
    return ENGINE_OK;
}

int fake_ReplyWithLongLong(struct engine_ctx *ctx, long long value)
{
    reply(ctx, 0, "ReplyWithLongLong");
    append_text(host.reply, "%lld ", value);
    return ENGINE_OK;
}

int fake_ReplyWithBool(struct engine_ctx *ctx, int value)
{
    reply(ctx, 0, "ReplyWithBool");
    MUST(value == 0 || value == 1, "ReplyWithBool: %d", value);
    append_text(host.reply, "%d ", value);
    return ENGINE_OK;
}

int fake_ReplyWithDouble(struct engine_ctx *ctx, double value)
{
    reply(ctx, 0, "ReplyWithDouble");
    MUST(!isnan(value), "ReplyWithDouble: no number");
    append_text(host.reply, "%g ", value);
    return ENGINE_OK;
}

int fake_ReplyWithNull(struct engine_ctx *ctx)
{
    reply(ctx, 0, "ReplyWithNull");
    append_text(host.reply, "null ");
    return ENGINE_OK;
}

int fake_ReplyWithArray(struct engine_ctx *ctx, long n)
{
    reply(ctx, n, "ReplyWithArray");
    append_text(host.reply, "*%ld ", n);
    return ENGINE_OK;
}

/* As a reply in RESP2, so that it is the same with and without maps. */
int fake_ReplyWithMap(struct engine_ctx *ctx, long n)
{
    reply(ctx, n * 2, "ReplyWithMap");
    append_text(host.reply, "*%ld ", n * 2);
    return ENGINE_OK;
}

int fake_ReplyWithStringBuffer(struct engine_ctx *ctx, const char *ptr, size_t len)
{
    reply(ctx, 0, "ReplyWithStringBuffer");
    MUST(ptr, "ReplyWithStringBuffer: no bytes");
    free(host.bytes);
    host.bytes = malloc(len + 1);
    memcpy(host.bytes, ptr, len);
    host.bytes[len] = '\0';
    host.bytes_len = len;
    append_text(host.reply, "\"%s\" ", len < 100 ? host.bytes : "...");
    return ENGINE_OK;
}

/* ---- values ---- */

static void add_field(const struct engine_io *io, struct field field)
{
    MUST(host.place == PLACE_WRITE && io && host.nfields < FIELD_MAX, "Save...: nothing is saved now, or too much");
    host.fields[host.nfields++] = field;
}

void fake_SaveUnsigned(struct engine_io *io, uint64_t value)
{
    add_field(io, (struct field){.number = true, .value = value});
}

void fake_SaveDouble(struct engine_io *io, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    fake_SaveUnsigned(io, bits);
}

void fake_SaveStringBuffer(struct engine_io *io, const char *ptr, size_t len)
{
    MUST(ptr, "SaveStringBuffer: no bytes");
    char *bytes = malloc(len ? len : 1);
    memcpy(bytes, ptr, len);
    add_field(io, (struct field){.bytes = bytes, .len = len});
}

/* Behind an error there is nothing to be read. */
static struct field *read_field(struct engine_io *io, bool number)
{
    MUST(host.place == PLACE_READ && io && !io->failed, "Load...: nothing is loaded now, or there was an error before");
    if (io->next >= io->limit || io->next >= host.nfields || host.fields[io->next].number != number) {
        io->failed = true;
        return NULL;
    }
    return &host.fields[io->next++];
}

uint64_t fake_LoadUnsigned(struct engine_io *io)
{
    struct field *field = read_field(io, true);
    return field ? field->value : 0;
}

double fake_LoadDouble(struct engine_io *io)
{
    uint64_t bits = fake_LoadUnsigned(io);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

char *fake_LoadStringBuffer(struct engine_io *io, size_t *len_out)
{
    struct field *field = read_field(io, false);
    if (!field)
        return NULL;
    char *copy = fake_Calloc(1, field->len ? field->len : 1);
    memcpy(copy, field->bytes, field->len);
    *len_out = field->len;
    return copy;
}

int fake_IsIOError(struct engine_io *io)
{
    MUST(host.place == PLACE_READ && io, "IsIOError: nothing is loaded now");
    return io->failed;
}

void fake_LogIOError(struct engine_io *io, const char *level, const char *format, ...)
{
    va_list args;
    MUST(io && *level && (host.place & (PLACE_READ | PLACE_WRITE)), "LogIOError: nothing is loaded or saved now");
    va_start(args, format);
    append(host.log, format, args);
    va_end(args);
}

/* What it has written is run when the rewrite has ended. */
void fake_EmitAOF(struct engine_io *io, const char *command, const char *format, ...)
{
    struct emitted *emitted = &host.emitted[host.nemitted];
    va_list args;
    MUST(host.place == PLACE_WRITE && io && host.nemitted < sizeof(host.emitted) / sizeof(host.emitted[0]),
         "EmitAOF: nothing is rewritten now, or too much");
    bool numbered = strcmp(format, "slb") == 0;
    MUST(is_known(command) && (numbered || strcmp(format, "sb") == 0), "EmitAOF: '%s', '%s'", command, format);
    va_start(args, format);
    const struct engine_string *key = va_arg(args, struct engine_string *);
    long long number = numbered ? va_arg(args, long long) : 0;
    const char *bytes = va_arg(args, const char *);
    emitted->len = va_arg(args, size_t);
    va_end(args);
    MUST(key && bytes, "EmitAOF: no key, or no bytes");
    if (numbered)
        snprintf(emitted->line, sizeof(emitted->line), "%s %s %lld", command, key->ptr, number);
    else
        snprintf(emitted->line, sizeof(emitted->line), "%s %s", command, key->ptr);
    emitted->bytes = malloc(emitted->len + 1);
    memcpy(emitted->bytes, bytes, emitted->len);
    host.nemitted++;
}

void fake_DigestAddStringBuffer(struct engine_digest *digest, const char *ptr, size_t len)
{
    (void)len;
    MUST(host.place == PLACE_WRITE && digest && ptr, "DigestAddStringBuffer: no bytes");
    digest->open++;
}

void fake_DigestAddLongLong(struct engine_digest *digest, long long value)
{
    (void)value;
    MUST(host.place == PLACE_WRITE && digest, "DigestAddLongLong: there is no digest");
    digest->open++;
}

void fake_DigestEndSequence(struct engine_digest *digest)
{
    MUST(digest && digest->open > 0, "DigestEndSequence: the sequence is empty");
    digest->open = 0;
}
